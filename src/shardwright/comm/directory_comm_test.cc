#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "shardwright/comm/comm_suite.h"
#include "shardwright/comm/processes_for_test.h"
#include "shardwright/store/testing.h"

namespace shardwright::testing_support {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

std::unique_ptr<Comm> join(const TemporaryDirectory& directory, int rank, int size,
                           std::chrono::milliseconds time = 30s) {
  auto comm = meet_in_directory(directory.at("meet"), rank, size, deadline_in(time));
  return comm.ok() ? std::move(*comm) : nullptr;
}

std::string meet_only(const std::string& directory, int rank, int size, std::chrono::milliseconds time) {
  auto comm = meet_in_directory(directory, rank, size, deadline_in(time));
  return comm.ok() ? "met" : comm.error().text();
}

TEST(DirectoryComm, PassesEveryCheck) {
  for (int size : {1, 2, 4}) {
    TemporaryDirectory directory;
    Processes ranks(size, [&](int rank) {
      auto comm = join(directory, rank, size);
      if (!comm) return std::string("did not meet");
      std::string wrong;
      for (const auto& check : comm_suite())
        if (auto text = check.run(*comm); !text.empty()) wrong += check.name + ": " + text + "\n";
      return wrong;
    });
    for (int rank = 0; rank < size; ++rank) EXPECT_EQ(ranks.text(rank), "") << "rank " << rank << " of " << size;
    EXPECT_THAT(tree(directory.at("meet")), ::testing::ElementsAre("lock")) << "something is left of " << size;
  }
}

TEST(DirectoryComm, RankThatIsKilledIsNamedAtOnce) {
  TemporaryDirectory directory;
  auto began = std::chrono::steady_clock::now();
  Processes ranks(3, [&](int rank) {
    auto comm = join(directory, rank, 3);
    if (!comm->all_gather({}, deadline_in(30s)).ok()) return std::string("bad start");
    if (rank == 1) ::raise(SIGKILL);
    auto all = comm->all_gather({}, deadline_in(30s));
    return all.ok() ? "ok" : all.error().text();
  });
  for (int rank : {0, 2}) EXPECT_THAT(ranks.text(rank), HasSubstr("rank 1 ended before the work was done"));
  EXPECT_LT(std::chrono::steady_clock::now() - began, 10s);
}

TEST(DirectoryComm, RankThatMakesNoCloneIsNamed) {
  TemporaryDirectory directory;
  Processes ranks(3, [&](int rank) {
    auto comm = join(directory, rank, 3);
    if (!comm->all_gather({}, deadline_in(30s)).ok()) return std::string("bad start");
    if (rank == 1) ::raise(SIGKILL);
    auto twin = comm->clone();
    return twin.ok() ? "ok" : twin.error().text();
  });
  for (int rank : {0, 2}) EXPECT_THAT(ranks.text(rank), HasSubstr("rank 1 ended before the work was done"));
}

/// No file can be made, not even the one that says so: the others do not wait for it.
TEST(DirectoryComm, RankThatCannotSpeakIsNoticedAtOnce) {
  TemporaryDirectory directory;
  auto began = std::chrono::steady_clock::now();
  Processes ranks(2, [&](int rank) {
    auto comm = join(directory, rank, 2);
    std::vector<int> taken;
    if (rank == 1)
      for (int fd; (fd = ::open("/dev/null", O_RDONLY)) >= 0;) taken.push_back(fd);
    auto all = comm->all_gather({}, deadline_in(30s));
    if (rank == 1) ::sleep(2);
    for (int fd : taken) ::close(fd);
    return all.ok() ? "ok" : all.error().text();
  });
  for (int rank : {0, 1}) EXPECT_THAT(ranks.text(rank), HasSubstr("Too many open files"));
  EXPECT_LT(std::chrono::steady_clock::now() - began, 10s);
}

TEST(DirectoryComm, RankThatIsStoppedIsNamedInTime) {
  TemporaryDirectory directory;
  Processes ranks(3, [&](int rank) {
    auto comm = join(directory, rank, 3);
    if (!comm->all_gather({}, deadline_in(30s)).ok()) return std::string("bad start");
    if (rank == 2) ::raise(SIGSTOP);
    Bytes bytes(8);
    Comm::Part part{2, bytes};  // only rank 0 waits for rank 2; rank 1 learns of it
    auto status = rank == 0 ? comm->exchange({}, {&part, 1}, deadline_in(400ms)) : Status();
    if (status.ok()) status = agree(*comm, {}, deadline_in(20s));
    return status.ok() ? "ok" : status.error().text();
  });
  for (int rank : {0, 1}) EXPECT_THAT(ranks.text(rank), HasSubstr("rank 2 did not answer in time"));
  ranks.signal(2, SIGCONT);
  EXPECT_THAT(ranks.text(2), HasSubstr("rank 2 did not answer in time"));
}

TEST(DirectoryComm, RanksThatDoNotComeAreNamedToAll) {
  TemporaryDirectory directory;
  Processes ranks(2, [&](int rank) { return meet_only(directory.path(), rank, 4, rank == 0 ? 300ms : 20000ms); });
  for (int rank : {0, 1}) EXPECT_THAT(ranks.text(rank), HasSubstr("ranks 2, 3 did not come in time"));
}

TEST(DirectoryComm, OfManyMissingRanksTheFirstAreNamed) {
  TemporaryDirectory directory;
  EXPECT_THAT(meet_only(directory.path(), 0, 64, 100ms), HasSubstr("19, 20 and 43 more did not come in time"));
}

TEST(DirectoryComm, RankZeroThatDoesNotComeIsNamed) {
  TemporaryDirectory directory;
  EXPECT_THAT(meet_only(directory.path(), 1, 2, 100ms), HasSubstr("rank 0 did not come in time"));
}

TEST(DirectoryComm, TwoOfOneRankAndOtherNumbersAreRefused) {
  {
    TemporaryDirectory directory;
    Processes ranks(3, [&](int rank) { return meet_only(directory.path(), rank == 2 ? 1 : rank, 3, 20000ms); });
    for (int rank : {0, 1, 2}) EXPECT_THAT(ranks.text(rank), HasSubstr("two processes come as rank 1"));
  }
  TemporaryDirectory directory;
  Processes ranks(2, [&](int rank) { return meet_only(directory.path(), rank, rank == 0 ? 2 : 3, 20000ms); });
  for (int rank : {0, 1}) EXPECT_THAT(ranks.text(rank), HasSubstr("rank 1 says another number of ranks than rank 0"));
  EXPECT_THAT(meet_only(directory.path(), 2, 2, 100ms), HasSubstr("no such rank"));
}

TEST(DirectoryComm, SecondJobIsTurnedAway) {
  TemporaryDirectory directory;
  auto first = join(directory, 0, 1);
  ASSERT_TRUE(first);
  EXPECT_THAT(meet_only(directory.at("meet"), 0, 1, 100ms), HasSubstr("another job meets in this directory"));
  first.reset();
  EXPECT_TRUE(join(directory, 0, 1));
}

/// What a killed job left, with letters, hellos, welcomes and refusals of its own, is no part of the next.
TEST(DirectoryComm, StaleRunsAreToldApart) {
  TemporaryDirectory directory;
  {
    Processes killed(3, [&](int rank) {
      auto comm = join(directory, rank, 3);
      (void)comm->all_gather(bytes_of("old"), deadline_in(30s));
      if (rank == 2) ::pause();  // never gets to the second: letters of the others wait for it
      (void)comm->all_gather(bytes_of("old"), deadline_in(30s));
      ::pause();
      return std::string();
    });
    std::this_thread::sleep_for(300ms);
  }
  ASSERT_GT(tree(directory.at("meet")).size(), 4u) << "nothing is stale";
  // To one who was never there, as well: a refusal that nobody cleared away.
  std::string old = directory.at("meet/run-" + read_file(directory.at("meet/run")));
  std::filesystem::remove(old + "/hello.2");
  write_file(old + "/refused", "old");
  Processes ranks(3, [&](int rank) {
    if (rank == 0) std::this_thread::sleep_for(200ms);  // the others find the old run first
    auto comm = join(directory, rank, 3);
    if (!comm) return std::string("did not meet");
    for (int call = 0; call < 3; ++call) {
      auto all = comm->all_gather(bytes_of("new"), deadline_in(30s));
      if (!all.ok()) return all.error().text();
      for (const auto& text : *all)
        if (text_of(text) != "new") return std::string("an old letter");
    }
    return std::string("met");
  });
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks.text(rank), "met");
  EXPECT_THAT(tree(directory.at("meet")), ::testing::ElementsAre("lock"));
}

}  // namespace
}  // namespace shardwright::testing_support
