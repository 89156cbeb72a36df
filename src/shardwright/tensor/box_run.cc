#include "shardwright/tensor/box.h"
#include "shardwright/tensor/strided_loop.h"

namespace shardwright {

void for_each_run(const Box& part, const Strided& a, const Strided& b,
                  const std::function<void(int64_t offset_a, int64_t offset_b, int64_t elements)>& run) {
  const detail::LoopNest nest = detail::loop_nest(part, a, b);
  size_t depth = nest.dims.size();
  int64_t step = 1;
  while (depth > 0 && nest.dims[depth - 1].a == step && nest.dims[depth - 1].b == step) {
    step *= nest.dims[--depth].extent;
  }
  // The run is held back: odd strides can make one step's end the next one's beginning where no pair of loops collapses.
  int64_t begin_a = nest.offset_a, begin_b = nest.offset_b, length = 0;
  detail::for_each_step(nest, depth, [&](int64_t offset_a, int64_t offset_b) {
    if (offset_a == begin_a + length && offset_b == begin_b + length) {
      length += step;
      return;
    }
    run(begin_a, begin_b, length);
    begin_a = offset_a;
    begin_b = offset_b;
    length = step;
  });
  run(begin_a, begin_b, length);
}

}  // namespace shardwright
