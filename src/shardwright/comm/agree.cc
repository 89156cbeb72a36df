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

Result<Bytes> broadcast(Comm& comm, View mine, Deadline deadline) {
  if (comm.size() == 1) return Bytes(mine.begin(), mine.end());
  auto pass = [&](Bytes& bytes) {
    std::vector<Comm::Part> send, receive;
    if (comm.rank() != 0) receive.push_back({0, bytes});
    for (int rank = 1; rank < comm.size() && comm.rank() == 0; ++rank) send.push_back({rank, bytes});
    return comm.exchange(send, receive, deadline);
  };
  Bytes size;
  append_le<uint64_t>(size, mine.size());
  SHARDWRIGHT_TRY(pass(size));
  Bytes bytes(load_le<uint64_t>(size));
  if (comm.rank() == 0) bytes.assign(mine.begin(), mine.end());
  SHARDWRIGHT_TRY(pass(bytes));
  return bytes;
}

}  // namespace shardwright
