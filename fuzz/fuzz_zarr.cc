/// zarr metadata: any text; an array that is accepted becomes a tensor, all of whose chunks are missing but one.
///
/// Input: one byte of version, then the text; from a NUL on, the bytes of the first chunk.
#include <algorithm>

#include "fuzz_support.h"
#include "shardwright/format/zarr_chunks.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shardwright;
  if (size == 0) return 0;
  View rest = fuzz_view(data + 1, size - 1);
  auto nul = std::find(rest.begin(), rest.end(), std::byte{0});
  View text = rest.first(static_cast<size_t>(nul - rest.begin())), chunk = rest.subspan(text.size());
  auto array = data[0] % 2 == 0 ? parse_zarr2_array(text_of(text)) : parse_zarr3_array(text_of(text));
  if (!array.ok()) return 0;
  FUZZ_CLAIM(array->chunk.size() == array->shape.size());
  FUZZ_CLAIM(array->fill.size() == dtype_row(array->dtype).block_bytes);
  std::vector<int64_t> first(array->shape.size());
  auto store = store_of("a/" + array->key_of(first), chunk);
  CatalogBuilder builder;
  ZarrCatalog::Limits limits;
  limits.max_pieces = 2000;
  ZarrCatalog zarr(*store, builder, limits);
  auto values = zarr_values_in_files(*store, "");
  if (!zarr.add(*values, "a", "a", *array, /*fill_missing=*/true).ok()) return 0;
  auto catalog = builder.build();
  FUZZ_CLAIM(!catalog.ok() || catalog->size() == 1);
  return 0;
}
