/// Ranks started by mpirun. In a library of its own, shardwright::mpi: nothing else needs MPI.
#pragma once

#include "shardwright/comm/comm.h"

namespace shardwright {

/// All ranks of MPI_COMM_WORLD, on a channel of their own. Initialises MPI when nobody has, and then ends it with the process.
/// MPI itself ends a job in which a process dies; deadlines are for those that hang.
/// Errors: kUnavailable past the deadline (which ranks have not come, MPI does not say; nor does MPI_Init heed the deadline); kInternal, with MPI's
/// words. A part of an exchange, and what is gathered from one rank, has fewer than 2^31 bytes: kUnsupported.
/// REQUIRES: where MPI is initialised already, MPI_THREAD_SERIALIZED or more if the Comm is used by more than one thread.
Result<std::unique_ptr<Comm>> mpi_comm(Deadline deadline);

}  // namespace shardwright
