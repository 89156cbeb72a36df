#include "cli/elements.h"

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "shardwright/engine/jobs.h"
#include "shardwright/tensor/convert.h"

namespace shardwright::cli {
namespace {

using Indices = std::vector<int64_t>;

/// Neighbours in the fastest dimension that lie further apart are read separately; in the others, those that are no neighbours.
constexpr int64_t kReadThrough = 64;
/// A tensor of sub-byte elements whose rows do not start at bytes is read whole, up to this size.
constexpr uint64_t kWholeBytes = 64 * MiB;

/// A stretch [begin, end) of a list of indices that is read in one box.
struct Run {
  size_t begin, end;
};

std::vector<Run> runs_of(const Indices& wanted, int64_t reach) {
  std::vector<Run> runs;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (i > 0 && std::abs(wanted[i] - wanted[i - 1]) <= reach)
      runs.back().end = i + 1;
    else
      runs.push_back({i, i + 1});
  }
  return runs;
}

/// Calls visit(at) for every at[d] in [0, sizes[d]), in C order. No size is zero.
Status for_each_position(const std::vector<size_t>& sizes,
                         const std::function<Status(const std::vector<size_t>&)>& visit) {
  std::vector<size_t> at(sizes.size());
  while (true) {
    SHARDWRIGHT_TRY(visit(at));
    size_t d = sizes.size();
    while (d > 0 && ++at[d - 1] == sizes[d - 1]) at[--d] = 0;
    if (d == 0) return {};
  }
}

Element element_at(DType dtype, View data, uint64_t index) {
  const DTypeRow& row = dtype_row(dtype);
  Element element;
  if (row.kind == Kind::kFloat || row.kind == Kind::kComplex) {
    element.real = element_value(dtype, data, index);
    if (row.kind == Kind::kComplex) element.imaginary = element_value(dtype, data, index, 1);
  } else if (row.block_bytes == 8) {
    element.integer = load_le<uint64_t>(data.subspan(index * 8, 8));
  } else {
    element.integer = static_cast<uint64_t>(static_cast<int64_t>(element_value(dtype, data, index)));
  }
  return element;
}

/// The smallest box around the wanted indices that starts and ends at bytes.
Box readable_box(const Catalog::Spec& spec, const std::vector<Indices>& indices, const std::vector<Run>& runs) {
  Box box;
  for (size_t d = 0; d < indices.size(); ++d) {
    auto begin = indices[d].begin();
    auto [low, high] = std::minmax_element(begin + static_cast<std::ptrdiff_t>(runs[d].begin),
                                           begin + static_cast<std::ptrdiff_t>(runs[d].end));
    box.start.push_back(*low);
    box.extent.push_back(*high - *low + 1);
  }
  int64_t block = dtype_row(spec.dtype).block_elems;
  if (block == 1) return box;
  if (spec.shape.empty() || spec.shape.back() % block != 0) return Box::whole(spec.shape);
  int64_t end = static_cast<int64_t>(
      round_up(static_cast<uint64_t>(box.start.back() + box.extent.back()), static_cast<uint64_t>(block)));
  box.start.back() -= box.start.back() % block;
  box.extent.back() = end - box.start.back();
  return box;
}

/// One box; its wanted elements go to their places in `out`, whose strides are `places`.
Status read_run(const TensorSource& source, const std::vector<Indices>& indices, const std::vector<Run>& runs,
                const std::vector<int64_t>& places, std::vector<Element>& out) {
  Catalog::Spec spec = source.spec();
  Box box = readable_box(spec, indices, runs);
  std::optional<uint64_t> bytes = bytes_of_elements(spec.dtype, box.elements());
  if (!bytes || (dtype_row(spec.dtype).block_elems > 1 && *bytes > kWholeBytes)) {
    return fail(Code::kUnsupported, "rows of this tensor do not start at bytes, and it is too large to be read whole")
        .at_tensor(std::string(spec.name));
  }
  Bytes data(*bytes);
  SHARDWRIGHT_TRY(read_box(source.checkpoint, source.tensor, box, data, source.plan));
  std::vector<int64_t> strides = c_strides(box.extent);
  std::vector<size_t> sizes;
  for (const Run& run : runs) sizes.push_back(run.end - run.begin);
  return for_each_position(sizes, [&](const std::vector<size_t>& at) -> Status {
    int64_t from = 0, to = 0;
    for (size_t d = 0; d < at.size(); ++d) {
      size_t i = runs[d].begin + at[d];
      from += (indices[d][i] - box.start[d]) * strides[d];
      to += static_cast<int64_t>(i) * places[d];
    }
    out[static_cast<size_t>(to)] = element_at(spec.dtype, data, static_cast<uint64_t>(from));
    return {};
  });
}

}  // namespace

Result<std::vector<Element>> read_elements(const TensorSource& source, const std::vector<Indices>& indices) {
  std::vector<std::vector<Run>> runs;
  std::vector<size_t> run_counts;
  std::vector<int64_t> counts;
  size_t total = 1;
  for (size_t d = 0; d < indices.size(); ++d) {
    runs.push_back(runs_of(indices[d], d + 1 == indices.size() ? kReadThrough : 1));
    run_counts.push_back(runs.back().size());
    counts.push_back(static_cast<int64_t>(indices[d].size()));
    total *= indices[d].size();
  }
  std::vector<Element> out(total);
  if (total == 0) return out;
  std::vector<int64_t> places = c_strides(counts);
  std::vector<Run> chosen(indices.size());
  SHARDWRIGHT_TRY(for_each_position(run_counts, [&](const std::vector<size_t>& at) {
    for (size_t d = 0; d < at.size(); ++d) chosen[d] = runs[d][at[d]];
    return read_run(source, indices, chosen, places, out);
  }));
  return out;
}

}  // namespace shardwright::cli
