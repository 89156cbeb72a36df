// mpirun -n 4 tensor_parallel_mpi CHECKPOINT
#include "ranks.h"
#include "shardwright/comm/mpi_comm.h"

const char* const kRankArguments = "(started by mpirun)";

shardwright::Result<std::unique_ptr<shardwright::Comm>> open_ranks(int, char**) {
  return shardwright::mpi_comm(shardwright::deadline_in(std::chrono::seconds(60)));
}
