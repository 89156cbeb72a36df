#include "shardwright/engine/jobs.h"

namespace shardwright {
namespace {

/// Boxes up to this are read by the caller itself where they are one stretch of a file: threads and a plan cost more than the reading.
constexpr uint64_t kAloneBytes = 1 * MiB;

/// Element at which a box begins that is one run of the tensor's C order; nullopt when it is none.
std::optional<int64_t> single_run(const Box& box, std::span<const int64_t> shape) {
  auto strides = c_strides(shape);
  int64_t first = 0;
  bool whole_below = true;  // all dimensions behind this one are taken whole
  for (size_t d = shape.size(); d-- > 0;) {
    if (!whole_below && box.extent[d] != 1) return std::nullopt;
    whole_below = whole_below && box.extent[d] == shape[d];
    first += box.start[d] * strides[d];
  }
  return first;
}

}  // namespace

Status read_box(const Checkpoint& checkpoint, TensorId tensor, const Box& box, MutableView out,
                const PlanOptions& options) {
  auto spec = checkpoint.catalog.spec(tensor);
  if (box.rank() != spec.shape.size() || !Box::whole(spec.shape).contains(box))
    return fail(Code::kInvalidArgument, "box " + box.text() + " lies outside the tensor")
        .at_tensor(std::string(spec.name))
        .with_expected("a box within " + shape_text(spec.shape));
  // A box of packed elements must be whole bytes from start to end, in every row that it cuts.
  Strided whole{Box::whole(spec.shape), c_strides(spec.shape)};
  bool packed_whole = true;
  if (dtype_row(spec.dtype).block_elems != 1 && !box.empty())
    for_each_run(box, whole, {box, c_strides(box.extent)}, [&](int64_t from, int64_t to, int64_t elements) {
      int64_t block = dtype_row(spec.dtype).block_elems;
      packed_whole = packed_whole && from % block == 0 && to % block == 0 && elements % block == 0;
    });
  if (!packed_whole)
    return fail(Code::kUnsupported, "a part of this type must begin and end at whole bytes")
        .at_tensor(std::string(spec.name))
        .with_found(box.text());
  if (bytes_of_elements(spec.dtype, box.elements()) != out.size())
    return fail(Code::kInvalidArgument, "buffer and box differ in size").at_tensor(std::string(spec.name));
  if (box.empty()) return {};
  auto flat = checkpoint.catalog.flat(tensor);
  auto run = flat && flat->place.site == Place::kExtent && flat->stored == spec.dtype && out.size() <= kAloneBytes
                 ? single_run(box, spec.shape)
                 : std::nullopt;
  if (run) {
    auto skip = bytes_of_elements(spec.dtype, static_cast<uint64_t>(*run));
    const auto& object = checkpoint.catalog.objects()[flat->place.object];
    ReadOp op{object.key, flat->place.offset + skip.value_or(0), out};
    auto status = checkpoint.store->read({&op, 1});
    if (!status.ok() && status.error().tensor.empty()) status.error().tensor = spec.name;
    return status;
  }
  CatalogBuilder builder;
  SHARDWRIGHT_TRY(builder.add_tensor(spec.name, spec.dtype, spec.shape));
  auto encoding = builder.add_encoding({spec.dtype});
  Place place{Place::kMemory, -1, 0, reinterpret_cast<uint64_t>(out.data()), out.size()};
  SHARDWRIGHT_TRY(builder.add_piece({box, place, encoding, {}}));
  SHARDWRIGHT_ASSIGN(auto target, builder.build(/*partial=*/true));
  SHARDWRIGHT_ASSIGN(auto plan, plan_load(checkpoint.catalog, target, {&tensor, 1}, options));
  auto done = execute(plan, {checkpoint.store.get(), nullptr, nullptr}, {});
  return done.ok() ? Status{} : Status(std::move(done.error()));
}

}  // namespace shardwright
