/// shardwright formats: the rows of the format table.
#include "cli/json_output.h"
#include "cli/table.h"
#include "cli/verbs.h"

namespace shardwright::cli {

Result<int> run_formats(Invocation& invocation) {
  Output& output = invocation.output;
  std::span<const Format* const> formats = format_table();
  if (output.json()) {
    JsonArray array(output);
    for (const Format* format : formats) {
      array.add(Json{{"name", format->name},
                     {"description", format->description},
                     {"files", format->extensions},
                     {"read", format->open != nullptr},
                     {"write", format->can.write},
                     {"sharded", format->can.sharded},
                     {"ties", format->can.ties},
                     {"metadata", format->can.metadata},
                     {"subbyte", format->can.subbyte}});
    }
    return 0;
  }
  if (output.quiet()) {
    for (const Format* format : formats) output.line(format->name);
    return 0;
  }
  const std::vector<Column> abilities = {{"format"}, {"read"},     {"write"},   {"sharded"},
                                         {"ties"},   {"metadata"}, {"sub-byte"}};
  print_table(output, abilities, formats.size(), [&](size_t row, std::vector<std::string>& cells) {
    const Format& format = *formats[row];
    auto mark = [](bool yes) { return std::string(yes ? "yes" : "-"); };
    cells = {std::string(format.name), mark(format.open != nullptr), mark(format.can.write),  mark(format.can.sharded),
             mark(format.can.ties),    mark(format.can.metadata),    mark(format.can.subbyte)};
  });
  output.line("");
  const std::vector<Column> files = {{"format"}, {"files", false, true}};
  print_table(output, files, formats.size(), [&](size_t row, std::vector<std::string>& cells) {
    cells = {std::string(formats[row]->name), std::string(formats[row]->extensions)};
  });
  return 0;
}

}  // namespace shardwright::cli
