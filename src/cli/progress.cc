#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cli/interrupts.h"
#include "cli/terminal.h"
#include "shardwright/base/text.h"

namespace shardwright::cli {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kDrawEvery{95}, kStatusEvery{1000}, kSpeedWindow{3000}, kPatience{250};
constexpr std::string_view kEraseLine = "\r\x1b[K";

double seconds_between(Progress::Clock::time_point from, Progress::Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

std::string bar(double share, size_t width, bool utf8) {
  auto filled = static_cast<size_t>(std::lround(share * static_cast<double>(width)));
  std::string out = utf8 ? "" : "[";
  for (size_t i = 0; i < width; ++i) out += i < filled ? (utf8 ? "\u2588" : "#") : (utf8 ? "\u2591" : "-");
  return out + (utf8 ? "" : "]");
}

/// "1:02:03", "0:07": as wide at the end of a job as at its start, so that nothing jumps.
std::string clock_text(double seconds) {
  auto whole = static_cast<uint64_t>(std::lround(std::min(seconds, 359999.0)));
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string joined(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) {
    if (!part.empty()) out += (out.empty() ? "" : "  ") + part;
  }
  return out;
}

}  // namespace

std::string progress_line(std::string_view phase, uint64_t done, uint64_t total, double speed, size_t width,
                          bool utf8) {
  double share = total == 0 ? 0 : std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  std::string percent = total == 0 ? "" : fmt::format("{:3.0f}%", std::min(share * 100, done < total ? 99.0 : 100.0));
  std::string bytes = fmt::format("{:>8}", format_bytes(done));
  if (total != 0) bytes += " of " + format_bytes(total);
  std::string pace = fmt::format("{:>10}/s", speed > 0 ? format_bytes(static_cast<uint64_t>(speed)) : "-");
  std::string left;
  if (total != 0)
    left = "ETA " + (speed > 0 ? clock_text(static_cast<double>(total - std::min(done, total)) / speed) : "-:--");
  std::vector<std::string> parts = {fmt::format("{:<7}", phase), "", percent, bytes, pace, left};
  size_t taken = display_width(joined(parts));
  if (total != 0 && taken + 10 <= width) {
    parts[1] = bar(share, std::min<size_t>(width - taken - (utf8 ? 2 : 4), 30), utf8);
    return joined(parts);
  }
  for (size_t least : {4, 3, 5}) {  // speed, bytes, time left, until it fits
    if (display_width(joined(parts)) > width) parts[least].clear();
  }
  return joined(parts).substr(0, width);
}

Progress::Progress(Output& output, bool stream) : output_(output), start_(Clock::now()), last_(start_) {
  catch_interrupts();
  bool terminal = is_terminal(STDERR_FILENO) && terminal_can_redraw();
  When when = output.options().progress;
  bool wanted = when == When::kAlways || (when == When::kAuto && !output.quiet());
  status_ = output.json() && stream && wanted;
  line_ = !output.json() && wanted && (terminal || when == When::kAlways);
  redraw_ = terminal;
}

Progress::~Progress() { erase(); }

void Progress::erase() {
  if (line_ && drawn_ && redraw_) (void)!::write(STDERR_FILENO, kEraseLine.data(), kEraseLine.size());
}

JobOptions Progress::attach(JobOptions job) {
  job.progress = [this](std::string_view phase, uint64_t done, uint64_t total) { return update(phase, done, total); };
  return job;
}

double Progress::seconds() const { return seconds_between(start_, Clock::now()); }

double Progress::bytes_per_second(Clock::time_point now, uint64_t done) {
  while (samples_.size() > 1 && now - samples_.front().at > kSpeedWindow) samples_.pop_front();
  samples_.push_back({now, done});
  double elapsed = seconds_between(samples_.front().at, now);
  return elapsed < 0.2 || done < samples_.front().done ? 0
                                                       : static_cast<double>(done - samples_.front().done) / elapsed;
}

bool Progress::update(std::string_view phase, uint64_t done, uint64_t total) {
  Clock::time_point now = Clock::now();
  if (phase != phase_) {
    phase_ = phase;
    samples_.clear();
  }
  double speed = bytes_per_second(now, done);
  bool always = output_.options().progress == When::kAlways;
  if (line_ &&
      (always ? !drawn_ || now - last_ >= kDrawEvery : now - start_ >= kPatience && now - last_ >= kDrawEvery)) {
    last_ = now;
    draw(phase, done, total, speed);
  }
  if (status_ && ((always && !drawn_) || now - last_ >= kStatusEvery)) {
    last_ = now;
    status(phase, done, total, speed);
  }
  return !interrupted() && !output_.broken();
}

void Progress::draw(std::string_view phase, uint64_t done, uint64_t total, double speed) {
  drawn_ = true;
  size_t columns = terminal_columns(STDERR_FILENO);
  std::string text = progress_line(phase, done, total, speed, columns > 1 ? columns - 1 : 79, output_.utf8());
  text = redraw_ ? std::string(kEraseLine) + text : text + "\n";
  (void)!::write(STDERR_FILENO, text.data(), text.size());
}

void Progress::status(std::string_view phase, uint64_t done, uint64_t total, double speed) {
  drawn_ = true;
  output_.line(fmt::format(
      R"({{"type": "status", "phase": "{}", "bytes_done": {}, "bytes_total": {}, "bytes_per_second": {}, "seconds": {:.3f}}})",
      phase, done, total, static_cast<uint64_t>(speed), seconds_between(start_, last_)));
  output_.flush();
}

}  // namespace shardwright::cli
