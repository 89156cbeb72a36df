#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "shardwright/comm/processes_for_test.h"
#include "shardwright/format/format.h"
#include "shardwright/manager/manager.h"
#include "shardwright/store/testing.h"

namespace shardwright {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr int64_t kRows = 64, kColumns = 500;
constexpr uint64_t kSplitBytes = kRows * kColumns * 4, kWholeBytes = 100 * 4;

/// One rank of a job with a manager: it has its rows of "split", and all of "whole".
struct Rank {
  Rank(const TemporaryDirectory& directory, int number, int count, ManagerOptions options = {},
       const std::string& at = "")
      : rank(number), ranks(count), root(at.empty() ? directory.at("run") : at) {
    auto comm = meet_in_directory(directory.at("meet"), rank, ranks, deadline_in(20s));
    EXPECT_OK(comm);
    auto opened = CheckpointManager::open(root, std::move(options), std::move(*comm));
    EXPECT_OK(opened);
    manager = std::move(*opened);
  }
  CheckpointManager::Request request(uint64_t step, Hold hold = Hold::kStaged) {
    int64_t rows = kRows / ranks;
    split.assign(static_cast<size_t>(rows * kColumns), frozen ? 0.f : static_cast<float>(step));
    for (size_t i = 0; i < split.size(); ++i)
      split[i] += static_cast<float>(rank * rows) + static_cast<float>(i) / kColumns;
    whole.assign(100, static_cast<float>(step));
    CatalogBuilder builder;
    auto encoding = builder.add_encoding({DType::kF32});
    auto at = [](const std::vector<float>& values) {
      return Place{Place::kMemory, -1, 0, reinterpret_cast<uint64_t>(values.data()), values.size() * 4};
    };
    int64_t shape[] = {kRows, kColumns}, hundred[] = {100};
    EXPECT_OK(builder.add_tensor("split", DType::kF32, shape));
    EXPECT_OK(builder.add_piece({{{rank * rows, 0}, {rows, kColumns}}, at(split), encoding, {}}));
    EXPECT_OK(builder.add_tensor("whole", DType::kF32, hundred));
    EXPECT_OK(builder.add_piece({{{0}, {100}}, at(whole), encoding, {}}));
    if (with_columns) {
      EXPECT_OK(builder.add_tensor("columns", DType::kF32, shape));
      int64_t columns = kColumns / ranks;
      EXPECT_OK(builder.add_piece({{{0, rank * columns}, {kRows, columns}}, at(split), encoding, {}}));
    }
    CheckpointManager::Request out;
    out.content.step = step;
    out.content.tensors = *builder.build(/*partial=*/true);
    out.content.files = {{fmt::format("iterator/process_{}-of-{}.json", rank, ranks), std::to_string(rank)}};
    out.hold = hold;
    return out;
  }
  /// "saved", or the errors of save() and wait().
  std::string save(CheckpointManager::Request request, const JobOptions& job = {}) {
    auto saved = manager->save(std::move(request), job), waited = manager->wait();
    if (saved.ok() && waited.ok()) return "saved";
    std::string text = saved.ok() ? "" : "save: " + saved.error().text();
    return text + (waited.ok() ? "" : "wait: " + waited.error().text());
  }

  int rank, ranks;
  bool frozen = false;        ///< "split" is the same in every step
  bool with_columns = false;  ///< the same values again, as columns of another tensor
  std::string root;
  std::vector<float> split, whole;
  std::unique_ptr<CheckpointManager> manager;
};

std::vector<std::string> texts_of(int count, const std::function<std::string(int)>& run) {
  Processes processes(count, run);
  std::vector<std::string> texts;
  for (int rank = 0; rank < count; ++rank) texts.push_back(processes.text(rank));
  return texts;
}

std::vector<uint64_t> complete_steps(const std::string& root) {
  std::vector<uint64_t> out;
  auto steps = list_steps(root, std::nullopt);
  EXPECT_OK(steps);
  for (const auto& step : *steps)
    if (step.complete) out.push_back(step.facts.step);
  return out;
}

void expect_values(const std::string& root, uint64_t step) {
  auto opened = open_checkpoint(*tensors_of_step(root + "/" + std::to_string(step)));
  ASSERT_OK(opened);
  std::vector<float> split(kRows * kColumns), whole(100);
  auto view = [](std::vector<float>& values) {
    return MutableView(reinterpret_cast<std::byte*>(values.data()), values.size() * 4);
  };
  ASSERT_OK(read_box(*opened, *opened->catalog.find("split"), {{0, 0}, {kRows, kColumns}}, view(split)));
  ASSERT_OK(read_box(*opened, *opened->catalog.find("whole"), {{0}, {100}}, view(whole)));
  for (int64_t row = 0; row < kRows; ++row)
    EXPECT_FLOAT_EQ(split[static_cast<size_t>(row * kColumns)], static_cast<float>(step) + static_cast<float>(row));
  EXPECT_EQ(whole[99], static_cast<float>(step));
}

TEST(ManagerRanks, EachWritesItsOwnAndOneCommits) {
  for (int ranks : {2, 4})
    for (std::string format : {"orbax", "safetensors", "keras-sharded"}) {
      TemporaryDirectory directory;
      auto texts = texts_of(ranks, [&](int number) {
        Rank rank(directory, number, ranks, {.retention = {.last = 2}});
        std::string said;
        for (uint64_t step : {1, 2, 3}) {
          auto request = rank.request(step);
          request.content.format = format;
          if (rank.save(std::move(request)) != "saved") return std::string("not saved");
        }
        auto last = rank.manager->last();
        return fmt::format("{} {} {}", last.step, last.tensors, last.own_bytes);
      });
      uint64_t most = 0, sum = 0;
      for (const auto& text : texts) {
        ASSERT_TRUE(text.starts_with("3 2 ")) << text;
        uint64_t bytes = std::stoull(text.substr(4));
        sum += bytes;
        most = std::max(most, bytes);
      }
      EXPECT_EQ(sum, kSplitBytes + kWholeBytes) << format;
      EXPECT_LE(most, kSplitBytes / static_cast<uint64_t>(ranks) + kWholeBytes) << format;
      std::string root = directory.at("run");
      EXPECT_THAT(complete_steps(root), ElementsAre(2, 3));
      for (uint64_t step : {2, 3}) expect_values(root, step);
      for (int rank = 0; rank < ranks; ++rank)
        EXPECT_EQ(read_file(fmt::format("{}/3/iterator/process_{}-of-{}.json", root, rank, ranks)),
                  std::to_string(rank));
      std::vector<std::string> findings;
      auto verified = verify_checkpoint({*tensors_of_step(root + "/3"), true, root + "/3/shardwright.manifest.json"},
                                        {}, [&](const Error& error) { findings.push_back(error.text()); });
      EXPECT_OK(verified);
      EXPECT_THAT(findings, ElementsAre());
    }
}

Json sums_in(const std::string& step) {
  auto json = parse_json(read_file(step + "/shardwright.manifest.json"));
  EXPECT_OK(json);
  return json_member(*json, "checkpoints");
}

/// Though a tensor is written by several, and its parts lie between one another.
TEST(ManagerRanks, ChecksumsAreThoseThatOneProcessTakes) {
  for (std::string format : {"safetensors", "keras-sharded", "keras-h5"}) {
    TemporaryDirectory directory;
    auto texts = texts_of(4, [&](int number) {
      Rank rank(directory, number, 4);
      rank.with_columns = true;
      auto request = rank.request(1);
      request.content.format = format;
      return rank.save(std::move(request));
    });
    ASSERT_THAT(texts, testing::Each("saved"));
    auto saved = open_checkpoint(*tensors_of_step(directory.at("run/1")));
    ASSERT_OK(saved);
    std::vector<std::vector<float>> values;
    CatalogBuilder builder;
    for (TensorId id = 0; id < saved->catalog.size(); ++id) {
      auto spec = saved->catalog.spec(id);
      auto& all = values.emplace_back(spec.elements());
      MutableView view(reinterpret_cast<std::byte*>(all.data()), all.size() * 4);
      ASSERT_OK(read_box(*saved, id, Box::whole(spec.shape), view));
      ASSERT_OK(builder.add_tensor(spec.name, spec.dtype, spec.shape));
      ASSERT_OK(builder.add_flat({Place::kMemory, -1, 0, reinterpret_cast<uint64_t>(all.data()), all.size() * 4},
                                 DType::kF32));
    }
    StepContent content;
    content.step = 1;
    content.format = format;
    content.tensors = *builder.build();
    ASSERT_OK(write_step(directory.at("alone"), {}, content, {}, {}));
    EXPECT_EQ(sums_in(directory.at("run/1")), sums_in(directory.at("alone/1"))) << format;
    EXPECT_EQ(json_member(sums_in(directory.at("run/1")).front(), "stored").size(), 3u) << format;
  }
}

TEST(ManagerRanks, WhatDoesNotChangeIsWrittenOnceByAll) {
  for (std::string format : {"orbax", "safetensors"}) {
    TemporaryDirectory directory;
    auto texts = texts_of(2, [&](int number) {
      Rank rank(directory, number, 2);
      rank.frozen = true;
      std::string said;
      for (uint64_t step : {1, 2, 3}) {
        auto request = rank.request(step);
        request.content.format = format;
        request.content.incremental = true;
        request.content.max_shard_bytes = 10'000;
        if (rank.save(std::move(request)) != "saved") return std::string("not saved");
        auto last = rank.manager->last();
        said += fmt::format("{} {}|", last.own_bytes, last.linked_bytes >= kSplitBytes);
      }
      return said;
    });
    auto half = kSplitBytes / 2;
    EXPECT_EQ(texts[0], fmt::format("{0} false|{1} true|{1} true|", half + kWholeBytes, kWholeBytes)) << format;
    EXPECT_EQ(texts[1], fmt::format("{} false|0 true|0 true|", half)) << format;
    auto opened = open_checkpoint(*tensors_of_step(directory.at("run/3")));
    ASSERT_OK(opened);
    float value = 0;
    MutableView view(reinterpret_cast<std::byte*>(&value), 4);
    ASSERT_OK(read_box(*opened, *opened->catalog.find("split"), {{40, 0}, {1, 1}}, view));
    EXPECT_EQ(value, 40);
    ASSERT_OK(read_box(*opened, *opened->catalog.find("whole"), {{0}, {1}}, view));
    EXPECT_EQ(value, 3);
  }
}

/// In a second attempt by as many the same step is saved: what was left is in nobody's way.
void expect_saved_again(const TemporaryDirectory& directory, uint64_t step, int ranks) {
  auto texts = texts_of(ranks, [&](int number) {
    Rank rank(directory, number, ranks);
    return rank.save(rank.request(step));
  });
  for (const auto& text : texts) EXPECT_EQ(text, "saved");
  expect_values(directory.at("run"), step);
  for (const auto& entry : fs::directory_iterator(directory.at("run")))
    EXPECT_NE(entry.path().filename().string()[0], '.') << entry.path();
}

/// Killed when all is written and rank 0 is about to commit, or before it writes: 0 and another.
TEST(ManagerRanks, OneThatDiesIsNamedAndTheStepDoesNotAppear) {
  for (int dead : {0, 2}) {
    TemporaryDirectory directory;
    Processes processes(4, [&](int number) {
      Rank rank(directory, number, 4);
      EXPECT_EQ(rank.save(rank.request(1)), "saved");
      if (dead != 0 && number == 1) std::this_thread::sleep_for(200ms);  // the others wait, and ask for progress
      JobOptions job;
      job.progress = [&](std::string_view phase, uint64_t, uint64_t) {
        if (number == dead && (dead != 0 || phase == "sync")) ::raise(SIGKILL);
        return true;
      };
      return rank.save(rank.request(2, Hold::kBlocking), job);
    });
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == dead) continue;
      EXPECT_THAT(processes.text(rank), HasSubstr(fmt::format("rank {} ended", dead)));
    }
    EXPECT_THAT(complete_steps(directory.at("run")), ElementsAre(1));
    expect_saved_again(directory, 2, 2);  // by fewer
  }
}

TEST(ManagerRanks, OneThatStopsIsNamedInTime) {
  TemporaryDirectory directory;
  ManagerOptions options;
  options.job.wait = 500ms;
  Processes processes(4, [&](int number) {
    Rank rank(directory, number, 4, options);
    EXPECT_EQ(rank.save(rank.request(1)), "saved");
    if (number == 3) ::raise(SIGSTOP);
    return rank.save(rank.request(2));
  });
  for (int rank : {0, 1, 2}) EXPECT_THAT(processes.text(rank), HasSubstr("wait: rank 3 did not answer in time"));
  EXPECT_THAT(complete_steps(directory.at("run")), ElementsAre(1));
  processes.signal(3, SIGCONT);
  EXPECT_THAT(processes.text(3), HasSubstr("rank 3"));
  expect_saved_again(directory, 2, 4);
}

/// Rank 0 is told in time, rank 1 when it comes; they go on.
TEST(ManagerRanks, ADeadlineThatPassesWhileRanksWaitIsEveryonesFailureOnce) {
  TemporaryDirectory directory;
  auto texts = texts_of(2, [&](int number) {
    Rank rank(directory, number, 2);
    std::string said = rank.save(rank.request(1));
    if (number == 1) std::this_thread::sleep_for(700ms);
    auto began = std::chrono::steady_clock::now();
    auto request = rank.request(2);
    if (number == 0) request.until = began + 100ms;
    said += "|" + rank.save(std::move(request));
    bool in_time = std::chrono::steady_clock::now() - began < 650ms;  // rank 1 comes at 700
    return said + (in_time ? "|in time|" : "|late|") + rank.save(rank.request(3));
  });
  for (const auto& text : texts) EXPECT_EQ(text, "saved|wait: step 2 was not saved by its deadline|in time|saved");
  EXPECT_THAT(complete_steps(directory.at("run")), ElementsAre(1, 3));
}

TEST(ManagerRanks, OneThatIsSlowIsWaitedForInTheBackground) {
  TemporaryDirectory directory;
  auto texts = texts_of(2, [&](int number) {
    Rank rank(directory, number, 2);
    if (number == 1) std::this_thread::sleep_for(600ms);
    auto began = std::chrono::steady_clock::now();
    auto saved = rank.manager->save(rank.request(1), {});
    bool at_once = std::chrono::steady_clock::now() - began < 300ms;
    return saved.ok() && at_once && rank.manager->wait().ok() ? "saved" : "waited for";
  });
  EXPECT_THAT(texts, ElementsAre("saved", "saved"));
  expect_values(directory.at("run"), 1);
}

/// What one refuses by itself is everyone's failure, once, and the ranks go on.
TEST(ManagerRanks, WhatOneCannotDoIsEveryonesFailure) {
  TemporaryDirectory directory;
  auto texts = texts_of(4, [&](int number) {
    Rank rank(directory, number, 4, {.staging_bytes = number == 1 ? 100'000u : GiB});
    auto large = rank.request(1);
    std::vector<float> more(100'000);
    CatalogBuilder builder;
    int64_t shape[] = {100'000};
    EXPECT_OK(builder.add_tensor("more", DType::kF32, shape));
    EXPECT_OK(builder.add_flat({Place::kMemory, -1, 0, reinterpret_cast<uint64_t>(more.data()), 400'000}, DType::kF32));
    large.content.tensors = *builder.build();
    std::string said = rank.save(std::move(large));
    for (uint64_t step : {5, 5, 6}) said += "|" + rank.save(rank.request(step));
    return said;
  });
  const std::string full = "what is to be saved does not fit the staging memory", there = "step 5 is there already";
  for (int rank = 0; rank < 4; ++rank) {
    const std::string& text = texts[static_cast<size_t>(rank)];
    auto said = [&](int refuses, const std::string& what) { return (rank == refuses ? "save: " : "wait: ") + what; };
    EXPECT_TRUE(text.starts_with(said(1, full))) << text;
    EXPECT_THAT(text, HasSubstr("|saved|"));
    EXPECT_THAT(text, HasSubstr(there));
    EXPECT_TRUE(text.ends_with("|saved")) << text;
  }
  EXPECT_THAT(complete_steps(directory.at("run")), ElementsAre(5, 6));
}

/// Each has a directory of its own by the same name.
TEST(ManagerRanks, DirectoriesThatAreNotSharedAreFoundOut) {
  TemporaryDirectory directory;
  auto texts = texts_of(2, [&](int number) {
    std::string own = directory.at(std::to_string(number));
    fs::create_directories(own);
    fs::current_path(own);
    Rank rank(directory, number, 2, {}, "/proc/self/cwd/run");
    return rank.save(rank.request(1));
  });
  for (const auto& text : texts) EXPECT_THAT(text, HasSubstr("this rank does not see what rank 0 has begun to write"));
  EXPECT_THAT(tree(directory.at("0/run")), ElementsAre());
}

TEST(ManagerRanks, RanksThatSaveDifferentStepsAreTold) {
  TemporaryDirectory directory;
  auto texts = texts_of(2, [&](int number) {
    Rank rank(directory, number, 2);
    return rank.save(rank.request(number == 0 ? 1 : 2));
  });
  for (const auto& text : texts) EXPECT_THAT(text, HasSubstr("rank 1 asks for something else than rank 0"));
  EXPECT_THAT(complete_steps(directory.at("run")), ElementsAre());
}

}  // namespace
}  // namespace shardwright
