/// The right to write the steps of a run: one manager's at a time.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "shardwright/base/result.h"

namespace shardwright {

/// Held for as long as it lives, by a lock on ROOT/.writer, which says who has it: "<host> <pid>". What a process held that has ended is free, also
/// when children that it forked live on. On a file system without locks everybody gets it.
class Claim {
 public:
  /// Makes the file; the root must be there. patience: for one who has it in passing. Errors: kUnavailable, naming who has it; of the system.
  static Result<std::unique_ptr<Claim>> take(const std::string& root, std::chrono::milliseconds patience);
  /// Whether a living manager has it. nullopt: nobody can tell, as where there are no locks. Makes nothing.
  static std::optional<bool> is_held(const std::string& root);
  ~Claim();
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

 private:
  Claim(std::string path, int file) : path_(std::move(path)), file_(file) {}
  const std::string path_;
  const int file_;
  const int process_ = current_process();
  static int current_process();
};

}  // namespace shardwright
