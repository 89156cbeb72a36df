// Every check of a Comm, random relayouts, and saves of a manager, under mpirun: prints what is wrong, and fails for it.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <span>

#include "shardwright/comm/comm_suite.h"
#include "shardwright/comm/mpi_comm.h"
#include "shardwright/engine/jobs.h"
#include "shardwright/engine/relayout_check_for_test.h"
#include "shardwright/manager/manager.h"

namespace shardwright {
namespace {

constexpr int64_t kRows = 4, kColumns = 64;  // of each rank

/// "w", of which this rank has its rows: element i of the whole is i.
struct Rows {
  explicit Rows(const Comm& comm) : rank(comm.rank()), ranks(comm.size()), values(kRows * kColumns) {
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(rank * kRows * kColumns) + static_cast<float>(i);
  }
  Result<Catalog> catalog() const {
    CatalogBuilder builder;
    SHARDWRIGHT_TRY(builder.add_tensor("w", DType::kF32, std::vector<int64_t>{kRows * ranks, kColumns}));
    const Place place{Place::kMemory, -1, 0, reinterpret_cast<uint64_t>(values.data()), values.size() * sizeof(float)};
    SHARDWRIGHT_TRY(
        builder.add_piece({Box{{kRows * rank, 0}, {kRows, kColumns}}, place, builder.add_encoding({DType::kF32}), {}}));
    return builder.build(/*partial=*/true);
  }
  int64_t rank, ranks;
  std::vector<float> values;
};

/// What is wrong with "w" in a checkpoint.
Status check_values(const std::string& path, int64_t ranks) {
  SHARDWRIGHT_ASSIGN(auto opened, open_checkpoint(path));
  std::vector<float> all(static_cast<size_t>(kRows * ranks * kColumns));
  const Box whole = Box::whole(std::vector<int64_t>{kRows * ranks, kColumns});
  SHARDWRIGHT_TRY(read_box(opened, *opened.catalog.find("w"), whole, std::as_writable_bytes(std::span(all))));
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i] != static_cast<float>(i)) return fail(Code::kInternal, fmt::format("element {} is {}", i, all[i]));
  return {};
}

/// Saves it, and reads it on rank 0.
Status check_save(Comm& comm, const std::string& target) {
  const Rows rows(comm);
  CopyRequest request;
  request.target = target;
  SHARDWRIGHT_ASSIGN(auto tensors, rows.catalog());
  SHARDWRIGHT_TRY(save_tensors(tensors, {}, request, {}, comm));
  return comm.rank() == 0 ? check_values(target, comm.size()) : Status();
}

/// Steps saved in the background, of which two are kept; what one rank cannot do fails on all, and they go on.
Status check_manager(Comm& comm, const std::string& root) {
  const Rows rows(comm);
  SHARDWRIGHT_ASSIGN(auto channel, comm.clone());
  SHARDWRIGHT_ASSIGN(auto manager, CheckpointManager::open(root, {.retention = {.last = 2}}, std::move(channel)));
  for (uint64_t step : {1, 2, 3, 4, 5}) {
    CheckpointManager::Request request;
    request.content.step = step;
    SHARDWRIGHT_ASSIGN(request.content.tensors, rows.catalog());
    if (step == 4 && comm.rank() == 1) {
      manager->refuse(fail(Code::kInvalidArgument, "not this one"));
      continue;
    }
    SHARDWRIGHT_TRY(manager->save(std::move(request), {}));
    auto saved = manager->wait();
    if (step != 4) {
      SHARDWRIGHT_TRY(saved);
    } else if (saved.ok() || saved.error().message != "not this one") {
      return fail(Code::kInternal, "a save that a rank refused: " + (saved.ok() ? "saved" : saved.error().text()));
    }
  }
  if (uint64_t bytes = manager->last().own_bytes; bytes != rows.values.size() * sizeof(float))
    return fail(Code::kInternal, fmt::format("{} bytes written by one rank", bytes));
  SHARDWRIGHT_TRY(manager->close());
  SHARDWRIGHT_TRY(agree(comm, {}, testing_support::comm_checks::soon()));
  SHARDWRIGHT_ASSIGN(auto names, list_step_names(root, StepNames{}));
  if (names.size() != 2 || names[0].first != 3 || names[1].first != 5)
    return fail(Code::kInternal, fmt::format("{} steps are there", names.size()));
  SHARDWRIGHT_ASSIGN(auto latest, manager->latest());
  SHARDWRIGHT_ASSIGN(auto state, tensors_of_step(root + "/" + latest->name));
  return check_values(state, comm.size());
}

}  // namespace
}  // namespace shardwright

int main(int argc, char** argv) {
  using namespace shardwright;
  auto comm = mpi_comm(deadline_in(std::chrono::seconds(60)));
  if (!comm.ok()) return std::fprintf(stderr, "%s\n", comm.error().text().c_str()), 1;
  int failures = 0;
  auto report = [&](const std::string& name, const std::string& wrong) {
    if (wrong.empty()) return;
    std::fprintf(stderr, "rank %d: %s: %s\n", (*comm)->rank(), name.c_str(), wrong.c_str());
    ++failures;
  };
  for (const auto& check : testing_support::comm_suite()) report(check.name, check.run(**comm));
  // Drawn by rank 0, the same for all; given, to see a failure again.
  uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : std::random_device()();
  Bytes mine;
  append_le(mine, seed);
  auto seeds = (*comm)->all_gather(mine, testing_support::comm_checks::soon());
  if (!seeds.ok()) return std::fprintf(stderr, "%s\n", seeds.error().text().c_str()), 1;
  report("relayout", testing_support::check_relayouts(**comm, load_le<uint64_t>((*seeds)[0]), 40, /*large=*/true));
  std::string folder =
      (std::filesystem::temp_directory_path() / fmt::format("shardwright-mpi-{:x}", load_le<uint64_t>((*seeds)[0])))
          .string();
  auto text_of_status = [](const Status& status) { return status.ok() ? "" : status.error().text(); };
  for (const char* name : {"w.safetensors", "w.weights.h5"}) {
    if ((*comm)->rank() == 0) std::filesystem::create_directories(folder);
    report(name, text_of_status(check_save(**comm, folder + "/" + name)));
  }
  report("manager", text_of_status(check_manager(**comm, folder + "/run")));
  (void)agree(**comm, {}, testing_support::comm_checks::soon());  // all have looked
  if ((*comm)->rank() == 0) std::filesystem::remove_all(folder);
  comm->reset();
  MPI_Finalize();  // a check broke a channel on purpose: the library would leave this to us
  return failures == 0 ? 0 : 1;
}
