#include "shardwright/engine/jobs.h"

namespace shardwright {

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
