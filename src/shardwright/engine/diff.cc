#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "shardwright/engine/cut.h"
#include "shardwright/engine/manifest.h"
#include "shardwright/tensor/convert.h"

namespace shardwright {
namespace {

/// Elements compared at once: with both sides as doubles it stays within a few MiB.
constexpr uint64_t kCompareElements = 256 * KiB;

/// The names, dtypes and shapes that differ; the tensors left to be compared by value.
std::vector<std::pair<TensorId, TensorId>> compare_specs(const Catalog& a, const Catalog& b, bool across_dtypes,
                                                         std::vector<Difference>& out) {
  auto comparable = [&](DType left, DType right) {
    bool floats = dtype_row(left).kind == Kind::kFloat && dtype_row(right).kind == Kind::kFloat;
    return left == right || (across_dtypes && floats);
  };
  std::vector<std::pair<TensorId, TensorId>> same;
  for (TensorId id = 0; id < a.size(); ++id) {
    auto left = a.spec(id);
    auto other = b.find(left.name);
    if (!other) {
      out.push_back({std::string(left.name), "removed"});
      continue;
    }
    auto right = b.spec(*other);
    if (!std::ranges::equal(left.shape, right.shape)) {
      out.push_back({std::string(left.name), "shape", {}, shape_text(left.shape) + " -> " + shape_text(right.shape)});
    } else if (!comparable(left.dtype, right.dtype)) {
      out.push_back({std::string(left.name),
                     "dtype",
                     {},
                     fmt::format("{} -> {}", dtype_row(left.dtype).name, dtype_row(right.dtype).name)});
    } else {
      same.emplace_back(id, *other);
    }
  }
  for (TensorId id = 0; id < b.size(); ++id)
    if (!a.find(b.spec(id).name)) out.push_back({std::string(b.spec(id).name), "added"});
  return same;
}

/// Values of a tensor, slab by slab, as doubles (two for an element of a complex type).
class Values {
 public:
  Values(const Checkpoint& checkpoint, TensorId tensor)
      : checkpoint_(checkpoint), tensor_(tensor), dtype_(checkpoint.catalog.spec(tensor).dtype) {}
  Result<std::span<const double>> read(const Box& box, const PlanOptions& options) {
    uint64_t elements = box.elements();
    raw_.resize(bytes_of_elements(dtype_, elements).value_or(0));
    SHARDWRIGHT_TRY(read_box(checkpoint_, tensor_, box, raw_, options));
    bool complex = dtype_row(dtype_).kind == Kind::kComplex;
    doubles_.resize(elements * (complex ? 2 : 1));
    if (dtype_ != DType::kF64 && can_convert(dtype_, DType::kF64)) {
      auto out = std::as_writable_bytes(std::span(doubles_));
      SHARDWRIGHT_TRY(convert(dtype_, raw_, DType::kF64, out));
    } else {
      for (uint64_t i = 0; i < elements; ++i) {
        if (complex) doubles_[2 * i + 1] = element_value(dtype_, raw_, i, 1);
        doubles_[complex ? 2 * i : i] = element_value(dtype_, raw_, i);
      }
    }
    return std::span<const double>(doubles_);
  }
  View raw() const { return raw_; }

 private:
  const Checkpoint& checkpoint_;
  TensorId tensor_;
  DType dtype_;
  Bytes raw_;
  std::vector<double> doubles_;
};

struct Comparison {
  bool differs = false;
  double largest = 0;
  bool unordered = false;  ///< some unequal pair has a NaN or an infinity
  bool number = false;     ///< some unequal pair is a pair of finite numbers
};

void compare_slab(std::span<const double> a, std::span<const double> b, bool bits_differ, const DiffRequest& request,
                  Comparison& out) {
  bool exact = request.exact();
  for (size_t i = 0; i < a.size(); ++i) {
    double left = a[i], right = b[i];
    if (left == right || (std::isnan(left) && std::isnan(right))) continue;
    double gap = std::abs(left - right);
    if (!exact && std::isfinite(gap) && gap <= request.absolute + request.relative * std::abs(right)) continue;
    out.differs = true;
    if (!std::isfinite(gap)) {
      out.unordered = true;
      continue;
    }
    out.number = true;
    out.largest = std::max(out.largest, gap);
  }
  // Equal as numbers, not as bits: -0 and 0, or NaNs of another kind.
  if (exact && bits_differ) out.differs = true;
}

Result<Comparison> compare_values(const Checkpoint& a, TensorId in_a, const Checkpoint& b, TensorId in_b,
                                  const DiffRequest& request, const JobOptions& options) {
  Comparison out;
  auto spec = a.catalog.spec(in_a);
  auto dtype_b = b.catalog.spec(in_b).dtype;
  Values left(a, in_a), right(b, in_b);
  PlanOptions small = options.plan;
  small.threads = small.threads == 0 ? 1 : small.threads;
  Cut cut = cut_slabs(spec.shape, kCompareElements,
                      std::max(dtype_row(spec.dtype).block_elems, dtype_row(dtype_b).block_elems));
  for (uint64_t part = 0; part < cut.parts(); ++part) {
    Range range = cut.range(part);
    if (range.count == 0) continue;
    Box box = boxes_of_range(Box::whole(spec.shape), range.first, range.count).front();
    SHARDWRIGHT_ASSIGN(auto x, left.read(box, small));
    SHARDWRIGHT_ASSIGN(auto y, right.read(box, small));
    compare_slab(x, y, !std::ranges::equal(left.raw(), right.raw()), request, out);
    if (options.progress && !options.progress("compare", part, cut.parts()))
      return fail(Code::kAborted, "stopped on request");
  }
  return out;
}

}  // namespace

Result<std::vector<Difference>> diff_checkpoints(const DiffRequest& request, const JobOptions& options) {
  SHARDWRIGHT_ASSIGN(auto a, open_checkpoint(request.a, options.open));
  SHARDWRIGHT_ASSIGN(auto b, open_checkpoint(request.b, options.open));
  std::vector<Difference> out;
  auto same = compare_specs(a.catalog, b.catalog, !request.names_only && !request.exact(), out);
  if (!request.names_only) {
    SHARDWRIGHT_ASSIGN(auto hashes_a, survey(a, /*stored=*/false, options));
    SHARDWRIGHT_ASSIGN(auto hashes_b, survey(b, /*stored=*/false, options));
    for (auto [in_a, in_b] : same) {
      std::string name(a.catalog.spec(in_a).name);
      // A hash is of values in their dtype.
      bool same_dtype = a.catalog.spec(in_a).dtype == b.catalog.spec(in_b).dtype;
      if (same_dtype && hashes_a.content.at(name).hash == hashes_b.content.at(name).hash) continue;
      SHARDWRIGHT_ASSIGN(auto compared, compare_values(a, in_a, b, in_b, request, options));
      if (!compared.differs) continue;
      Difference difference{name, "value"};
      if (compared.number || !compared.unordered) difference.max_abs_diff = compared.largest;
      out.push_back(std::move(difference));
    }
  }
  std::ranges::stable_sort(out, {}, &Difference::name);
  return out;
}

}  // namespace shardwright
