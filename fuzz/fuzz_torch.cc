/// Files of torch.save, in the zip form and the one before: any bytes. What is accepted lies within the file, and its pickle is data.
///
/// Input: a whole file; or, where it is neither form, the text of a data.pkl beside one storage of 24 bytes.
#include <string>

#include "fuzz_support.h"
#include "shardwright/base/checksum.h"
#include "shardwright/format/torch_file.h"
#include "shardwright/store/zip.h"

namespace {

using namespace shardwright;

/// An archive of torch.save around a pickle.
Bytes archive_around(View pickle) {
  const std::pair<std::string, Bytes> records[] = {
      {"a/data.pkl", Bytes(pickle.begin(), pickle.end())}, {"a/data/0", Bytes(24)}, {"a/version", bytes_of("3")}};
  std::vector<ZipLayout::Entry> entries;
  for (const auto& [name, bytes] : records) entries.push_back({name, bytes.size(), 0});
  ZipLayout zip(std::move(entries));
  Bytes out;
  std::vector<uint32_t> crcs;
  auto add = [&](View bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); };
  for (size_t i = 0; i < std::size(records); ++i) {
    crcs.push_back(crc32(records[i].second));
    add(zip.local_header(i, crcs.back()));
    add(records[i].second);
  }
  add(zip.directory(crcs));
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  View input = fuzz_view(data, size);
  auto store = store_of("x.pt", input);
  if (sniff_torch_file(*store, "x.pt") < Confidence::kMagic) store = store_of("x.pt", archive_around(input));
  auto catalog = kTorch.open(*store, "x.pt", {});
  if (!catalog.ok()) return 0;
  uint64_t whole = **store->size("x.pt");
  for (TensorId id = 0; id < catalog->size(); ++id)
    for (const auto& piece : catalog->pieces(id)) {
      if (piece.place.site != Place::kExtent) continue;
      FUZZ_CLAIM(piece.place.length <= whole && piece.place.offset <= whole - piece.place.length);
    }
  // What can be opened can be written, or it is said why not.
  auto draft = kTorch.draft(*catalog, {});
  FUZZ_CLAIM(draft.ok() || !draft.error().message.empty());
  return 0;
}
