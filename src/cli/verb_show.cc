/// shardwright show: values of one tensor. Reads only the elements it prints.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "cli/elements.h"
#include "cli/json_output.h"
#include "cli/progress.h"
#include "cli/slice.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "shardwright/base/text.h"

namespace shardwright::cli {
namespace {

using Indices = std::vector<int64_t>;

/// Elements that are held at once when all are printed.
constexpr uint64_t kBatch = 1 << 16;
/// The short form has six values a dimension, each to the power of their number.
constexpr uint64_t kMostShown = 1 << 20;

/// The indices of one dimension that are printed.
Indices shown_indices(const Range& range, bool short_form) {
  int64_t shown = shown_of(range.count, short_form);
  Indices out;
  for (int64_t i = 0; i < shown; ++i)
    out.push_back(range.at(i < kEdge || shown == range.count ? i : range.count - shown + i));
  return out;
}

std::vector<int64_t> result_shape(const std::vector<Range>& ranges) {
  std::vector<int64_t> shape;
  for (const Range& range : ranges) {
    if (!range.dropped) shape.push_back(range.count);
  }
  return shape;
}

Status print_short(Output& output, const TensorSource& source, const std::vector<Range>& ranges) {
  std::vector<int64_t> shape = result_shape(ranges);
  uint64_t count = element_count(shape).value_or(kUnknown);
  bool short_form = count == 0 || count > kShortFormOver;  // nothing may have any extent in its other dimensions
  std::vector<Indices> indices;
  uint64_t shown = 1;
  for (const Range& range : ranges) {
    indices.push_back(shown_indices(range, short_form));
    shown = checked_mul(shown, indices.back().size()).value_or(kUnknown);
  }
  if (shown > kMostShown)
    return fail(Code::kInvalidArgument, "too many dimensions to print, even in short form")
        .at_tensor(std::string(source.spec().name))
        .with_found(fmt::format("{} values", shown))
        .with_hint("choose a part of it with --slice");
  SHARDWRIGHT_ASSIGN(std::vector<Element> elements, read_elements(source, indices));
  Catalog::Spec spec = source.spec();
  size_t width = output.width() == 0 ? 75 : std::min<size_t>(output.width() - 1, 75);
  std::string text = array_text(spec.dtype, shape, short_form, elements, width);
  if (!output.quiet()) {
    std::string title = fmt::format("{} {}", dtype_row(spec.dtype).name, shape_text(shape));
    output.line(output.styled(title, Style::kDim));
  }
  output.line(text);
  return {};
}

/// Where lists open and close: element i opens one for every block size that divides i, and closes one for each that divides i + 1.
std::vector<uint64_t> list_sizes(const std::vector<int64_t>& shape) {
  std::vector<uint64_t> sizes(shape.size());
  uint64_t product = 1;
  for (size_t d = shape.size(); d-- > 0;) sizes[d] = product *= static_cast<uint64_t>(shape[d]);
  return sizes;
}

/// Nested lists of all elements, read in batches. An empty array is [], whatever its shape.
Status print_values(Output& output, const TensorSource& source, const std::vector<Range>& ranges) {
  std::vector<int64_t> counts;
  for (const Range& range : ranges) counts.push_back(range.count);
  uint64_t total = element_count(counts).value_or(0), next = 0;
  if (total == 0) output.write("[]");
  std::vector<uint64_t> lists = list_sizes(result_shape(ranges));
  auto print = [&](const Element& element) {
    std::string& out = output.buffer();
    if (next > 0) out += ", ";
    for (uint64_t size : lists) out.append(next % size == 0, '[');
    out += element_json(source.spec().dtype, element);
    ++next;
    for (uint64_t size : lists) out.append(next % size == 0, ']');
    output.flush_if_full();
  };
  for (uint64_t first = 0; first < total && !output.broken(); first += kBatch) {
    for (const Box& box : boxes_of_range(Box::whole(counts), first, std::min(kBatch, total - first))) {
      std::vector<Indices> indices(ranges.size());
      for (size_t d = 0; d < ranges.size(); ++d) {
        for (int64_t i = 0; i < box.extent[d]; ++i) indices[d].push_back(ranges[d].at(box.start[d] + i));
      }
      SHARDWRIGHT_ASSIGN(std::vector<Element> elements, read_elements(source, indices));
      for (const Element& element : elements) print(element);
    }
  }
  return {};
}

Status print_json(Output& output, const TensorSource& source, const std::vector<Range>& ranges) {
  Catalog::Spec spec = source.spec();
  output.write(fmt::format(R"({{"name": {}, "dtype": "{}", "shape": [{}], "values": )", json_quote(spec.name),
                           dtype_row(spec.dtype).name, fmt::join(result_shape(ranges), ", ")));
  SHARDWRIGHT_TRY(print_values(output, source, ranges));
  output.line("}");
  return {};
}

Status print_statistics(Invocation& invocation, const TensorSource& source) {
  Output& output = invocation.output;
  Result<Statistics> statistics = [&] {
    Progress progress(output, false);
    return tensor_statistics(source.checkpoint, source.tensor, progress.attach(invocation.job));
  }();
  if (!statistics.ok()) return std::move(statistics.error());
  Catalog::Spec spec = source.spec();
  bool any = statistics->elements > statistics->nan + statistics->infinite;
  if (output.json()) {
    auto number = [&](double value) { return any ? json_number(value) : Json(); };
    json_line(output, Json{{"name", spec.name},
                           {"dtype", dtype_row(spec.dtype).name},
                           {"shape", shape_json(spec.shape)},
                           {"elements", statistics->elements},
                           {"min", number(statistics->min)},
                           {"max", number(statistics->max)},
                           {"mean", number(statistics->mean)},
                           {"nan", statistics->nan},
                           {"infinite", statistics->infinite},
                           {"zero", statistics->zero}});
    return {};
  }
  auto number = [&](double value) { return any ? fmt::format("{:.6g}", value) : std::string("-"); };
  std::vector<std::vector<std::string>> rows = {
      {"tensor", fmt::format("{} {}", dtype_row(spec.dtype).name, shape_text(spec.shape))},
      {"elements", format_count(statistics->elements)},
      {"min", number(statistics->min)},
      {"max", number(statistics->max)},
      {"mean", number(statistics->mean)},
      {"nan", format_count(statistics->nan)},
      {"infinite", format_count(statistics->infinite)},
      {"zero", format_count(statistics->zero)}};
  const std::vector<Column> columns = {{"", false, false, Style::kBold}, {"", false, true}};
  print_table(output, columns, rows.size(), [&](size_t row, std::vector<std::string>& cells) { cells = rows[row]; });
  return {};
}

Result<TensorId> find_tensor(const Catalog& catalog, const std::string& name) {
  if (std::optional<TensorId> found = catalog.find(name)) return *found;
  std::vector<std::string> near = nearest_tensors(catalog, name, 3);
  return fail(Code::kNotFound, "the checkpoint has no such tensor")
      .at_tensor(name)
      .with_hint(near.empty() ? "'shardwright ls' lists the names"
                              : fmt::format("did you mean '{}'?", fmt::join(near, "' or '")));
}

}  // namespace

Result<int> run_show(Invocation& invocation) {
  SHARDWRIGHT_ASSIGN(Checkpoint checkpoint, open_argument(invocation, "PATH"));
  SHARDWRIGHT_ASSIGN(TensorId tensor, find_tensor(checkpoint.catalog, invocation.arguments.text("TENSOR")));
  TensorSource source{checkpoint, tensor, invocation.job.plan};
  if (invocation.arguments.has("stats")) {
    if (invocation.arguments.has("slice"))
      return fail(Code::kInvalidArgument, "--stats is of the whole tensor; it cannot go with --slice");
    SHARDWRIGHT_TRY(print_statistics(invocation, source));
    return 0;
  }
  SHARDWRIGHT_ASSIGN(std::vector<Range> ranges, parse_slice(invocation.arguments.text("slice"), source.spec().shape));
  if (invocation.output.json())
    SHARDWRIGHT_TRY(print_json(invocation.output, source, ranges));
  else
    SHARDWRIGHT_TRY(print_short(invocation.output, source, ranges));
  return 0;
}

}  // namespace shardwright::cli
