/// A Comm made of letters: what a way of carrying bytes between processes must offer, so that waiting, deadlines and failures are written once.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "shardwright/comm/comm.h"

namespace shardwright {

/// What a letter is about. number: how many of the kind went between the two ranks before; letters of one kind from one rank to another
/// arrive in order.
struct Subject {
  enum Kind : uint8_t { kGather, kExchange, kFailure };
  Kind kind = kGather;
  uint64_t number = 0;
};

/// Nothing here waits. Used by one thread at a time. Errors: of the carrier, never of who is missing.
class Mailbox {
 public:
  virtual ~Mailbox() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// The same ranks, letters apart. Called in the same order everywhere; may wait up to the deadline.
  virtual Result<std::unique_ptr<Mailbox>> clone(Deadline deadline) = 0;
  /// `bytes` stay as they are until unsent() no longer names `to`.
  virtual Status send(int to, Subject subject, View bytes) = 0;
  /// Ranks to whom letters are still under way.
  virtual Result<std::vector<int>> unsent() = 0;
  /// Size of a letter that is there; nullopt: not yet.
  virtual Result<std::optional<uint64_t>> arrived(int from, Subject subject) = 0;
  /// REQUIRES: arrived() said so, and into.size() is its size.
  virtual Status receive(int from, Subject subject, MutableView into) = 0;
  /// True when the rank's process is known to be no more: what has not arrived by now never will.
  virtual bool ended(int /*rank*/) { return false; }
  /// Longest sleep between two looks.
  virtual std::chrono::microseconds patience() const { return std::chrono::milliseconds(5); }
};

/// "rank 3", "ranks 1, 2", and of many the first twenty and how many more there are. For messages.
std::string ranks_text(const std::set<int>& ranks);

/// The Comm that writes these letters. It is the only one who uses the mailbox from then on.
std::unique_ptr<Comm> comm_of(std::unique_ptr<Mailbox> mailbox);

}  // namespace shardwright
