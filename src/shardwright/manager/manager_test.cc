#include "shardwright/manager/manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <numeric>
#include <thread>

#include "shardwright/comm/processes_for_test.h"
#include "shardwright/format/format.h"
#include "shardwright/store/testing.h"

namespace shardwright {
namespace {

using namespace testing_support;
using std::chrono::seconds, std::chrono::steady_clock;
using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

class Manager : public testing::Test {
 protected:
  /// [rows, 3] floats; `transposed`: as they lie in memory of [3, rows].
  Catalog tensors(bool transposed = false) {
    CatalogBuilder builder;
    int64_t rows = static_cast<int64_t>(values.size()) / 3, shape[] = {rows, 3};
    EXPECT_OK(builder.add_tensor("w", DType::kF32, shape));
    Place place{Place::kMemory, -1, 0, reinterpret_cast<uint64_t>(values.data()), values.size() * 4};
    std::vector<int64_t> strides = transposed ? std::vector<int64_t>{1, rows} : std::vector<int64_t>();
    EXPECT_OK(builder.add_piece({Box::whole(shape), place, builder.add_encoding({DType::kF32}), strides}));
    return *builder.build();
  }
  CheckpointManager::Request request(uint64_t step, Hold hold = Hold::kStaged) {
    CheckpointManager::Request out;
    out.content.step = step;
    out.content.tensors = tensors();
    out.hold = hold;
    return out;
  }
  std::unique_ptr<CheckpointManager> open(ManagerOptions options = {}) {
    auto manager = CheckpointManager::open(directory.at("run"), std::move(options));
    EXPECT_OK(manager);
    return std::move(*manager);
  }
  float first_of(uint64_t step) {
    auto opened = open_checkpoint(directory.at("run/" + std::to_string(step) + "/state"));
    if (!opened.ok()) return ADD_FAILURE() << opened.error().text(), -1;
    float value = 0;
    EXPECT_OK(read_box(*opened, 0, {{0, 0}, {1, 1}}, MutableView(reinterpret_cast<std::byte*>(&value), 4)));
    return value;
  }
  static std::vector<uint64_t> complete(const CheckpointManager& manager) {
    std::vector<uint64_t> out;
    auto steps = manager.steps();
    EXPECT_OK(steps);
    for (const auto& step : *steps)
      if (step.complete) out.push_back(step.facts.step);
    return out;
  }

  TemporaryDirectory directory;
  std::vector<float> values = std::vector<float>(3000, 1.f);
};

TEST_F(Manager, WhatIsChangedAfterwardsNeverReachesTheFile) {
  values.assign(6'000'000, 1.f);
  auto manager = open();
  ASSERT_OK(manager->save(request(1), {}));
  std::ranges::fill(values, 9.f);
  ASSERT_OK(manager->wait());
  EXPECT_EQ(first_of(1), 1.f);
  auto opened = open_checkpoint(directory.at("run/1/state"));
  ASSERT_OK(opened);
  auto statistics = tensor_statistics(*opened, 0, {});
  ASSERT_OK(statistics);
  EXPECT_EQ(statistics->max, 1);
}

TEST_F(Manager, StagingMemoryIsUsedAgain) {
  auto manager = open();
  ASSERT_OK(manager->save(request(1), {}));
  uint64_t bytes = manager->staging_bytes();
  EXPECT_GE(bytes, 12000u);
  for (uint64_t step = 2; step < 6; ++step) {
    values[0] = static_cast<float>(step);
    ASSERT_OK(manager->save(request(step), {}));
  }
  ASSERT_OK(manager->wait());
  EXPECT_EQ(manager->staging_bytes(), bytes);
  for (uint64_t step = 2; step < 6; ++step) EXPECT_EQ(first_of(step), static_cast<float>(step));
  ASSERT_OK(manager->close());
  EXPECT_EQ(manager->staging_bytes(), 0u);
}

TEST_F(Manager, StagingHasALimit) {
  auto manager = open({.staging_bytes = 11999});
  EXPECT_CODE(manager->save(request(1), {}), Code::kResourceExhausted);
  EXPECT_OK(manager->save(request(1, Hold::kBlocking), {}));
  EXPECT_OK(manager->save(request(2, Hold::kStagedOrBlocking), {}));
  EXPECT_TRUE(manager->idle());
  EXPECT_THAT(complete(*manager), ElementsAre(1, 2));
}

/// More than any address space has: said before anything is copied, whatever the limit.
TEST_F(Manager, NoMemoryForACopyIsAnError) {
  CatalogBuilder builder;
  int64_t shape[] = {int64_t{1} << 45};
  ASSERT_OK(builder.add_tensor("w", DType::kF32, shape));
  Place place{Place::kMemory, -1, 0, reinterpret_cast<uint64_t>(values.data()), uint64_t{1} << 47};
  ASSERT_OK(builder.add_flat(place, DType::kF32));
  auto manager = open({.staging_bytes = uint64_t{1} << 60});
  auto large = request(1);
  large.content.tensors = *builder.build();
  auto refused = manager->save(std::move(large), {});
  EXPECT_CODE(refused, Code::kResourceExhausted);
  EXPECT_THAT(refused.error().message, HasSubstr("for a copy"));
  EXPECT_OK(manager->save(request(1), {}));
  EXPECT_OK(manager->wait());
}

/// The thread that saves is not there in the child: nothing there waits for it, and the parent's save is none of its business.
TEST_F(Manager, AForkSavesNothingAndWaitsForNothing) {
  values.assign(3'000'000, 4.f);
  auto manager = open();
  ASSERT_OK(manager->save(request(1), {}));
  pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    auto refused = manager->save(request(2), {});
    bool good = !refused.ok() && refused.error().message.find("forked") != std::string::npos && manager->idle() &&
                manager->wait().ok() && manager->latest().ok() && manager->close().ok();
    manager.reset();
    auto own =
        CheckpointManager::open(directory.at("other"), {});  // what the parent had locked at the fork is no lock here
    good = good && (*own)->save(request(1), {}).ok() && (*own)->close().ok();
    ::_exit(good ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_OK(manager->close());
  EXPECT_EQ(first_of(1), 4.f);
}

TEST_F(Manager, RulesApplyAfterEachSave) {
  auto manager = open({.retention = {.last = 2, .every_steps = 4}});
  for (uint64_t step = 1; step <= 7; ++step) {
    auto one = request(step);
    if (step == 7) one.keep = {6, 3};  // 3 is gone by then
    ASSERT_OK(manager->save(std::move(one), {}));
  }
  ASSERT_OK(manager->wait());
  EXPECT_THAT(complete(*manager), ElementsAre(4, 6, 7));
}

TEST_F(Manager, RestoresByNumberAndTheNewest) {
  auto manager = open();
  EXPECT_CODE(manager->restore(), Code::kNotFound);
  for (uint64_t step : {1, 2, 3}) {
    values[0] = static_cast<float>(step);
    ASSERT_OK(manager->save(request(step), {}));
  }
  ASSERT_OK(manager->wait());
  fs::remove(directory.at("run/3/state/_METADATA"));
  auto first_of_restored = [&](std::optional<uint64_t> step) {
    auto restored = manager->restore(step);
    EXPECT_OK(restored);
    float value = 0;
    EXPECT_OK(read_box(*restored, 0, {{0, 0}, {1, 1}}, MutableView(reinterpret_cast<std::byte*>(&value), 4)));
    return value;
  };
  EXPECT_EQ(first_of_restored({}), 2.f);
  EXPECT_EQ(first_of_restored(1), 1.f);
  EXPECT_CODE(manager->restore(3), Code::kCorrupt);
  EXPECT_CODE(manager->restore(4), Code::kNotFound);
}

/// A step that fails in the background: told once, by whichever call comes next; no step, and the next save works.
TEST_F(Manager, AFailureIsTold) {
  auto manager = open();
  ASSERT_OK(manager->save(request(1), {}));
  ASSERT_OK(manager->wait());
  auto bad = request(2);
  bad.until = steady_clock::now() - seconds(1);
  bad.content.settings = {{"compression", "zstd"}};
  values.assign(3'000'000, 2.f);
  bad.content.tensors = tensors();
  ASSERT_OK(manager->save(std::move(bad), {}));
  auto next = manager->save(request(3), {});
  EXPECT_CODE(next, Code::kAborted);
  EXPECT_THAT(next.error().context.back(), HasSubstr("step 2"));
  EXPECT_THAT(complete(*manager), ElementsAre(1));
  EXPECT_OK(manager->save(request(3), {}));
  EXPECT_OK(manager->wait());
  EXPECT_THAT(complete(*manager), ElementsAre(1, 3));
}

TEST_F(Manager, AFailureThatNobodyAskedForIsNotSilent) {
  std::string lost;
  {
    auto manager = open({.lost = [&](const Error& error) { lost = error.text(); }});
    auto bad = request(2);
    bad.content.settings = {{"compression", "lead"}};
    ASSERT_OK(manager->save(std::move(bad), {}));
  }
  EXPECT_THAT(lost, HasSubstr("no such option"));
}

TEST_F(Manager, TheEndWaitsForWhatWasHandedOver) {
  values.assign(3'000'000, 4.f);
  {
    EXPECT_OK(open()->save(request(1), {}));
  }
  EXPECT_EQ(first_of(1), 4.f);
}

TEST_F(Manager, RefusedAtOnce) {
  auto manager = open();
  ASSERT_OK(manager->save(request(5), {}));
  EXPECT_CODE(manager->save(request(5), {}), Code::kAlreadyExists);
  EXPECT_CODE(manager->save(request(4), {}), Code::kAlreadyExists);
  values[0] = 8;
  auto again = request(5);
  again.replace = true;
  ASSERT_OK(manager->save(std::move(again), {}));
  ASSERT_OK(manager->wait());
  EXPECT_EQ(first_of(5), 8.f);
  EXPECT_CODE(CheckpointManager::open("", {}), Code::kInvalidArgument);
  EXPECT_CODE(CheckpointManager::open("x", {.retention = {.last = 0}}), Code::kInvalidArgument);
}

TEST_F(Manager, WhatADeadProcessLeftIsCleared) {
  write_file(directory.at("run/.7.shardwright-1-0123456789abcdef/lock"), "");
  write_file(directory.at("run/8/notes"), "x");
  write_file(directory.at("run/.branches/0/x"), "x");
  auto manager = open();
  EXPECT_FALSE(fs::exists(directory.at("run/.7.shardwright-1-0123456789abcdef")));
  EXPECT_TRUE(fs::exists(directory.at("run/8/notes")));
  EXPECT_TRUE(fs::exists(directory.at("run/.branches/0/x")));
}

/// Two jobs on one directory.
TEST_F(Manager, OnlyOneWrites) {
  auto first = open(), second = open();
  ASSERT_OK(first->save(request(1), {}));
  auto refused = second->save(request(2), {});
  EXPECT_CODE(refused, Code::kUnavailable);
  EXPECT_THAT(refused.error().text(), HasSubstr("another manager of this process"));
  EXPECT_OK(second->latest());
  ASSERT_OK(first->close());
  EXPECT_FALSE(fs::exists(directory.at("run/.writer")));
  EXPECT_OK(second->save(request(2), {}));
  EXPECT_OK(second->wait());
  EXPECT_THAT(complete(*second), ElementsAre(1, 2));
}

/// The first one is stopped, and so keeps its claim; then it is killed, while a child of its lives on: that holds nothing.
TEST_F(Manager, AnotherProcessIsNamedUntilItEnds) {
  testing_support::Processes processes(1, [&](int) {
    auto other = open();
    EXPECT_OK(other->save(request(1), {}));
    EXPECT_OK(other->wait());
    if (::fork() == 0) {
      std::this_thread::sleep_for(seconds(2));
      ::_exit(0);
    }
    write_file(directory.at("there"), "");
    ::raise(SIGSTOP);
    return std::string();
  });
  while (!fs::exists(directory.at("there"))) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  auto manager = open();
  auto refused = manager->save(request(2), {});
  EXPECT_CODE(refused, Code::kUnavailable);
  EXPECT_THAT(refused.error().found, testing::MatchesRegex("process [0-9]+ on .+"));
  processes.signal(0, SIGKILL);
  EXPECT_OK(manager->save(request(2), {}));
  EXPECT_OK(manager->wait());
}

TEST_F(Manager, SnapshotOfAllKindsOfPieces) {
  std::iota(values.begin(), values.end(), 0.f);
  CatalogBuilder builder;
  int64_t shape[] = {4, 3};
  auto encoding = builder.add_encoding({DType::kF32});
  auto at = [&](size_t element) {
    return Place{Place::kMemory, -1, 0, reinterpret_cast<uint64_t>(&values[element]), 24};
  };
  ASSERT_OK(builder.add_tensor("halves", DType::kF32, shape));
  ASSERT_OK(builder.add_piece({{{0, 0}, {2, 3}}, at(0), encoding, {}}));
  ASSERT_OK(builder.add_piece({{{0, 0}, {2, 3}}, at(0), encoding, {}}));  // a replica
  ASSERT_OK(builder.add_piece({{{2, 0}, {2, 3}}, at(100), encoding, {1, 2}}));
  ASSERT_OK(builder.add_tensor("called", DType::kF32, shape));
  ASSERT_OK(builder.add_flat({Place::kCall, -1, 0, 0, 48}, DType::kF32));
  ASSERT_OK(builder.add_tensor("tied", DType::kF32, shape));
  builder.tie(2, 0);
  builder.set_value("metadata", {Value::kJson, "{}"});
  Catalog tensors = *builder.build();
  Calls calls;
  calls.produce = [](TensorId, const Box&, MutableView into) -> Status {
    std::ranges::fill(into, std::byte{7});
    return {};
  };
  Snapshot snapshot(MiB);
  EXPECT_EQ(Snapshot::needed_bytes(tensors), 64u * 3);
  auto held = snapshot.hold(tensors, calls);
  ASSERT_OK(held);
  std::ranges::fill(values, -1.f);
  EXPECT_EQ(held->same_as(2), 0u);
  EXPECT_NE(held->value("metadata"), nullptr);
  auto pieces = held->pieces(0);
  ASSERT_EQ(pieces.size(), 2u);
  auto floats = [](const Piece& piece) { return reinterpret_cast<const float*>(piece.place.offset); };
  EXPECT_THAT(std::vector<float>(floats(pieces[0]), floats(pieces[0]) + 6), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(std::vector<float>(floats(pieces[1]), floats(pieces[1]) + 6), ElementsAre(100, 102, 104, 101, 103, 105));
  EXPECT_EQ(*reinterpret_cast<const uint8_t*>(held->pieces(1)[0].place.offset + 47), 7);
}

}  // namespace
}  // namespace shardwright
