/// shardwright diff: what differs between two checkpoints of any formats.
#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "cli/json_output.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "shardwright/base/error_table.h"

namespace shardwright::cli {
namespace {

Error bad_tolerance(const std::string& text) {
  return fail(Code::kInvalidArgument, "--tolerance cannot be '" + text + "'")
      .with_hint("like 1e-3 (relative) or rel=1e-3,abs=1e-6");
}

/// "1e-3", "rel=1e-3", "abs=1e-6", "rel=1e-3,abs=1e-6".
Status read_tolerance(const std::string& text, DiffRequest& request) {
  std::string_view rest = text;
  while (!rest.empty()) {
    size_t comma = std::min(rest.find(','), rest.size());
    std::string_view part = rest.substr(0, comma);
    double& into = part.starts_with("abs=") ? request.absolute : request.relative;
    if (part.starts_with("abs=") || part.starts_with("rel=")) part.remove_prefix(4);
    auto [end, problem] = std::from_chars(part.data(), part.data() + part.size(), into);
    bool number = problem == std::errc() && end == part.data() + part.size() && std::isfinite(into) && into >= 0;
    if (!number || comma + 1 == rest.size()) return bad_tolerance(text);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return {};
}

std::string detail_of(const Difference& difference) {
  if (difference.change == "added") return "only in B";
  if (difference.change == "removed") return "only in A";
  if (difference.max_abs_diff) return fmt::format("largest difference {:.3g}", *difference.max_abs_diff);
  return difference.detail;
}

void print_differences(Output& output, const std::vector<Difference>& differences) {
  if (output.json()) {
    JsonArray array(output);
    for (const Difference& difference : differences) {
      array.add(Json{{"name", difference.name},
                     {"change", difference.change},
                     {"max_abs_diff", difference.max_abs_diff ? json_number(*difference.max_abs_diff) : Json()}});
    }
    return;
  }
  if (output.quiet()) {
    bool raw = output.width() == 0;
    for (const Difference& difference : differences) output.line(raw ? difference.name : printable(difference.name));
    return;
  }
  if (differences.empty()) {
    output.line(output.styled("the same", Style::kGreen));
    return;
  }
  const std::vector<Column> columns = {{"change"}, {"name", false, true}, {"how", false, true}};
  print_table(output, columns, differences.size(), [&](size_t row, std::vector<std::string>& cells) {
    cells = {differences[row].change, differences[row].name, detail_of(differences[row])};
  });
  output.line(output.styled(counted(differences.size(), "difference"), Style::kDim));
}

}  // namespace

Result<int> run_diff(Invocation& invocation) {
  DiffRequest request;
  request.a = invocation.arguments.text("A");
  request.b = invocation.arguments.text("B");
  request.names_only = invocation.arguments.has("names-only");
  SHARDWRIGHT_TRY(read_tolerance(invocation.arguments.text("tolerance"), request));
  Result<std::vector<Difference>> compared = [&] {
    Progress progress(invocation.output, false);
    return diff_checkpoints(request, progress.attach(invocation.job));
  }();
  if (!compared.ok()) return std::move(compared.error());
  print_differences(invocation.output, *compared);
  return compared->empty() ? kExitOk : kExitNo;
}

}  // namespace shardwright::cli
