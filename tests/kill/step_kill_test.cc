// Stops what a manager does to its steps at every change to the disk: what has a step's name is always a whole step, old or new; what else is left goes
// with prune, and doing it again gets it done.
#include <errno.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>

#include "shardwright/engine/jobs.h"
#include "shardwright/manager/steps.h"
#include "shardwright/store/testing.h"

namespace shardwright {
namespace {

namespace fs = std::filesystem;
using testing_support::TemporaryDirectory;
using Words = std::vector<std::string>;
using Steps = std::map<uint64_t, float>;  ///< number -> value

struct Case {
  std::string name;
  std::vector<std::pair<uint64_t, float>> before;
  Words command;               ///< ROOT left out
  std::vector<Steps> allowed;  ///< states between; the last one is how it ends
  Words after;                 ///< names in the root in the end
  std::string how{};           ///< word for the steps before
};

std::vector<Case> cases() {
  return {
      // One file is written, one is a link to that of the step before.
      {"incremental",
       {{1, 1}},
       {"save", "2", "2", "incremental"},
       {{{1, 1}}, {{1, 1}, {2, 2}}},
       {"1", "2"},
       "incremental"},
      {"replace", {{1, 1}, {2, 2}}, {"save", "1", "7", "replace"}, {{{1, 1}, {2, 2}}, {{1, 7}, {2, 2}}}, {"1", "2"}},
      {"branch",
       {{1, 1}, {3, 3}, {4, 4}},
       {"save", "2", "9", "branch"},
       {{{1, 1}, {3, 3}, {4, 4}}, {{1, 1}, {3, 3}}, {{1, 1}}, {{1, 1}, {2, 9}}},
       {".branches", "1", "2"}},
      {"forget",
       {{1, 1}, {2, 2}, {3, 3}, {4, 4}},
       {"forget", "2"},
       {{{1, 1}, {2, 2}, {3, 3}, {4, 4}}, {{2, 2}, {3, 3}, {4, 4}}, {{3, 3}, {4, 4}}},
       {"3", "4"}},
  };
}

void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

/// Exit status, or minus the signal. at 0: not killed.
int drive(const std::string& root, Words words, long at) {
  words.insert(words.begin() + 1, root);
  words.insert(words.begin(), STEP_DRIVER);
  pid_t child = ::fork();
  if (child == 0) {
    if (at > 0) {
      ::setenv("LD_PRELOAD", KILLPOINT_LIBRARY, 1);
      ::setenv("KILLPOINT_ROOT", root.c_str(), 1);
      ::setenv("KILLPOINT_AT", std::to_string(at).c_str(), 1);
    }
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    ::_exit(97);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

float value_of(const Checkpoint& opened, const char* name) {
  float value = 0;
  auto id = opened.catalog.find(name);
  EXPECT_TRUE(id) << name;
  if (!id) return value;
  EXPECT_OK(read_box(opened, *id, {{4999}, {1}}, MutableView(reinterpret_cast<std::byte*>(&value), 4)));
  return value;
}

/// Values of all steps; fails for what has a step's name and is none.
Steps look(const std::string& root) {
  Steps out;
  auto steps = list_steps(root, StepNames{});
  EXPECT_OK(steps);
  for (const auto& step : *steps) {
    EXPECT_TRUE(step.complete) << step.name << ": " << step.proof;
    auto opened = open_checkpoint(root + "/" + step.name + "/state");
    EXPECT_OK(opened);
    if (!opened.ok()) continue;
    out[step.facts.step] = value_of(*opened, "w");
    if (opened->catalog.find("frozen")) {
      EXPECT_EQ(value_of(*opened, "frozen"), 0.5f) << step.name;
    }
  }
  return out;
}

Words names(const std::string& root) {
  Words out;
  for (const auto& entry : fs::directory_iterator(root)) out.push_back(entry.path().filename().string());
  std::sort(out.begin(), out.end());
  return out;
}

class StepKill : public testing::TestWithParam<Case> {};

TEST_P(StepKill, EveryPoint) {
  const Case& one = GetParam();
  std::string place = ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : fs::temp_directory_path().string();
  TemporaryDirectory directory(place);
  const std::string model = directory.at("model");
  for (const auto& [step, value] : one.before)
    ASSERT_EQ(drive(model, {"save", std::to_string(step), std::to_string(value), one.how}, 0), 0);
  std::set<size_t> seen;
  long at = 1;
  for (;; ++at) {
    SCOPED_TRACE(testing::Message() << "call " << at);
    std::string root = directory.at("run");
    fs::remove_all(root);
    fs::copy(model, root, fs::copy_options::recursive);
    int status = drive(root, one.command, at);
    ASSERT_TRUE(status == 0 || status == -SIGKILL) << status;
    Steps now = look(root);
    auto state = std::find(one.allowed.begin(), one.allowed.end(), now);
    ASSERT_NE(state, one.allowed.end()) << testing::PrintToString(now);
    seen.insert(static_cast<size_t>(state - one.allowed.begin()));
    ASSERT_OK(prune_steps(root, StepNames{}, {.age = std::chrono::seconds(0), .branches = false}));
    ASSERT_EQ(look(root), now) << "after prune";
    for (const auto& name : names(root)) ASSERT_TRUE(name == ".branches" || StepNames{}.step_of(name)) << name;
    // Again, to the end; what was done already may say so.
    if (now != one.allowed.back()) {
      ASSERT_EQ(drive(root, one.command, 0), 0);
    }
    ASSERT_EQ(look(root), one.allowed.back());
    ASSERT_EQ(names(root), one.after);
    if (status == 0) break;
  }
  EXPECT_EQ(seen.size(), one.allowed.size()) << "a state between was never met";
  EXPECT_GT(at, 10);
  if (one.how == "incremental") {  // what both share is whole in the one that is left
    EXPECT_GE(list_steps(directory.at("run"), StepNames{})->back().shared_bytes, 20000u);
    ASSERT_EQ(drive(directory.at("run"), {"forget", "1"}, 0), 0);
    EXPECT_EQ(look(directory.at("run")), (Steps{{2, 2}}));
  }
  std::printf("%s: %ld points\n", one.name.c_str(), at);
}

INSTANTIATE_TEST_SUITE_P(All, StepKill, testing::ValuesIn(cases()), [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace shardwright
