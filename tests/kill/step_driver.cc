// The program that is killed: writes and removes steps of a run, as a manager does.
//   step_driver save ROOT STEP VALUE [replace|branch|incremental]    a step whose "w" has this value everywhere; "frozen" is ever the same
//   step_driver forget ROOT N                             keeps the last N
// Exit status 1 with one line on standard error when it fails.
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "shardwright/manager/write_step.h"

namespace shardwright {
namespace {

Status add(CatalogBuilder& builder, const char* name, const std::vector<float>& values) {
  int64_t shape[] = {static_cast<int64_t>(values.size())};
  SHARDWRIGHT_TRY(builder.add_tensor(name, DType::kF32, shape));
  Place place{Place::kMemory, -1, 0, reinterpret_cast<uint64_t>(values.data()), values.size() * sizeof(float)};
  return builder.add_flat(place, DType::kF32);
}

Status save(const std::string& root, uint64_t step, float value, const StepConflict& conflict, bool incremental) {
  std::vector<float> values(5000, value), frozen(5000, 0.5f);
  CatalogBuilder builder;
  SHARDWRIGHT_TRY(add(builder, "w", values));
  StepContent content;
  content.step = step;
  if (incremental) SHARDWRIGHT_TRY(add(builder, "frozen", frozen));
  content.incremental = incremental;
  if (incremental) content.max_shard_bytes = 1000;  // each has a file of its own
  SHARDWRIGHT_ASSIGN(content.tensors, builder.build());
  content.files = {{"metrics/metrics", "{\"loss\": 1}"}};
  auto written = write_step(root, {}, content, conflict, {});
  return written.ok() ? Status() : Status(written.error());
}

Status run(int argc, char** argv) {
  std::string_view verb = argc > 2 ? argv[1] : "", how = argc > 5 ? argv[5] : "";
  if (verb == "save" && argc >= 5)
    return save(argv[2], std::strtoull(argv[3], nullptr, 10), std::strtof(argv[4], nullptr),
                {how == "replace", how == "branch"}, how == "incremental");
  if (verb == "forget" && argc == 4) {
    auto done = forget_steps(argv[2], StepNames{}, {.last = std::strtoull(argv[3], nullptr, 10)});
    return done.ok() ? Status() : Status(done.error());
  }
  return fail(Code::kInvalidArgument, "usage: see the source");
}

}  // namespace
}  // namespace shardwright

int main(int argc, char** argv) {
  auto status = shardwright::run(argc, argv);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.error().text().c_str());
  return status.ok() ? 0 : 1;
}
