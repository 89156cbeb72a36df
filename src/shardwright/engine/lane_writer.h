/// One object while it is written: its writer, what is known of its segments, and whose turn it is to append.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <stop_token>
#include <vector>

#include "shardwright/engine/execute.h"
#include "shardwright/engine/write_part.h"

namespace shardwright {

/// Thread-safe where said. One per lane of a plan that writes files.
class LaneWriter {
 public:
  LaneWriter(const Plan& plan, const Lane& lane, const Ends& ends, const Calls& calls)
      : plan_(plan), lane_(lane), ends_(ends), calls_(calls) {}

  /// Creates the object, once. Thread-safe.
  Status open();
  /// Writes the parts of a task (values ready in `buffer`). In append form waits until `ticket` tasks of this lane are done. Thread-safe.
  /// buffer: that of the whole task, for parts that gather while they write (kEncode, kStream). A producer of kEncode parts is called from
  /// here: such tasks are written on the thread that may call it.
  Status write(const Task& task, uint64_t ticket, MutableView buffer, const std::stop_token& stop);
  /// After the last task: late segments, then durable. Fills `receipts` in segment order. One thread.
  Status finish(std::vector<Receipt>& receipts);

 private:
  struct Stored {
    uint64_t offset = kUnknown, length = 0;
    std::vector<PartChecksum> parts;  ///< by part; of appended bytes one
  };
  bool appends() const { return plan_.objects[lane_.object].size == kUnknown; }
  Status wait_turn(uint64_t ticket, const std::stop_token& stop);
  bool has_turn(uint64_t ticket);
  Status append(uint32_t segment, View bytes);  ///< REQUIRES: our turn
  Status append_task(const Task& task, uint64_t ticket, MutableView buffer, const std::stop_token& stop);
  Status encode(const Part& part, uint64_t ticket, MutableView buffer, const std::stop_token& stop);
  void keep(const Part& part, const PartChecksum& checksum);
  Receipt receipt_of(size_t segment) const;

  const Plan& plan_;
  const Lane& lane_;
  const Ends& ends_;
  const Calls& calls_;
  std::mutex mutex_;
  std::condition_variable_any turn_changed_;
  std::unique_ptr<Writer> writer_;
  std::vector<Stored> stored_;  ///< by segment
  uint64_t turn_ = 0, end_ = 0;
};

}  // namespace shardwright
