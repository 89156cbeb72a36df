/// shardwright info: one checkpoint in a few lines.
#include <fmt/format.h>

#include "cli/json_output.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "shardwright/base/text.h"

namespace shardwright::cli {
namespace {

/// A value that is a JSON object; empty when there is none.
Json object_of(const Catalog& catalog, std::string_view key) {
  const Value* value = catalog.value(key);
  if (!value || value->type != Value::kJson) return Json::object();
  Result<Json> parsed = parse_json(value->data);
  return parsed.ok() && parsed->is_object() ? *parsed : Json::object();
}

Json info_json(const Checkpoint& checkpoint) {
  const Catalog& catalog = checkpoint.catalog;
  Json dtypes = Json::object(), shards = Json::array(), ties = Json::object();
  for (const DTypeContent& row : dtype_contents(catalog)) {
    dtypes[std::string(dtype_row(row.dtype).name)] = {{"tensors", row.tensors}, {"nbytes", row.nbytes}};
  }
  std::vector<ShardContent> contents = shard_contents(catalog);
  for (size_t i = 0; i < contents.size(); ++i) {
    shards.push_back(
        {{"file", catalog.objects()[i].key}, {"tensors", contents[i].tensors}, {"nbytes", contents[i].nbytes}});
  }
  for (TensorId tensor = 0; tensor < catalog.size() && catalog.tie_count() > 0; ++tensor) {
    TensorId kept = catalog.same_as(tensor);
    // push_back, not operator[]: that one searches, and there may be many ties.
    if (kept != tensor) ties.push_back({std::string(catalog.spec(tensor).name), std::string(catalog.spec(kept).name)});
  }
  return Json{{"path", checkpoint.path},
              {"format", checkpoint.format->name},
              {"tensors", catalog.size()},
              {"parameters", parameter_count(catalog)},
              {"nbytes", catalog.total_bytes()},
              {"dtypes", std::move(dtypes)},
              {"shards", std::move(shards)},
              {"ties", std::move(ties)},
              {"metadata", object_of(catalog, "metadata")},
              {"opaque", object_of(catalog, "opaque")}};
}

using Rows = std::vector<std::vector<std::string>>;

/// The first rows of a long list, and how to see the others.
constexpr size_t kMostRows = 8;

void add_list(Rows& rows, std::string_view title, const std::vector<std::string>& lines, bool all,
              std::string_view more) {
  size_t shown = all || lines.size() <= kMostRows + 1 ? lines.size() : kMostRows;
  for (size_t i = 0; i < shown; ++i) rows.push_back({i == 0 ? std::string(title) : "", lines[i]});
  if (shown < lines.size()) rows.push_back({"", fmt::format("and {} more ({})", lines.size() - shown, more)});
}

std::vector<std::string> shard_lines(const Catalog& catalog) {
  std::vector<std::string> lines;
  std::vector<ShardContent> contents = shard_contents(catalog);
  for (size_t i = 0; i < contents.size(); ++i) {
    lines.push_back(fmt::format("{}: {}, {}", catalog.objects()[i].key, counted(contents[i].tensors, "tensor"),
                                format_bytes(contents[i].nbytes)));
  }
  return lines;
}

std::string short_count(uint64_t count) {
  constexpr std::pair<double, std::string_view> kUnits[] = {{1e12, "T"}, {1e9, "B"}, {1e6, "M"}};
  for (auto [unit, name] : kUnits) {
    if (static_cast<double>(count) >= unit) return fmt::format(" ({:.3g} {})", static_cast<double>(count) / unit, name);
  }
  return "";
}

Rows info_rows(const Checkpoint& checkpoint, bool all) {
  const Catalog& catalog = checkpoint.catalog;
  uint64_t parameters = parameter_count(catalog);
  Rows rows = {{"path", checkpoint.path},
               {"format", fmt::format("{}: {}", checkpoint.format->name, checkpoint.format->description)},
               {"tensors", format_count(catalog.size())},
               {"parameters", format_count(parameters) + short_count(parameters)},
               {"size", format_bytes(catalog.total_bytes())}};
  std::vector<std::string> lines;
  for (const DTypeContent& row : dtype_contents(catalog)) {
    lines.push_back(
        fmt::format("{}: {}, {}", dtype_row(row.dtype).name, counted(row.tensors, "tensor"), format_bytes(row.nbytes)));
  }
  add_list(rows, "dtypes", lines, true, "");
  add_list(rows, "files", shard_lines(catalog), all, "ls --shards");
  lines.clear();
  for (TensorId tensor = 0; tensor < catalog.size() && catalog.tie_count() > 0; ++tensor) {
    TensorId kept = catalog.same_as(tensor);
    if (kept != tensor) lines.push_back(fmt::format("{} = {}", catalog.spec(tensor).name, catalog.spec(kept).name));
  }
  add_list(rows, "ties", lines, all, "info -v");
  lines.clear();
  for (std::string_view key : {"metadata", "opaque"}) {
    lines.clear();
    Json object = object_of(catalog, key);
    for (auto entry = object.begin(); entry != object.end(); ++entry)
      lines.push_back(entry.key() + ": " + (entry->is_string() ? entry->get<std::string>() : json_text(*entry)));
    add_list(rows, key, lines, all, "info -v");
  }
  lines.clear();
  for (const Catalog::SideFile& file : catalog.side_files()) lines.push_back(file.name);
  add_list(rows, "also", lines, all, "info -v");
  return rows;
}

}  // namespace

Result<int> run_info(Invocation& invocation) {
  SHARDWRIGHT_ASSIGN(Checkpoint checkpoint, open_argument(invocation, "PATH"));
  Output& output = invocation.output;
  if (output.json()) {
    output.line(json_text(info_json(checkpoint), 2));
    return 0;
  }
  Rows rows = info_rows(checkpoint, output.verbose());
  const std::vector<Column> columns = {{"", false, false, Style::kBold}, {"", false, true}};
  print_table(output, columns, rows.size(), [&](size_t row, std::vector<std::string>& cells) { cells = rows[row]; });
  return 0;
}

}  // namespace shardwright::cli
