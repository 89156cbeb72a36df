#include "shardwright/engine/execute.h"

#include <algorithm>
#include <deque>
#include <map>
#include <system_error>
#include <thread>

#include "shardwright/engine/lane_writer.h"
#include "shardwright/engine/read_part.h"
#include "shardwright/engine/task.h"
#include "shardwright/engine/write_part.h"

namespace shardwright {
namespace {

/// A task with its memory, on its way between the threads.
struct Held {
  Task task;
  uint64_t ticket = 0;  ///< its number within the lane
  MemoryBudget::Grant grant;
};

class Run {
 public:
  Run(const Plan& plan, const Ends& ends, const Calls& calls)
      : plan_(plan), ends_(ends), calls_(watched(calls)), budget_(plan.options.memory_bytes) {
    for (size_t i = 0; i < plan.lanes.size(); ++i) {
      auto& lane = lanes_.emplace_back(TaskCutter(plan, i));
      if (ends.draft != nullptr) lane.writer = std::make_unique<LaneWriter>(plan, plan.lanes[i], ends, calls_);
    }
    open_lanes_ = lanes_.size();
  }

  Result<Executed> run() {
    std::vector<size_t> idle;  // nothing but late bytes, or an empty object
    for (size_t i = 0; i < lanes_.size(); ++i)
      if (lanes_[i].cutter.done()) idle.push_back(i);
    {
      std::vector<std::jthread> workers;
      start(workers);
      with_memory([&] {
        for (size_t lane : idle) finish_lane(lane, 0);
        serve_calls();
      });
    }
    if (error_) return std::move(*error_);
    Executed out;
    for (auto& lane : lanes_) std::ranges::move(lane.receipts, std::back_inserter(out.receipts));
    out.peak_bytes = budget_.peak();
    return out;
  }

 private:
  /// As many workers as the system gives, if it does not give all.
  void start(std::vector<std::jthread>& workers) {
    try {
      for (int i = 0; i < plan_.workers; ++i)
        workers.emplace_back([this] { with_memory([&] { calls_.produce ? work_on_queue() : work(); }); });
    } catch (const std::system_error& error) {
      if (workers.empty())
        record(0, fail(Code::kResourceExhausted, std::string("no thread could be started: ") + error.what()));
    }
  }

  /// The budget is a promise of ours, not of the system. Where it has no memory all end, instead of the process.
  template <class Job>
  void with_memory(const Job& job) {
    try {
      job();
    } catch (const std::bad_alloc&) {
      record(0, fail(Code::kResourceExhausted, "the system has not enough memory, though the budget allows it"));
    }
  }

  struct LaneState {
    explicit LaneState(TaskCutter tasks) : cutter(std::move(tasks)) {}
    TaskCutter cutter;
    std::unique_ptr<LaneWriter> writer;
    std::vector<Receipt> receipts;
    uint64_t picked = 0, done = 0;
    int active = 0;
  };

  bool consumes() const { return ends_.draft == nullptr && calls_.consume != nullptr; }

  /// The next task in plan order, with its budget. Picking and asking are one step, so that grants come in the order of picking: what
  /// was picked earlier never waits for what was picked later (decision 7). nullopt: nothing left, or stopped.
  std::optional<Held> pick() {
    std::lock_guard one_at_a_time(picking_);
    Held held;
    {
      std::lock_guard lock(mutex_);
      LaneState* lane = stop_.stop_requested() ? nullptr : next_lane();
      if (lane == nullptr) return std::nullopt;
      held.task = *lane->cutter.next();
      held.task.sequence = sequence_++;
      held.ticket = lane->picked++;
      ++lane->active;
    }
    // Tasks that wait for a consumer, or come from a producer, are themselves memory: a thousand bytes for each part.
    uint64_t ask = held.task.need_bytes;
    if (consumes() || calls_.produce)
      ask = std::max(ask, std::min(ask + held.task.parts.size() * KiB, budget_.limit()));
    if (ask == 0) return held;
    held.grant = budget_.acquire(ask, stop_.get_token());
    if (held.grant.bytes() == 0) return std::nullopt;
    return held;
  }

  /// The first lane that nobody writes, else the first with tasks left: two writers in one file wait for each other's inode.
  /// With a producer always the first with tasks left: it is called tensor by tensor, and holds one at a time.
  LaneState* next_lane() {
    LaneState* shared = nullptr;
    for (size_t i = first_open_; i < lanes_.size(); ++i) {
      if (lanes_[i].cutter.done()) {
        if (i == first_open_) ++first_open_;
        continue;
      }
      if (lanes_[i].active == 0 || calls_.produce) return &lanes_[i];
      if (shared == nullptr) shared = &lanes_[i];
    }
    return shared;
  }

  void work() {
    while (auto held = pick()) process(std::move(*held));
  }

  void work_on_queue() {
    while (true) {
      Held held;
      {
        std::unique_lock lock(mutex_);
        if (!changed_.wait(lock, stop_.get_token(), [&] { return !queue_.empty() || all_picked_; })) return;
        if (queue_.empty()) return;
        held = std::move(queue_.front());
        queue_.pop_front();
      }
      process(std::move(held));
    }
  }

  /// On a worker: everything but calls.
  void process(Held held) {
    auto mode = held.task.parts.front().move->mode;
    bool reads_itself = mode == Move::kStream || mode == Move::kEncode;
    Status status;
    if (!reads_itself) status = read_parts(plan_, ends_.from, held.task.parts, held.grant.span());
    if (status.ok() && consumes()) {
      std::lock_guard lock(mutex_);
      ready_.emplace(held.task.sequence, std::move(held));
      changed_.notify_all();
      return;
    }
    if (status.ok()) status = deliver(held);
    if (status.ok() && calls_.filled) note_filled(held.task);
    complete(std::move(held), std::move(status));
  }

  /// Counts what is in place, and leaves pieces that are whole for the calling thread.
  void note_filled(const Task& task) {
    for (const Part& part : task.parts) {
      TensorId to = part.move->to;
      auto filled = filled_by(plan_, part);
      std::lock_guard lock(mutex_);
      auto [at, is_new] = left_.try_emplace(to);
      if (is_new)
        for (const Piece& piece : plan_.to.pieces(to)) at->second.push_back(piece.box.elements());
      for (auto [piece, elements] : filled)
        if (elements > 0 && (at->second[piece] -= elements) == 0) filled_.emplace_back(to, piece);
      if (std::ranges::all_of(at->second, [](uint64_t left) { return left == 0; })) left_.erase(at);
    }
    std::lock_guard lock(mutex_);
    if (!filled_.empty()) changed_.notify_all();
  }

  Status deliver(const Held& held) {
    const Task& task = held.task;
    auto& lane = lanes_[task.lane];
    if (lane.writer) {
      SHARDWRIGHT_TRY(lane.writer->open());
      return lane.writer->write(task, held.ticket, held.grant.span(), stop_.get_token());
    }
    for (const Part& part : task.parts) {
      if (part.move->mode == Move::kStream) {
        SHARDWRIGHT_TRY(stream_part(plan_, part, *ends_.from, held.grant.span(), calls_));
        continue;
      }
      store_part(plan_, part, held.grant.span());
      if (consumes()) SHARDWRIGHT_TRY(consume_part(plan_, part, held.grant.span(), calls_));
    }
    return {};
  }

  void complete(Held held, Status status) {
    held.grant = {};
    size_t index = held.task.lane;
    bool last = false;
    {
      std::lock_guard lock(mutex_);
      auto& lane = lanes_[index];
      --lane.active;
      ++lane.done;
      done_bytes_ += held.task.work_bytes;
      last = status.ok() && lane.cutter.done() && lane.done == lane.picked;
    }
    if (!status.ok()) record(held.task.sequence, std::move(status.error()));
    if (last) finish_lane(index, held.task.sequence);
  }

  void finish_lane(size_t index, uint64_t sequence) {
    auto& lane = lanes_[index];
    Status status;
    if (lane.writer) status = lane.writer->finish(lane.receipts);
    if (!status.ok()) record(sequence, std::move(status.error()));
    std::lock_guard lock(mutex_);
    --open_lanes_;
    changed_.notify_all();
  }

  /// Keeps the error of the lowest task; what only stopped because another failed does not count.
  void record(uint64_t sequence, Error error) {
    std::lock_guard lock(mutex_);
    bool follows = error.code == Code::kAborted && stop_.stop_requested();
    if (!follows && (!error_ || sequence < error_sequence_)) {
      error_ = std::move(error);
      error_sequence_ = sequence;
    }
    stop_.request_stop();
    changed_.notify_all();
  }

  /// On the calling thread: producers, consumers, progress.
  void serve_calls() {
    if (calls_.produce) produce_all();
    std::unique_lock lock(mutex_);
    while ((open_lanes_ > 0 || !filled_.empty()) && !stop_.stop_requested()) {
      auto next = ready_.find(consumed_);
      if (next != ready_.end()) {
        Held held = std::move(next->second);
        ready_.erase(next);
        ++consumed_;
        lock.unlock();
        auto status = deliver(held);
        if (status.ok() && calls_.filled) note_filled(held.task);
        complete(std::move(held), std::move(status));
        report_progress();
        lock.lock();
        continue;
      }
      if (!filled_.empty()) {
        auto [tensor, piece] = filled_.front();
        filled_.pop_front();
        lock.unlock();
        if (auto status = calls_.filled(tensor, piece); !status.ok()) record(0, std::move(status.error()));
        report_progress();
        lock.lock();
        continue;
      }
      changed_.wait_for(lock, std::chrono::milliseconds(100));
      lock.unlock();
      report_progress();
      lock.lock();
    }
    ready_.clear();
    queue_.clear();
  }

  /// Those parts of a task that are made by calls.
  Status produce_parts(Held& held) {
    for (const Part& part : held.task.parts) {
      if (part.move->mode != Move::kRegion || !is_produced(plan_, part)) continue;
      SHARDWRIGHT_TRY(calls_.produce(part.move->from, part.box, held.grant.span().subspan(part.in_at, part.in_bytes)));
    }
    return {};
  }

  /// Encoded chunks may be larger than the budget: their values are called for while they are encoded.
  bool is_encoded_here(const Task& task) const {
    const Part& part = task.parts.front();
    return part.move->mode == Move::kEncode && is_produced(plan_, part);
  }

  void produce_all() {
    while (auto held = pick()) {
      Status status = produce_parts(*held);
      if (!status.ok()) {
        complete(std::move(*held), std::move(status));
      } else if (is_encoded_here(held->task)) {
        status = deliver(*held);
        complete(std::move(*held), std::move(status));
      } else if (consumes()) {
        status = read_parts(plan_, ends_.from, held->task.parts, held->grant.span());
        if (status.ok()) status = deliver(*held);
        if (status.ok() && calls_.filled) note_filled(held->task);
        complete(std::move(*held), std::move(status));
      } else {
        std::lock_guard lock(mutex_);
        queue_.push_back(std::move(*held));
        changed_.notify_all();
      }
      report_progress();
    }
    std::lock_guard lock(mutex_);
    all_picked_ = true;
    changed_.notify_all();
  }

  /// One task may call many times (chunks side by side, an encoded chunk): after each the run may be told to stop.
  Calls watched(Calls calls) {
    auto go_on = [this]() -> Status {
      report_progress();
      return stop_.stop_requested() ? Status(fail(Code::kAborted, "stopped")) : Status();
    };
    if (calls.produce)
      calls.produce = [go_on, made = calls.produce](TensorId id, const Box& box, MutableView into) -> Status {
        SHARDWRIGHT_TRY(made(id, box, into));
        return go_on();
      };
    if (calls.consume)
      calls.consume = [go_on, took = calls.consume](TensorId id, const Box& box, View values) -> Status {
        SHARDWRIGHT_TRY(took(id, box, values));
        return go_on();
      };
    return calls;
  }

  void report_progress() {
    if (!calls_.keep_going) return;
    auto now = std::chrono::steady_clock::now();
    if (now - last_report_ < std::chrono::milliseconds(100)) return;
    last_report_ = now;
    uint64_t done;
    {
      std::lock_guard lock(mutex_);
      done = done_bytes_;
    }
    if (!calls_.keep_going(done, plan_.summary.work_bytes)) record(0, fail(Code::kAborted, "stopped on request"));
  }

  const Plan& plan_;
  const Ends& ends_;
  const Calls calls_;
  MemoryBudget budget_;
  std::mutex picking_;  ///< taken before mutex_
  std::mutex mutex_;    ///< everything below
  std::condition_variable_any changed_;
  std::stop_source stop_;
  std::deque<LaneState> lanes_;
  size_t first_open_ = 0, open_lanes_ = 0;
  uint64_t sequence_ = 0, consumed_ = 0, done_bytes_ = 0;
  std::map<uint64_t, Held> ready_;                    ///< read, to be consumed in order
  std::deque<Held> queue_;                            ///< produced, to be written
  std::map<TensorId, std::vector<uint64_t>> left_;    ///< elements that are still to come, by piece; tensors begun
  std::deque<std::pair<TensorId, uint32_t>> filled_;  ///< pieces that are whole, to be told
  bool all_picked_ = false;
  std::optional<Error> error_;
  uint64_t error_sequence_ = 0;
  std::chrono::steady_clock::time_point last_report_{};
};

}  // namespace

Result<Executed> execute(const Plan& plan, const Ends& ends, const Calls& calls) {
  return Run(plan, ends, calls).run();
}

}  // namespace shardwright
