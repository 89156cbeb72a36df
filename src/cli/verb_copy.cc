/// shardwright copy, restore: one checkpoint, or a step of a run, into another format, shard size or dtype.
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>

#include "cli/json_output.h"
#include "cli/layout_arguments.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "cli/user_file.h"
#include "cli/verbs.h"
#include "shardwright/base/text.h"
#include "shardwright/manager/steps.h"

namespace shardwright::cli {
namespace {

/// The file's rules in their order.
Result<std::vector<std::pair<std::string, std::string>>> read_rename_file(const std::string& path) {
  Result<Json> rules = read_json_file(path);
  if (!rules.ok()) return std::move(rules.error()).within("in the file of --rename");
  std::vector<std::pair<std::string, std::string>> out;
  if (rules->is_object()) {
    for (auto& [pattern, replacement] : rules->items()) {
      if (replacement.is_string()) out.emplace_back(pattern, replacement.get<std::string>());
    }
  }
  if (!rules->is_object() || out.size() != rules->size()) {
    return fail(Code::kInvalidArgument, "a rename file is one JSON object of strings")
        .at_path(path)
        .with_expected(R"({"^model\\.": ""})");
  }
  return out;
}

/// The part that --rank asks for; without it --layout is what the checkpoint is to note.
Status read_part(const Arguments& arguments, CopyRequest& request) {
  std::string rank = arguments.text("rank");
  if (rank.empty()) {
    if (!arguments.has("mesh") && !arguments.has("layout")) return {};
    if (request.format != kOrbax.name)
      return fail(Code::kInvalidArgument, "--mesh and --layout need --rank: which device's part to write")
          .with_hint("--to orbax notes the layout of all");
    SHARDWRIGHT_ASSIGN(request.layout, read_layout(arguments));
    return {};
  }
  SHARDWRIGHT_ASSIGN(LayoutMap layout, read_layout(arguments));
  DevicePart part{std::move(layout)};
  auto [end, problem] = std::from_chars(rank.data(), rank.data() + rank.size(), part.position);
  if (problem != std::errc() || end != rank.data() + rank.size())
    return fail(Code::kInvalidArgument, "--rank cannot be '" + rank + "'")
        .with_hint("the device's place in the mesh: 0, 1, ...");
  request.part = std::move(part);
  return {};
}

/// KEY=VALUE, as often as given.
Result<std::vector<std::pair<std::string, std::string>>> read_settings(const Arguments& arguments) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const std::string& text : arguments.all("option")) {
    size_t equals = text.find('=');
    if (equals == text.npos || equals == 0)
      return fail(Code::kInvalidArgument, "--option is KEY=VALUE").with_found("'" + text + "'");
    out.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return out;
}

Result<CopyRequest> request_of(const Invocation& invocation, const std::string& source) {
  const Arguments& arguments = invocation.arguments;
  CopyRequest request;
  request.source = source;
  request.target = arguments.text("TARGET");
  request.format = arguments.text("to");
  if (!request.format.empty() && !find_format(request.format)) {
    std::vector<std::string> names;
    for (const Format* format : format_table()) names.emplace_back(format->name);
    std::vector<std::string> near = nearest_names(request.format, names, 1);
    return fail(Code::kInvalidArgument, "unknown format '" + request.format + "'")
        .with_hint(near.empty() ? "one of " + fmt::format("{}", fmt::join(names, ", "))
                                : "did you mean '" + near[0] + "'?");
  }
  if (std::string size = arguments.text("max-shard-size"); !size.empty()) {
    Result<uint64_t> bytes = parse_size(size);
    if (!bytes.ok()) return std::move(bytes.error()).within("in --max-shard-size");
    request.max_shard_bytes = *bytes;
  }
  if (std::string dtype = arguments.text("dtype"); !dtype.empty()) {
    Result<DType> parsed = parse_dtype(dtype);
    if (!parsed.ok()) return std::move(parsed.error()).within("in --dtype");
    request.select.dtype = *parsed;
  }
  if (std::string file = arguments.text("rename"); !file.empty()) {
    SHARDWRIGHT_ASSIGN(request.select.rename, read_rename_file(file));
  }
  request.select.include = arguments.all("include");
  request.select.exclude = arguments.all("exclude");
  SHARDWRIGHT_TRY(read_part(arguments, request));
  SHARDWRIGHT_ASSIGN(request.settings, read_settings(arguments));
  // By convention of reproducible builds; without it formats that note a time note none.
  if (const char* epoch = std::getenv("SOURCE_DATE_EPOCH")) {
    uint64_t seconds = 0;
    std::string_view text = epoch;
    std::from_chars(text.data(), text.data() + text.size(), seconds);
    request.time_ns = checked_mul(seconds, 1'000'000'000).value_or(0);
  }
  request.strict = arguments.has("strict");
  request.overwrite = arguments.has("overwrite");
  request.dry_run = arguments.has("dry-run");
  request.manifest = arguments.has("manifest");
  return request;
}

Json summary_json(const CopySummary& summary, bool plan) {
  Json out = {{"type", plan ? "plan" : "summary"},
              {"source", summary.source},
              {"target", summary.target},
              {"format", summary.format},
              {"tensors", summary.tensors},
              {"shards", summary.shards},
              {"bytes_read", summary.bytes_read},
              {"bytes_written", summary.bytes_written},
              {"reread", summary.reread},
              {"seconds", summary.seconds},
              {"peak_memory_bytes", summary.peak_memory_bytes},
              {"warnings", summary.warnings}};
  if (plan) {
    Json files = Json::array();
    for (const auto& [file, size] : summary.objects)
      files.push_back({{"file", file}, {"size", size == kUnknown ? Json() : Json(size)}});
    out["files"] = std::move(files);
  }
  return out;
}

void print_files(Output& output, const CopySummary& summary) {
  const std::vector<Column> columns = {{"file", false, true}, {"size", true}};
  print_table(output, columns, summary.objects.size(), [&](size_t row, std::vector<std::string>& cells) {
    const auto& [file, size] = summary.objects[row];
    cells = {file, size == kUnknown ? "?" : format_bytes(size)};
  });
}

std::string reread_text(double factor) {
  return factor > 1.005 ? fmt::format(" ({:.2f} times what is needed: encoded chunks are read whole, or again)", factor)
                        : "";
}

void print_plan(Output& output, const CopySummary& summary) {
  print_files(output, summary);
  output.line(fmt::format("Would copy {} to {} as {}: read {}{}, write {} in {}. Nothing was written.",
                          counted(summary.tensors, "tensor"), summary.target, summary.format,
                          format_bytes(summary.bytes_read), reread_text(summary.reread),
                          format_bytes(summary.bytes_written), counted(summary.objects.size(), "file")));
}

void print_summary(Output& output, const CopySummary& summary) {
  if (output.verbose()) print_files(output, summary);
  double speed = summary.seconds > 0 ? static_cast<double>(summary.bytes_written) / summary.seconds : 0;
  output.line(fmt::format("Copied {} to {} as {} in {}", counted(summary.tensors, "tensor"), summary.target,
                          summary.format, counted(summary.shards, "shard")));
  output.line(output.styled(
      fmt::format("read {}{}, wrote {} in {} ({}/s), peak memory {}", format_bytes(summary.bytes_read),
                  reread_text(summary.reread), format_bytes(summary.bytes_written), format_seconds(summary.seconds),
                  format_bytes(static_cast<uint64_t>(speed)), format_bytes(summary.peak_memory_bytes)),
      Style::kDim));
}

Result<int> copy_from(Invocation& invocation, const std::string& source) {
  Output& output = invocation.output;
  SHARDWRIGHT_ASSIGN(CopyRequest request, request_of(invocation, source));
  Result<CopySummary> copied = [&] {
    Progress progress(output, true);
    return copy_checkpoint(request, progress.attach(invocation.job));
  }();
  if (!copied.ok()) return std::move(copied.error());
  if (output.json()) {
    json_line(output, summary_json(*copied, request.dry_run));
    return 0;
  }
  for (const std::string& warning : copied->warnings) output.warning(warning);
  if (request.dry_run)
    print_plan(output, *copied);
  else if (!output.quiet())
    print_summary(output, *copied);
  return 0;
}

}  // namespace

Result<int> run_copy(Invocation& invocation) { return copy_from(invocation, invocation.arguments.text("SOURCE")); }

Result<int> run_restore(Invocation& invocation) {
  SHARDWRIGHT_ASSIGN(auto found, find_step(invocation.arguments.text("STEP")));
  SHARDWRIGHT_ASSIGN(auto source, tensors_of_step(found.root + "/" + found.step.name));
  return copy_from(invocation, source);
}

}  // namespace shardwright::cli
