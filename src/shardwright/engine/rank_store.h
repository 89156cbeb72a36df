/// What lies in the memories of other ranks, as a store: for files that one rank must write from front to back.
#pragma once

#include <chrono>
#include <mutex>

#include "shardwright/comm/comm.h"
#include "shardwright/format/format.h"

namespace shardwright {

/// Rank 0's view of the others, who serve() meanwhile. Objects are pieces in C order. Thread-safe; one read at a time, and the Comm is used by nobody
/// else until dismiss(). Memory beside the budget: what a read() of several ranges asks of one rank, there and here.
class RankStore : public Store {
 public:
  RankStore(Comm& comm, std::chrono::milliseconds wait) : comm_(comm), wait_(wait) {}
  /// `merged` with all that rank 0 does not hold itself in objects of this store; `mine` is rank 0's own catalogue.
  /// Errors: kUnsupported for tensors that another rank's calls make.
  Result<Catalog> readable(const Catalog& merged, const Catalog& mine);
  /// Lets the others go on.
  Status dismiss();

  Status read(std::span<const ReadOp> ops) override;
  StoreCaps caps() const override { return {}; }
  std::string describe(std::string_view key) const override {
    return "memory of another process, piece " + std::string(key);
  }
  Result<std::optional<uint64_t>> size(std::string_view key) override;
  Result<std::vector<std::string>> list(std::string_view) override { return std::vector<std::string>(); }
  Result<std::unique_ptr<Transaction>> begin(std::string_view) override { return nothing_to_write(); }
  Result<std::unique_ptr<Transaction>> join(std::string_view) override { return nothing_to_write(); }
  Result<std::optional<std::string>> recover(std::string_view) override { return std::optional<std::string>(); }
  Result<std::optional<Room>> room(std::string_view) override { return std::optional<Room>(); }
  uint64_t bytes_read() const override { return bytes_read_; }

 private:
  /// Of one rank: tensor of `merged`, and which of the rank's pieces of it.
  struct Held {
    int rank;
    TensorId tensor;
    uint32_t piece;
    uint64_t bytes;
  };
  static Error nothing_to_write() { return fail(Code::kInternal, "the memory of other processes is not written"); }
  Status ask(int rank, std::span<const ReadOp* const> ops);

  Comm& comm_;
  const std::chrono::milliseconds wait_;
  std::mutex mutex_;
  std::vector<Held> held_;  ///< by object
  uint64_t bytes_read_ = 0;
};

/// On every other rank: answers rank 0 until it is dismissed. mine: what this rank holds; merged: the same that rank 0 has.
/// Errors: those of the Comm; kUnsupported for packed elements that do not lie in C order, told to all.
Status serve(Comm& comm, const Catalog& merged, const Catalog& mine, std::chrono::milliseconds wait);

}  // namespace shardwright
