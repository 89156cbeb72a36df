#include "shardwright/engine/begin.h"

#include <chrono>
#include <random>
#include <thread>

namespace shardwright {
namespace {

using std::chrono::milliseconds, std::chrono::seconds, std::chrono::steady_clock;
constexpr seconds kPatience{15};

}  // namespace

Result<Begun> begin_in_turn(Store& store, std::string_view under, const JobOptions& options) {
  auto deadline = steady_clock::now() + kPatience;
  std::random_device random;
  for (Begun begun;; begun.waited = true) {
    auto transaction = store.begin(under);
    if (transaction.ok()) {
      begun.transaction = std::move(*transaction);
      return begun;
    }
    if (transaction.error().code != Code::kUnavailable || steady_clock::now() > deadline)
      return std::move(transaction.error());
    if (options.progress && !options.progress("wait", 0, 0)) return fail(Code::kAborted, "stopped on request");
    // Two who begin at once both withdraw: not again at the same moment.
    std::this_thread::sleep_for(milliseconds(10 + random() % 60));
  }
}

}  // namespace shardwright
