/// How far a job is: a line on stderr for people, status objects on stdout with --json.
#pragma once

#include <chrono>
#include <deque>
#include <string>
#include <string_view>

#include "cli/output.h"
#include "shardwright/engine/jobs.h"

namespace shardwright::cli {

/// To be called about 10 times a second. People see the line when stderr is a terminal (or --progress always); it is redrawn in place
/// and gone when the object dies. --json prints {type:"status", ...} once a second where `stream` says the verb's output is NDJSON.
class Progress {
 public:
  using Clock = std::chrono::steady_clock;
  Progress(Output& output, bool stream);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// False when the user interrupted or nobody reads stdout any more: the job is to stop.
  bool update(std::string_view phase, uint64_t done, uint64_t total);
  /// The options with progress set to this object, which must outlive the job.
  JobOptions attach(JobOptions job);
  /// Takes the line away so that something else can be printed; the next update draws it again.
  void erase();
  double seconds() const;

 private:
  struct Sample {
    Clock::time_point at;
    uint64_t done;
  };
  double bytes_per_second(Clock::time_point now, uint64_t done);
  void draw(std::string_view phase, uint64_t done, uint64_t total, double speed);
  void status(std::string_view phase, uint64_t done, uint64_t total, double speed);

  Output& output_;
  bool line_ = false, redraw_ = false, status_ = false, drawn_ = false;
  Clock::time_point start_, last_;
  std::string phase_;
  std::deque<Sample> samples_;  ///< of the last seconds
};

/// The line: phase, bar, share, bytes, speed and time left, in at most `width` columns; parts that do not fit are left out, the bar first.
/// speed in bytes per second, 0 when not known yet. total 0: how much is to be done is not known.
std::string progress_line(std::string_view phase, uint64_t done, uint64_t total, double speed, size_t width, bool utf8);

}  // namespace shardwright::cli
