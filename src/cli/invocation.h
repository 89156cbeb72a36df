/// One run of the program: a verb, what was given to it, and where its answers go.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command_table.h"
#include "cli/output.h"
#include "shardwright/engine/jobs.h"

namespace shardwright::cli {

/// Values by the name of the option ("max-shard-size") or argument ("PATH"), already checked against the table.
/// Asking for a name that the table does not have aborts: a bug of ours.
class Arguments {
 public:
  /// An option given, a flag set, an argument present.
  bool has(std::string_view name) const { return !all(name).empty(); }
  /// The last value given; "" when there is none.
  std::string text(std::string_view name) const;
  const std::vector<std::string>& all(std::string_view name) const;
  void set(std::string_view name, std::vector<std::string> values);

 private:
  std::map<std::string, std::vector<std::string>, std::less<>> values_;
};

struct Invocation {
  const Command* command = nullptr;
  Arguments arguments;
  Output& output;
  /// --memory, --threads and --isolate; the verb adds progress.
  JobOptions job{};
};

}  // namespace shardwright::cli
