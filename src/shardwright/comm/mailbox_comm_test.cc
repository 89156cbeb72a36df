#include "shardwright/comm/mailbox.h"

#include <gtest/gtest.h>

#include "shardwright/base/error_bytes.h"
#include "shardwright/store/testing.h"

namespace shardwright::testing_support {
namespace {

using namespace std::chrono_literals;

/// The other of two ranks says why it fails and ends, after this one has looked for its letters and before it asks whether it lives.
class DyingPeer : public Mailbox {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  Result<std::unique_ptr<Mailbox>> clone(Deadline) override { return fail(Code::kUnsupported, "one only"); }
  Status send(int, Subject, View) override { return {}; }
  Result<std::vector<int>> unsent() override { return std::vector<int>(); }
  Result<std::optional<uint64_t>> arrived(int, Subject subject) override {
    if (!ended_ || subject.kind != Subject::kFailure) return std::optional<uint64_t>();
    return std::optional<uint64_t>(letter_.size());
  }
  Status receive(int, Subject, MutableView into) override {
    std::ranges::copy(letter_, into.begin());
    return {};
  }
  bool ended(int) override { return ended_ = true; }

 private:
  bool ended_ = false;
  Bytes letter_ = bytes_of_error(fail(Code::kCorrupt, "its file is broken"));
};

TEST(MailboxComm, LastWordsCountMoreThanTheEnd) {
  auto all = comm_of(std::make_unique<DyingPeer>())->all_gather({}, deadline_in(5s));
  ASSERT_FALSE(all.ok());
  EXPECT_EQ(all.error().message, "its file is broken");
}

TEST(Deadline, HasNoEndTooFarForTheClock) {
  EXPECT_GT(deadline_in(std::chrono::milliseconds::max()), deadline_in(std::chrono::hours(24 * 365)));
}

TEST(Broadcast, IsWhatRankZeroGives) {
  auto alone = single_process();
  auto bytes = broadcast(*alone, view_of("x"), deadline_in(5s));
  ASSERT_OK(bytes);
  EXPECT_EQ(text_of(*bytes), "x");
}

}  // namespace
}  // namespace shardwright::testing_support
