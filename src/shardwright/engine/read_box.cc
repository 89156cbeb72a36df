#include "shardwright/engine/jobs.h"

namespace shardwright {

Status read_box(const Checkpoint& checkpoint, TensorId tensor, const Box& box, MutableView out,
                const PlanOptions& options) {
  auto spec = checkpoint.catalog.spec(tensor);
  if (box.rank() != spec.shape.size() || !Box::whole(spec.shape).contains(box))
    return fail(Code::kInvalidArgument, "box " + box.text() + " lies outside the tensor")
        .at_tensor(std::string(spec.name))
        .with_expected("a box within " + shape_text(spec.shape));
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
