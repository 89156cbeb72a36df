/// shardwright hash: content hashes, the same whatever the format and sharding.
#include "cli/json_output.h"
#include "cli/progress.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

namespace shardwright::cli {

Result<int> run_hash(Invocation& invocation) {
  Output& output = invocation.output;
  Result<std::vector<TensorHash>> hashed = [&] {
    Progress progress(output, false);
    return hash_checkpoint(invocation.arguments.text("PATH"), invocation.arguments.has("write"),
                           progress.attach(invocation.job));
  }();
  if (!hashed.ok()) return std::move(hashed.error());
  if (output.json()) {
    JsonArray array(output);
    for (const TensorHash& row : *hashed) {
      array.add(Json{{"name", row.name},
                     {"dtype", dtype_row(row.dtype).name},
                     {"shape", shape_json(row.shape)},
                     {"hash", row.hash}});
    }
    return 0;
  }
  // As md5sum prints it, so that the usual tools compare and sort it.
  for (const TensorHash& row : *hashed) output.line(row.hash + "  " + printable(row.name));
  return 0;
}

}  // namespace shardwright::cli
