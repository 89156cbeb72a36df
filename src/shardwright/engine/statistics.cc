#include <algorithm>
#include <cmath>
#include <limits>

#include "shardwright/engine/jobs.h"
#include "shardwright/tensor/convert.h"

namespace shardwright {
namespace {

class Accumulator {
 public:
  explicit Accumulator(DType dtype) : dtype_(dtype) {}
  void add(View values) {
    const auto& row = dtype_row(dtype_);
    uint64_t elements = values.size() / row.block_bytes * row.block_elems;
    for (uint64_t i = 0; i < elements; ++i) {
      double value = element_value(dtype_, values, i);
      if (row.kind == Kind::kComplex) value = std::hypot(value, element_value(dtype_, values, i, 1));
      add(value);
    }
  }
  Statistics finish() {
    uint64_t finite = out_.elements - out_.nan - out_.infinite;
    if (finite > 0) out_.mean = sum_ / static_cast<double>(finite);
    if (finite == 0) out_.min = out_.max = 0;
    return out_;
  }

 private:
  void add(double value) {
    ++out_.elements;
    if (std::isnan(value)) {
      ++out_.nan;
    } else if (std::isinf(value)) {
      ++out_.infinite;
    } else {
      out_.zero += value == 0;
      out_.min = std::min(out_.min, value);
      out_.max = std::max(out_.max, value);
      // Kahan: billions of small values would lose the mean.
      double rest = value - carry_, next = sum_ + rest;
      carry_ = (next - sum_) - rest;
      sum_ = next;
    }
  }
  DType dtype_;
  Statistics out_{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  double sum_ = 0, carry_ = 0;
};

}  // namespace

Result<Statistics> tensor_statistics(const Checkpoint& checkpoint, TensorId tensor, const JobOptions& options) {
  auto spec = checkpoint.catalog.spec(tensor);
  CatalogBuilder builder;
  SHARDWRIGHT_TRY(builder.add_tensor(spec.name, spec.dtype, spec.shape));
  SHARDWRIGHT_ASSIGN(auto want, builder.build(/*partial=*/true));
  SHARDWRIGHT_ASSIGN(auto plan, plan_load(checkpoint.catalog, want, {&tensor, 1}, options.plan));
  Accumulator accumulator(spec.dtype);
  Calls calls;
  calls.consume = [&](TensorId, const Box&, View values) -> Status {
    accumulator.add(values);
    return {};
  };
  calls.keep_going = [&](uint64_t done, uint64_t total) {
    return !options.progress || options.progress("read", done, total);
  };
  SHARDWRIGHT_TRY(execute(plan, {checkpoint.store.get(), nullptr, nullptr}, calls));
  return accumulator.finish();
}

}  // namespace shardwright
