// Every check of a Comm, and random relayouts, under mpirun: prints what is wrong, and fails for it.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>

#include "shardwright/comm/comm_suite.h"
#include "shardwright/comm/mpi_comm.h"
#include "shardwright/engine/relayout_check_for_test.h"

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
  comm->reset();
  MPI_Finalize();  // a check broke a channel on purpose: the library would leave this to us
  return failures == 0 ? 0 : 1;
}
