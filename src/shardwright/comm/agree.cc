#include <fmt/format.h>

#include "shardwright/base/error_bytes.h"
#include "shardwright/comm/comm.h"

namespace shardwright {

Status agree(Comm& comm, const Status& mine, Deadline deadline) {
  SHARDWRIGHT_ASSIGN(auto all, comm.all_gather(mine.ok() ? Bytes{} : bytes_of_error(mine.error()), deadline));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    Error error = error_from_bytes(all[rank]);
    if (comm.size() > 1) error.context.push_back(fmt::format("on rank {} of {}", rank, comm.size()));
    return error;
  }
  return {};
}

}  // namespace shardwright
