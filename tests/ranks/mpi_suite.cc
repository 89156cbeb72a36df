// Every check of a Comm, and random relayouts, under mpirun: prints what is wrong, and fails for it.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <span>

#include "shardwright/comm/comm_suite.h"
#include "shardwright/comm/mpi_comm.h"
#include "shardwright/engine/jobs.h"
#include "shardwright/engine/relayout_check_for_test.h"

namespace shardwright {
namespace {

/// Saves one tensor of which each rank has four rows, and reads it on rank 0; "" when all is well.
std::string check_save(Comm& comm, const std::string& target) {
  const int64_t ranks = comm.size(), columns = 64;
  std::vector<float> rows(4 * columns);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(comm.rank()) * 256 + static_cast<float>(i);
  CatalogBuilder builder;
  if (auto added = builder.add_tensor("w", DType::kF32, std::vector<int64_t>{4 * ranks, columns}); !added.ok())
    return added.error().text();
  const Place place{Place::kMemory, -1, 0, reinterpret_cast<uint64_t>(rows.data()), rows.size() * sizeof(float)};
  auto piece =
      builder.add_piece({Box{{4 * comm.rank(), 0}, {4, columns}}, place, builder.add_encoding({DType::kF32}), {}});
  if (!piece.ok()) return piece.error().text();
  CopyRequest request;
  request.target = target;
  auto summary = save_tensors(*builder.build(/*partial=*/true), {}, request, {}, comm);
  if (!summary.ok()) return summary.error().text();
  if (comm.rank() != 0) return "";
  auto opened = open_checkpoint(target);
  if (!opened.ok()) return opened.error().text();
  std::vector<float> all(static_cast<size_t>(4 * ranks * columns));
  const Box whole = Box::whole(std::vector<int64_t>{4 * ranks, columns});
  if (auto read = read_box(*opened, *opened->catalog.find("w"), whole, std::as_writable_bytes(std::span(all)));
      !read.ok())
    return read.error().text();
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i] != static_cast<float>(i)) return fmt::format("element {} is {}", i, all[i]);
  return "";
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
  for (const char* name : {"w.safetensors", "w.weights.h5"}) {
    if ((*comm)->rank() == 0) std::filesystem::create_directories(folder);
    report(name, check_save(**comm, folder + "/" + name));
  }
  if ((*comm)->rank() == 0) std::filesystem::remove_all(folder);
  comm->reset();
  MPI_Finalize();  // a check broke a channel on purpose: the library would leave this to us
  return failures == 0 ? 0 : 1;
}
