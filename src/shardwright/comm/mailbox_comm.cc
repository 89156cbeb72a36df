#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <thread>

#include "shardwright/base/error_bytes.h"
#include "shardwright/comm/mailbox.h"

namespace shardwright {
namespace {

using Clock = std::chrono::steady_clock;
/// How often those who are waited for are looked after.
constexpr auto kCheckUp = std::chrono::milliseconds(50);
/// A clone is made while everybody is there.
constexpr auto kCloneTime = std::chrono::seconds(60);

class MailboxComm : public Comm {
 public:
  explicit MailboxComm(std::unique_ptr<Mailbox> mailbox)
      : mailbox_(std::move(mailbox)),
        sent_(static_cast<size_t>(mailbox_->size())),
        received_(static_cast<size_t>(mailbox_->size())) {}

  int rank() const override { return mailbox_->rank(); }
  int size() const override { return mailbox_->size(); }

  Result<std::unique_ptr<Comm>> clone() override {
    if (failed_) return *failed_;
    const Deadline deadline = Clock::now() + kCloneTime;
    if (auto here = all_gather({}, deadline); !here.ok()) return here.error();  // names who is missing: MPI could not
    auto twin = mailbox_->clone(deadline);
    if (!twin.ok()) return give_up(std::move(twin.error()));
    return comm_of(std::move(*twin));
  }

  Result<std::vector<Bytes>> all_gather(View mine, Deadline deadline) override {
    if (failed_) return *failed_;
    Subject subject{Subject::kGather, gathers_++};
    std::vector<Bytes> all(static_cast<size_t>(size()));
    std::set<int> others;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      others.insert(peer);
      if (auto status = mailbox_->send(peer, subject, mine); !status.ok()) return give_up(std::move(status.error()));
    }
    auto take = [&](int peer, uint64_t bytes) {
      all[static_cast<size_t>(peer)].resize(bytes);
      return mailbox_->receive(peer, subject, all[static_cast<size_t>(peer)]);
    };
    SHARDWRIGHT_TRY(settle(std::move(others), [&](int) { return subject; }, take, deadline));
    all[static_cast<size_t>(rank())].assign(mine.begin(), mine.end());
    return all;
  }

  Status exchange(std::span<const Part> send, std::span<const Part> receive, Deadline deadline) override {
    if (failed_) return *failed_;
    if (auto status = check_parts(send, receive); !status.ok()) return give_up(std::move(status.error()));
    std::set<int> sources;
    std::vector<MutableView> into(static_cast<size_t>(size()));
    for (const Part& part : receive) {
      into[static_cast<size_t>(part.rank)] = part.bytes;
      if (part.rank != rank()) sources.insert(part.rank);
    }
    for (const Part& part : send) {
      auto peer = static_cast<size_t>(part.rank);
      if (part.rank == rank()) {
        if (!part.bytes.empty()) std::memmove(into[peer].data(), part.bytes.data(), part.bytes.size());
        continue;
      }
      auto status = mailbox_->send(part.rank, {Subject::kExchange, sent_[peer]++}, part.bytes);
      if (!status.ok()) return give_up(std::move(status.error()));
    }
    auto subject = [&](int peer) { return Subject{Subject::kExchange, received_[static_cast<size_t>(peer)]}; };
    auto take = [&](int peer, uint64_t bytes) -> Status {
      MutableView wanted = into[static_cast<size_t>(peer)];
      if (bytes != wanted.size())
        return fail(Code::kInvalidArgument,
                    fmt::format("rank {} sent rank {} another size than was agreed", peer, rank()))
            .with_found(fmt::format("{} bytes", bytes))
            .with_expected(fmt::format("{} bytes", wanted.size()));
      return mailbox_->receive(peer, subject(peer), wanted);
    };
    SHARDWRIGHT_TRY(settle(sources, subject, take, deadline));
    for (int peer : sources) ++received_[static_cast<size_t>(peer)];
    return {};
  }

  void abandon(const Error& why) override {
    if (!failed_) (void)give_up(why);
  }
  Watch set_watch(Watch watch) override { return std::exchange(watch_, std::move(watch)); }

 private:
  /// Each peer once; returns the bytes that are for this rank itself.
  Result<uint64_t> check_side(std::span<const Part> parts) const {
    std::set<int> seen;
    uint64_t own = 0;
    for (const Part& part : parts) {
      if (part.rank < 0 || part.rank >= size())
        return fail(Code::kInvalidArgument, "exchange with a rank that does not exist")
            .with_found(fmt::format("rank {}", part.rank))
            .with_expected(fmt::format("0 to {}", size() - 1));
      if (!seen.insert(part.rank).second)
        return fail(Code::kInvalidArgument, "exchange has more than one part for a peer and direction");
      if (part.rank == rank()) own = part.bytes.size();
    }
    return own;
  }

  Status check_parts(std::span<const Part> send, std::span<const Part> receive) const {
    SHARDWRIGHT_ASSIGN(uint64_t sent, check_side(send));
    SHARDWRIGHT_ASSIGN(uint64_t received, check_side(receive));
    if (sent == received) return {};
    return fail(Code::kInvalidArgument, "exchange sends and receives different sizes")
        .with_found(fmt::format("{} bytes sent", sent))
        .with_expected(fmt::format("{} bytes", received));
  }

  /// Takes one letter from each of `missing`, and waits until its own are gone.
  Status settle(std::set<int> missing, const std::function<Subject(int)>& subject,
                const std::function<Status(int, uint64_t)>& take, Deadline deadline) {
    const auto began = Clock::now();
    auto pause = std::chrono::microseconds(20);
    auto check_up = began + kCheckUp;
    while (true) {
      auto moved = take_arrived(missing, subject, take);
      if (!moved.ok()) return give_up(std::move(moved.error()));
      auto unsent = missing.empty() ? mailbox_->unsent() : std::vector<int>{};
      if (!unsent.ok()) return give_up(std::move(unsent.error()));
      if (missing.empty() && unsent->empty()) return {};
      auto now = Clock::now();
      if (now >= check_up || now >= deadline) {
        check_up = now + kCheckUp;
        if (auto status = watch_ ? watch_() : Status{}; !status.ok()) return give_up(std::move(status.error()));
        SHARDWRIGHT_TRY(look_after(missing, subject));
      }
      if (now >= deadline) return give_up(late(missing, *unsent, began));
      pause = *moved ? std::chrono::microseconds(20) : std::min(pause * 2, mailbox_->patience());
      std::this_thread::sleep_for(std::min<Clock::duration>(pause, std::max<Clock::duration>(deadline - now, {})));
    }
  }

  /// Those whose letters have come are missing no more; whether there was one.
  Result<bool> take_arrived(std::set<int>& missing, const std::function<Subject(int)>& subject,
                            const std::function<Status(int, uint64_t)>& take) {
    const size_t before = missing.size();
    for (auto at = missing.begin(); at != missing.end();) {
      SHARDWRIGHT_ASSIGN(auto bytes, mailbox_->arrived(*at, subject(*at)));
      if (bytes) SHARDWRIGHT_TRY(take(*at, *bytes));
      at = bytes ? missing.erase(at) : std::next(at);
    }
    return missing.size() < before;
  }

  /// Those who did not write, or else those who did not take what was written to them.
  static Error late(std::set<int> missing, const std::vector<int>& unsent, Clock::time_point began) {
    if (missing.empty()) missing.insert(unsent.begin(), unsent.end());
    double seconds = std::chrono::duration<double>(Clock::now() - began).count();
    return fail(Code::kUnavailable, fmt::format("{} did not answer in time", ranks_text(missing)))
        .with_found(fmt::format("nothing for {:.1f} s", seconds))
        .with_hint("see what these processes do; they may have died, hang, or need a longer time limit");
  }

  /// Who gave up, and who has ended.
  Status look_after(const std::set<int>& missing, const std::function<Subject(int)>& subject) {
    const Subject failure{Subject::kFailure, 0};
    std::set<int> gone;
    for (int peer : missing)
      if (mailbox_->ended(peer)) gone.insert(peer);
    // Whatever they said just before the end is there by now.
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      auto bytes = mailbox_->arrived(peer, failure);
      if (!bytes.ok()) return give_up(std::move(bytes.error()));
      if (!*bytes) continue;
      Bytes letter(**bytes);
      if (auto status = mailbox_->receive(peer, failure, letter); !status.ok())
        return give_up(std::move(status.error()));
      failed_ = error_from_bytes(letter);
      if (failed_->context.empty()) failed_->context.push_back(fmt::format("on rank {}", peer));
      return *failed_;
    }
    std::erase_if(gone, [&](int peer) {
      auto bytes = mailbox_->arrived(peer, subject(peer));
      return !bytes.ok() || *bytes;
    });
    if (gone.empty()) return {};
    return give_up(fail(Code::kUnavailable, fmt::format("{} ended before the work was done", ranks_text(gone)))
                       .with_hint("see what these processes printed last"));
  }

  /// Nothing can be done together any more: says so to everybody.
  Error give_up(Error error) {
    failed_ = error;
    Error told = error;
    told.context.push_back(fmt::format("on rank {}", rank()));
    last_words_ = bytes_of_error(told);
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank()) (void)mailbox_->send(peer, {Subject::kFailure, 0}, last_words_);
    return error;
  }

  std::unique_ptr<Mailbox> mailbox_;
  uint64_t gathers_ = 0;
  std::vector<uint64_t> sent_, received_;  ///< exchanged with each rank
  std::optional<Error> failed_;
  Watch watch_;
  Bytes last_words_;
};

}  // namespace

std::string ranks_text(const std::set<int>& ranks) {
  constexpr size_t kNamed = 20;
  auto end = std::next(ranks.begin(), static_cast<std::ptrdiff_t>(std::min(ranks.size(), kNamed)));
  std::string named = fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks.begin(), end, ", "));
  return ranks.size() <= kNamed ? named : fmt::format("{} and {} more", named, ranks.size() - kNamed);
}

std::unique_ptr<Comm> comm_of(std::unique_ptr<Mailbox> mailbox) {
  return std::make_unique<MailboxComm>(std::move(mailbox));
}

}  // namespace shardwright
