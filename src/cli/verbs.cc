#include "cli/verbs.h"

#include "cli/json_output.h"
#include "cli/terminal.h"
#include "shardwright/base/error_table.h"
#include "shardwright/base/text.h"

namespace shardwright::cli {

Result<Checkpoint> open_argument(Invocation& invocation, std::string_view argument) {
  Result<Checkpoint> opened = open_checkpoint(invocation.arguments.text(argument), invocation.job.open);
  if (opened.ok()) {
    for (const std::string& note : opened->notes) invocation.output.note(note);
  }
  return opened;
}

Where where_is(const Catalog& catalog, TensorId tensor) {
  std::span<const ObjectInfo> objects = catalog.objects();
  Where where;
  if (std::optional<Catalog::Flat> flat = catalog.flat(tensor); flat && flat->place.site == Place::kExtent) {
    return {objects[flat->place.object].key, flat->place.offset};
  }
  for (const Piece& piece : catalog.pieces(tensor)) {
    if (piece.place.site != Place::kExtent) continue;
    std::string_view key = objects[piece.place.object].key;
    if (!where.shard.empty() && where.shard != key) return {};
    where.shard = key;
  }
  if (where.shard.empty() && objects.size() == 1) where.shard = objects[0].key;
  return where;
}

std::string counted(uint64_t count, std::string_view noun) {
  return format_count(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

void print_finding(Output& output, const Error& finding) {
  std::string_view code = error_row(finding.code).name;
  if (output.json()) {
    json_line(output, Json{{"type", "finding"},
                           {"code", code},
                           {"path", json_or_null(finding.path)},
                           {"tensor", json_or_null(finding.tensor)},
                           {"offset", finding.offset == kNoOffset ? Json() : Json(finding.offset)},
                           {"found", json_or_null(finding.found)},
                           {"expected", json_or_null(finding.expected)},
                           {"message", finding.message}});
  } else {
    output.line(output.styled(code, Style::kRed) + "  " + printable(finding.text()));
    if (!finding.hint.empty()) output.line("  " + printable(finding.hint));
  }
  output.flush();
}

}  // namespace shardwright::cli
