// Stops a commit at every change it makes to the disk and looks at what others see: old, new, or (where the names of old and new
// overlap) nothing; never a mix. Then lets recovery have its turn, which is stopped at every point as well.
#include <errno.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "scenarios.h"
#include "shardwright/store/testing.h"

namespace shardwright::kill_test {

void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.name; }

namespace {

namespace fs = std::filesystem;
using testing_support::read_file;
using testing_support::TemporaryDirectory;
using testing_support::tree;
using testing_support::write_file;

using Environment = std::vector<std::pair<std::string, std::string>>;

/// Runs the driver under the interposer. Returns its exit status, or minus the signal that ended it. Its messages go to `output`.
int run_driver(const std::vector<std::string>& arguments, const Environment& environment, const std::string& output) {
  pid_t child = ::fork();
  if (child == 0) {
    if (std::freopen(output.c_str(), "w", stdout) == nullptr || std::freopen(output.c_str(), "a", stderr) == nullptr)
      ::_exit(98);
    if (!environment.empty()) ::setenv("LD_PRELOAD", KILLPOINT_LIBRARY, 1);
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    std::vector<char*> argv = {const_cast<char*>(COMMIT_DRIVER)};
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    ::execv(COMMIT_DRIVER, argv.data());
    ::_exit(97);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/// What a loader that knows nothing of journals gets: the label of a whole set, "none", or "mix" and why.
std::string load(const std::string& directory, const std::vector<std::string>& entries) {
  for (const std::string& entry : entries) {
    std::string path = directory + "/" + entry;
    if (!fs::exists(path)) continue;
    std::istringstream words(read_file(path));
    std::string word, label;
    words >> label;
    if (label != "index") return read_file(path) == weights(label) ? label : "mix: " + entry + " is torn";
    words >> label;
    while (words >> word) {
      if (!fs::exists(directory + "/" + word)) return "none";
      if (read_file(directory + "/" + word) != weights(label)) return "mix: " + word + " is not " + label;
    }
    return label;
  }
  return "none";
}

/// Memory, where there is such a file system: thousands of runs sync tens of files each.
std::string fast_place() { return ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : fs::temp_directory_path().string(); }

/// Where one run happens. Made anew for each, because a killed program leaves things behind.
class Arena {
 public:
  explicit Arena(const Scenario& scenario) : scenario_(scenario) {
    if (scenario.links) other_ = std::make_unique<TemporaryDirectory>();
    std::string blobs = directory_.at("blobs");
    for (size_t i = 0; i < scenario.old_files.size(); ++i) {
      const auto& [name, text] = scenario.old_files[i];
      if (!scenario.links) {
        write_file(set() + "/" + name, text);
        continue;
      }
      std::string blob = (i == 0 && other_ ? other_->path() : blobs) + "/" + std::to_string(i);
      write_file(blob, text);
      fs::create_directories(set());
      fs::create_symlink(blob, set() + "/" + name);
    }
    old_tree_ = tree_now();
  }

  std::string set() const { return directory_.at("set"); }
  std::string output() const { return outside_.at("output"); }
  std::string trace() const { return outside_.at("trace"); }
  std::vector<std::string> tree_now() const {
    auto names = tree(directory_.path());
    if (!other_) return names;
    for (const std::string& name : tree(other_->path())) names.push_back("other/" + name);
    return names;
  }
  const std::vector<std::string>& old_tree() const { return old_tree_; }

  Environment environment(long at) const {
    std::string roots = directory_.path() + (other_ ? ":" + other_->path() : "");
    return {{"KILLPOINT_ROOT", roots}, {"KILLPOINT_TRACE", trace()}, {"KILLPOINT_AT", std::to_string(at)}};
  }
  int replace(long at, const Environment& more = {}) {
    Environment all = environment(at);
    all.insert(all.end(), more.begin(), more.end());
    return run_driver({"replace", scenario_.name, set()}, all, output());
  }
  int recover(long at = 0) {
    return run_driver({"recover", set()}, at == 0 ? Environment{} : environment(at), output());
  }

  /// Lines of the trace, split at tabs.
  std::vector<std::vector<std::string>> calls() const {
    std::vector<std::vector<std::string>> lines;
    std::istringstream in(read_file(trace()));
    for (std::string line; std::getline(in, line);) {
      lines.emplace_back();
      std::istringstream fields(line);
      for (std::string field; std::getline(fields, field, '\t');) lines.back().push_back(field);
    }
    return lines;
  }

  std::string seen(const std::vector<std::string>& entries) const { return load(set(), entries); }

 private:
  Scenario scenario_;
  TemporaryDirectory directory_{fast_place()}, outside_{fast_place()};
  std::unique_ptr<TemporaryDirectory> other_;
  std::vector<std::string> old_tree_;
};

class Kill : public ::testing::TestWithParam<Scenario> {
 protected:
  void SetUp() override {
    Arena arena(scenario_);
    ASSERT_EQ(arena.replace(0), 0) << read_file(arena.output());
    calls_ = arena.calls();
    new_tree_ = arena.tree_now();
    ASSERT_EQ(arena.seen(scenario_.first), "new");
    ASSERT_EQ(arena.seen(scenario_.second), "new");
    ASSERT_GE(calls_.size(), 10u);
    for (const auto& call : calls_) ASSERT_GE(call.size(), 3u);
  }

  void expect_no_mix(const Arena& arena) const {
    for (const auto* loader : {&scenario_.first, &scenario_.second}) {
      std::string label = arena.seen(*loader);
      bool fine =
          label == "new" || (label == "old" && !scenario_.old_files.empty()) || (label == "none" && scenario_.window);
      EXPECT_TRUE(fine) << "seen: " << label;
    }
  }

  /// After recovery: one of the two sets, whole, and nothing else.
  void expect_settled(const Arena& arena, bool old_possible = true) const {
    auto now = arena.tree_now();
    if (now == new_tree_ && arena.seen(scenario_.first) == "new") {
      EXPECT_EQ(arena.seen(scenario_.second), "new");
      return;
    }
    EXPECT_TRUE(old_possible);
    EXPECT_EQ(now, arena.old_tree());
    std::string wanted = scenario_.old_files.empty() ? "none" : "old";
    EXPECT_EQ(arena.seen(scenario_.first), wanted);
    EXPECT_EQ(arena.seen(scenario_.second), wanted);
  }

  std::string at(size_t n) const {
    std::string line = "killed before call " + std::to_string(n) + ":";
    if (n <= calls_.size()) {
      for (const std::string& field : calls_[n - 1]) line += " " + field;
    }
    return line;
  }

  const Scenario scenario_ = GetParam();
  std::vector<std::vector<std::string>> calls_;
  std::vector<std::string> new_tree_;
};

bool is_journal(const std::string& path) { return path.ends_with("/.shardwright-journal.json"); }
bool is_ours(const std::string& path) { return path.find(".shardwright-") != std::string::npos; }
std::string parent(const std::string& path) { return path.substr(0, path.rfind('/')); }

TEST_P(Kill, OthersSeeOldOrNewAtEveryPointAndSoAfterRecovery) {
  for (size_t n = 1; n <= calls_.size() + 1; ++n) {
    SCOPED_TRACE(at(n));
    Arena arena(scenario_);
    int status = arena.replace(static_cast<long>(n));
    ASSERT_EQ(status, n <= calls_.size() ? -SIGKILL : 0) << read_file(arena.output());
    expect_no_mix(arena);
    ASSERT_EQ(arena.recover(), 0) << read_file(arena.output());
    expect_settled(arena, n <= calls_.size());
    if (n % 7 == 0) {  // and what is left is a good place to begin anew
      ASSERT_EQ(arena.replace(0), 0) << read_file(arena.output());
      EXPECT_EQ(arena.seen(scenario_.first), "new");
      EXPECT_EQ(arena.tree_now(), new_tree_);
    }
    if (HasFailure()) break;
  }
}

TEST_P(Kill, RecoveryMayBeKilledAtEveryPointToo) {
  // From the moment when the most is left to be done: just after the journal has become durable.
  auto made = std::find_if(calls_.begin(), calls_.end(),
                           [](const auto& call) { return call[1] == "rename" && is_journal(call[3]); });
  if (made == calls_.end()) GTEST_SKIP() << "no journal needed";
  long crash = made - calls_.begin() + 3;  // after its rename and its directory's sync
  for (long n = 1; n < 200; ++n) {
    SCOPED_TRACE("recovery killed before its call " + std::to_string(n));
    Arena arena(scenario_);
    ASSERT_EQ(arena.replace(crash), -SIGKILL);
    fs::remove(arena.trace());
    int status = arena.recover(n);
    expect_no_mix(arena);
    if (status == 0) {
      EXPECT_GT(n, 5);
      expect_settled(arena, false);
      return;
    }
    ASSERT_EQ(status, -SIGKILL) << read_file(arena.output());
    ASSERT_EQ(arena.recover(), 0) << read_file(arena.output());
    expect_settled(arena, false);
    if (HasFailure()) return;
  }
  FAIL() << "recovery never ended";
}

/// A call that fails instead: the program goes on, says so, and cleans up.
TEST_P(Kill, AFailingCallEndsInOldOrNewToo) {
  // Once, as a bad sector; and from then on, as a full disk.
  const Environment faults[] = {{{"KILLPOINT_ERRNO", std::to_string(EIO)}},
                                {{"KILLPOINT_ERRNO", std::to_string(ENOSPC)}, {"KILLPOINT_STICKY", "1"}}};
  for (const Environment& fault : faults) {
    for (size_t n = 1; n <= calls_.size(); ++n) {
      SCOPED_TRACE(at(n) + ", failing with errno " + fault[0].second);
      Arena arena(scenario_);
      int status = arena.replace(static_cast<long>(n), fault);
      ASSERT_TRUE(status == 0 || status == 1) << status << read_file(arena.output());
      expect_no_mix(arena);
      if (status == 0) {
        EXPECT_EQ(arena.seen(scenario_.first), "new");
      }
      ASSERT_EQ(arena.recover(), 0) << read_file(arena.output());
      expect_settled(arena, status != 0);
      if (HasFailure()) return;
    }
  }
}

TEST_P(Kill, ShortAndInterruptedTransfersChangeNothing) {
  Arena arena(scenario_);
  ASSERT_EQ(arena.replace(0, {{"KILLPOINT_SHORT", "1"}}), 0) << read_file(arena.output());
  EXPECT_EQ(arena.seen(scenario_.first), "new");
  EXPECT_EQ(arena.tree_now(), new_tree_);
  for (const auto& [key, text] : scenario_.new_files) {
    Environment environment = arena.environment(0);
    environment.emplace_back("KILLPOINT_SHORT", "1");
    ASSERT_EQ(run_driver({"cat", arena.set(), key}, environment, arena.output()), 0) << read_file(arena.output());
    EXPECT_EQ(read_file(arena.output()), text);
  }
}

/// What SIGKILL cannot show, because the system keeps what a dead program wrote: the order of syncs.
TEST_P(Kill, EachFileIsSyncedBeforeItsRename) {
  int renamed = 0;
  for (size_t i = 0; i < calls_.size(); ++i) {
    if (calls_[i][1] != "rename" || !is_ours(calls_[i][2])) continue;
    std::vector<std::string> files = {calls_[i][2]};
    if (scenario_.old_files.empty()) {  // the directory with all of them
      files.clear();
      for (const auto& [key, text] : scenario_.new_files) files.push_back(calls_[i][2] + "/" + key);
      files.push_back(calls_[i][2]);
    }
    for (const std::string& file : files) {
      bool synced = false;
      for (size_t j = 0; j < i; ++j) {
        const std::string& call = calls_[j][1];
        if (calls_[j][2] != file || call == "rename" || call == "sync_file_range") continue;
        synced = call == "fsync" || call == "fdatasync";  // any other call changes it
      }
      EXPECT_TRUE(synced) << file << " is renamed before it is durable";
    }
    ++renamed;
  }
  EXPECT_GE(renamed, 1);
}

TEST_P(Kill, TheJournalIsDurableBeforeTheFirstVisibleChange) {
  auto find = [&](size_t from, auto&& wanted) {
    while (from < calls_.size() && !wanted(calls_[from])) ++from;
    return from;
  };
  auto changes_names = [](const std::vector<std::string>& call) {
    if (call[1] == "rename") return !is_journal(call[3]);
    return call[1] == "unlink" && !is_ours(call[2]);
  };
  size_t journal = find(0, [](const auto& call) { return call[1] == "rename" && is_journal(call[3]); });
  size_t first = find(0, changes_names);
  ASSERT_LT(first, calls_.size());
  if (scenario_.old_files.empty() || scenario_.name == "single") {
    EXPECT_EQ(journal, calls_.size()) << "one rename needs no journal";
    return;
  }
  ASSERT_LT(journal, first);
  const std::string directory = parent(calls_[journal][3]);
  size_t synced = find(journal, [&](const auto& call) { return call[1] == "fsync" && call[2] == directory; });
  EXPECT_LT(synced, first) << "the journal's name is not durable before the first change";
  // Every staged name is durable before the journal speaks of it.
  for (size_t i = 0; i < calls_.size(); ++i) {
    if (calls_[i][1] != "rename" || is_journal(calls_[i][3])) continue;
    const std::string staged_in = parent(calls_[i][2]);
    size_t named = find(0, [&](const auto& call) { return call[1] == "fsync" && call[2] == staged_in; });
    EXPECT_LT(named, journal) << staged_in;
  }
  // New names are durable before old files and the journal go.
  size_t last_rename = 0, first_after = calls_.size();
  for (size_t i = journal + 1; i < calls_.size(); ++i) {
    if (calls_[i][1] == "rename") last_rename = i;
  }
  for (size_t i = last_rename; i < calls_.size(); ++i) {
    bool removes = calls_[i][1] == "unlink" && (!is_ours(calls_[i][2]) || is_journal(calls_[i][2]));
    if (removes) first_after = std::min(first_after, i);
  }
  size_t renamed_synced = find(
      last_rename, [&](const auto& call) { return call[1] == "fsync" && call[2] == parent(calls_[last_rename][3]); });
  EXPECT_LT(renamed_synced, first_after);
}

INSTANTIATE_TEST_SUITE_P(Commit, Kill, ::testing::ValuesIn(scenarios()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace

}  // namespace shardwright::kill_test
