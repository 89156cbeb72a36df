#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "shardwright/engine/manifest.h"
#include "shardwright/engine/tensor_stream.h"
#include "shardwright/tensor/convert.h"

namespace shardwright {
namespace {

/// Elements compared at once, a multiple of any dtype's block: with both sides as doubles it stays within a few MiB.
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

/// Values of a tensor in C order, as doubles (two for an element of a complex type), as many at a time as are asked for.
class Values {
 public:
  Values(const Checkpoint& checkpoint, TensorId tensor, const PlanOptions& options)
      : dtype_(checkpoint.catalog.spec(tensor).dtype), stream_(checkpoint, tensor, options) {}

  /// Elements that are there to be looked at; 0 at the end.
  Result<uint64_t> available() {
    if (used_ < held_) return held_ - used_;
    if (slab_.empty()) {
      SHARDWRIGHT_ASSIGN(slab_, stream_.next());
    }
    const DTypeRow& row = dtype_row(dtype_);
    held_ = std::min<uint64_t>(slab_.size() / row.block_bytes * row.block_elems, kCompareElements);
    used_ = 0;
    raw_ = slab_.first(bytes_of_elements(dtype_, held_).value_or(0));
    slab_ = slab_.subspan(raw_.size());
    SHARDWRIGHT_TRY(to_doubles());
    return held_;
  }
  /// The next `count` of them, and their bytes (of whole blocks, when as many were always taken on both sides).
  std::pair<std::span<const double>, View> take(uint64_t count) {
    size_t each = dtype_row(dtype_).kind == Kind::kComplex ? 2 : 1;
    auto numbers = std::span<const double>(doubles_).subspan(used_ * each, count * each);
    uint64_t first = bytes_of_elements(dtype_, used_).value_or(0);
    View bytes = raw_.subspan(first, bytes_of_elements(dtype_, used_ + count).value_or(raw_.size()) - first);
    used_ += count;
    return {numbers, bytes};
  }

 private:
  Status to_doubles() {
    bool complex = dtype_row(dtype_).kind == Kind::kComplex;
    doubles_.resize(held_ * (complex ? 2 : 1));
    if (dtype_ != DType::kF64 && can_convert(dtype_, DType::kF64))
      return convert(dtype_, raw_, DType::kF64, std::as_writable_bytes(std::span(doubles_)));
    for (uint64_t i = 0; i < held_; ++i) {
      if (complex) doubles_[2 * i + 1] = element_value(dtype_, raw_, i, 1);
      doubles_[complex ? 2 * i : i] = element_value(dtype_, raw_, i);
    }
    return {};
  }

  DType dtype_;
  View slab_, raw_;
  std::vector<double> doubles_;
  uint64_t held_ = 0, used_ = 0;
  TensorStream stream_;
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

/// Reads both once, side by side, each with half of the memory.
Result<Comparison> compare_values(const Checkpoint& a, TensorId in_a, const Checkpoint& b, TensorId in_b,
                                  const DiffRequest& request, const JobOptions& options) {
  Comparison out;
  auto spec = a.catalog.spec(in_a);
  PlanOptions half = options.plan;
  half.memory_bytes = std::max<uint64_t>(half.memory_bytes / 2, MiB);
  half.threads = half.threads == 0 ? 1 : half.threads;
  Values left(a, in_a, half), right(b, in_b, half);
  for (uint64_t done = 0; done < spec.elements();) {
    SHARDWRIGHT_ASSIGN(uint64_t in_left, left.available());
    SHARDWRIGHT_ASSIGN(uint64_t in_right, right.available());
    uint64_t count = std::min(in_left, in_right);
    if (count == 0) return fail(Code::kInternal, "a tensor ended early").at_tensor(std::string(spec.name));
    auto [x, x_bytes] = left.take(count);
    auto [y, y_bytes] = right.take(count);
    compare_slab(x, y, request.exact() && !std::ranges::equal(x_bytes, y_bytes), request, out);
    done += count;
    if (options.progress && !options.progress("compare", done, spec.elements()))
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
