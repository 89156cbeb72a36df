/// shardwright reindex: a sharded checkpoint's index from its shards.
#include <fmt/format.h>

#include "cli/json_output.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "cli/verbs.h"

namespace shardwright::cli {
namespace {

void print_changes(Output& output, const ReindexSummary& summary) {
  std::vector<std::pair<std::string_view, const std::string*>> rows;
  for (const std::string& name : summary.added) rows.emplace_back("added", &name);
  for (const std::string& name : summary.removed) rows.emplace_back("removed", &name);
  for (const std::string& name : summary.moved) rows.emplace_back("moved", &name);
  const std::vector<Column> columns = {{""}, {"", false, true}};
  print_table(output, columns, rows.size(), [&](size_t row, std::vector<std::string>& cells) {
    cells = {std::string(rows[row].first), *rows[row].second};
  });
}

}  // namespace

Result<int> run_reindex(Invocation& invocation) {
  Output& output = invocation.output;
  bool dry_run = invocation.arguments.has("dry-run");
  Result<ReindexSummary> done = [&] {
    Progress progress(output, false);
    return reindex_checkpoint(invocation.arguments.text("DIRECTORY"), dry_run, progress.attach(invocation.job));
  }();
  if (!done.ok()) return std::move(done.error());
  if (output.json()) {
    json_line(output, Json{{"type", dry_run ? "plan" : "summary"},
                           {"index", done->index},
                           {"tensors", done->tensors},
                           {"shards", done->shards},
                           {"added", done->added},
                           {"removed", done->removed},
                           {"moved", done->moved}});
    return 0;
  }
  if (output.quiet()) return 0;
  print_changes(output, *done);
  output.line(fmt::format("{} {}: {} in {}", dry_run ? "Would write" : "Wrote", done->index,
                          counted(done->tensors, "tensor"), counted(done->shards, "shard")));
  return 0;
}

}  // namespace shardwright::cli
