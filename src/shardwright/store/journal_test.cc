#include "shardwright/store/journal.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "shardwright/store/recovery.h"
#include "shardwright/store/staging.h"
#include "shardwright/store/testing.h"

namespace shardwright::testing_support {
namespace {

namespace fs = std::filesystem;
using namespace detail;
using Names = std::vector<std::string>;

std::unique_ptr<Store> open_at(const std::string& root) { return std::move(*open_file_store(root)); }

Result<std::optional<std::string>> recover_now(const std::string& directory) {
  SHARDWRIGHT_ASSIGN(auto target, TargetDirectory::find(directory));
  return recover_directory(target, std::chrono::milliseconds(50));
}

/// A directory with an old set of shard and index, and a journaled replacement that has not begun.
struct Interrupted {
  explicit Interrupted(bool alive = false) {
    write_file(directory.at("shard"), "old");
    write_file(directory.at("stale"), "old");
    write_file(directory.at("index"), "old");
    auto made = Staging::create(directory.path(), std::string(kStagingPrefix));
    write_file(made->files() + "/shard", "new!");
    write_file(made->files() + "/index", "new!");
    replacement = {name_of_path(made->path()), {"index"}, {{"shard", 4}, {"index", 4}}, {"stale"}};
    bool left_behind = false;
    status = write_journal(directory.path(), replacement, left_behind);
    if (alive) staging.emplace(std::move(*made));
  }
  static std::string name_of_path(const std::string& path) { return fs::path(path).filename(); }
  std::string at(const std::string& name) const { return directory.at(name); }
  void expect_new() const {
    EXPECT_EQ(tree(directory.path()), (Names{"index", "shard"}));
    EXPECT_EQ(read_file(at("index")), "new!");
    EXPECT_EQ(read_file(at("shard")), "new!");
  }
  TemporaryDirectory directory;
  Replacement replacement;
  Status status;
  std::optional<Staging> staging;
};

TEST(Journal, SurvivesTheWayThroughText) {
  Journal journal;
  journal.directory_inode = 7;
  journal.staging_inode = ~0ull;
  journal.replacement = {".shardwright-1-0123456789abcdef", {"a\"b", "ü"}, {{"x/y", 1ull << 60}}, {"z"}};
  auto back = Journal::parse(journal.to_json());
  ASSERT_OK(back);
  EXPECT_EQ(back->to_json(), journal.to_json());
  EXPECT_EQ(back->replacement.objects[0].size, 1ull << 60);
}

TEST(Journal, TrustsNothing) {
  Journal journal;
  journal.replacement = {".shardwright-1-0123456789abcdef", {"a"}, {{"b", 1}}, {"c"}};
  std::string good = journal.to_json();
  ASSERT_OK(Journal::parse(good));
  auto with = [&](const std::string& from, const std::string& to) {
    std::string bad = good;
    size_t at = bad.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return at == std::string::npos ? bad : bad.replace(at, from.size(), to);
  };
  for (const std::string& bad : {std::string(), std::string("[]"), std::string("{}"), good.substr(0, good.size() / 2),
                                 with("\"a\"", "\"../a\""), with("\"b\"", "\"/etc/passwd\""), with("\"c\"", "7"),
                                 with("\"size\": 1", "\"size\": -1"), with("\"size\": 1", "\"size\": 1.5"),
                                 with(".shardwright-1-0123456789abcdef", "../.shardwright-1-0123456789abcdef"),
                                 with(".shardwright-1-0123456789abcdef", ".shardwright-1-0123456789abcdef/.."),
                                 with(".shardwright-1-0123456789abcdef", "files"), with("\"objects\"", "\"object\""),
                                 with("\"staging\"", "\"stage\""), with("directory_inode", "inode")}) {
    auto parsed = Journal::parse(bad);
    EXPECT_CODE(parsed, Code::kCorrupt);
  }
  EXPECT_CODE(Journal::parse(with("\"shardwright_journal\": 1", "\"shardwright_journal\": 2")), Code::kUnsupported);
}

TEST(Recovery, FinishesAJournaledReplacementAndSaysSo) {
  Interrupted crash;
  ASSERT_OK(crash.status);
  auto store = open_at(crash.directory.path());
  auto sentence = store->recover("");
  ASSERT_OK(sentence);
  ASSERT_TRUE(sentence->has_value());
  EXPECT_NE((*sentence)->find("finished"), std::string::npos);
  crash.expect_new();
  EXPECT_FALSE((*store->recover("")).has_value());
}

TEST(Recovery, BeginFinishesFirst) {
  Interrupted crash;
  ASSERT_OK(put(*open_at(crash.directory.path()), "", {{"other", "1"}}));
  EXPECT_EQ(read_file(crash.at("index")), "new!");
  EXPECT_EQ(tree(crash.directory.path()), (Names{"index", "other", "shard"}));
}

TEST(Recovery, GoesOnFromEveryPointAtWhichItMayHaveStopped) {
  // What has been done before the crash, step by step.
  for (int done = 0; done <= 5; ++done) {
    Interrupted crash;
    std::string files = crash.at(crash.replacement.staging) + "/files/";
    if (done >= 1) fs::remove(crash.at("index"));
    if (done >= 2) fs::rename(files + "shard", crash.at("shard"));
    if (done >= 3) fs::rename(files + "index", crash.at("index"));
    if (done >= 4) fs::remove(crash.at("stale"));
    if (done >= 5)
      fs::remove_all(crash.at(crash.replacement.staging));  // a disk may lose the journal's removal, but not this
    EXPECT_OK(recover_now(crash.directory.path()));
    crash.expect_new();
  }
}

TEST(Recovery, AMissingStagedFileIsSaidAndNothingRemoved) {
  Interrupted crash;
  fs::remove(crash.at(crash.replacement.staging) + "/files/shard");  // final "shard" has the old size
  auto status = recover_now(crash.directory.path());
  EXPECT_CODE(status, Code::kCorrupt);
  EXPECT_EQ(status.error().path, crash.at("shard"));
  EXPECT_TRUE(fs::exists(crash.at("stale")));
  EXPECT_TRUE(fs::exists(crash.at(".shardwright-journal.json")));
}

TEST(Recovery, WaitsForALiveCommitter) {
  Interrupted busy(true);
  EXPECT_CODE(recover_now(busy.directory.path()), Code::kUnavailable);
  EXPECT_CODE(open_at(busy.directory.path())->begin(""), Code::kUnavailable);
  std::jthread committer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EXPECT_OK(replace(busy.directory.path(), busy.replacement));
    EXPECT_OK(remove_journal(busy.directory.path()));
    EXPECT_OK(busy.staging->remove());
    busy.staging.reset();
  });
  auto sentence = open_at(busy.directory.path())->recover("");
  ASSERT_OK(sentence);
  EXPECT_FALSE(sentence->has_value());  // it was the committer who did it
  committer.join();
  busy.expect_new();
}

TEST(Recovery, AJournalFromAnotherDirectoryIsNotFollowed) {
  Interrupted crash;
  TemporaryDirectory copy;
  fs::copy(crash.directory.path(), copy.path(), fs::copy_options::recursive);
  auto before = tree(copy.path());
  EXPECT_CODE(recover_now(copy.path()), Code::kCorrupt);
  EXPECT_EQ(tree(copy.path()), before);
  EXPECT_EQ(read_file(copy.at("shard")), "old");
}

TEST(Recovery, DropsWhatADeadWriterLeftAndKeepsALiveOnes) {
  TemporaryDirectory directory;
  write_file(directory.at("out/have"), "1");
  auto store = open_at(directory.path());
  for (const char* prefix : {".shardwright-", ".gone.shardwright-"}) {
    std::string parent = prefix[1] == 's' ? directory.at("out") : directory.path();
    const char* under = prefix[1] == 's' ? "out" : "gone";
    std::optional<Staging> alive(std::move(*Staging::create(parent, prefix)));
    write_file(alive->files() + "/sub/x", "data");
    auto nothing = store->recover(under);
    ASSERT_OK(nothing);
    EXPECT_FALSE(nothing->has_value());
    alive.reset();  // dies without cleaning up
    auto sentence = store->recover(under);
    ASSERT_OK(sentence);
    ASSERT_TRUE(sentence->has_value());
    EXPECT_NE((*sentence)->find("removed"), std::string::npos);
  }
  EXPECT_EQ(tree(directory.path()), (Names{"out/", "out/have"}));
}

TEST(Recovery, ADirectoryWithoutLockIsOnlyRemovedWhenEmpty) {
  TemporaryDirectory directory;
  fs::create_directory(directory.at(".shardwright-1-0123456789abcdef"));
  write_file(directory.at(".shardwright-2-0123456789abcdef/precious"), "1");
  ASSERT_OK(recover_now(directory.path()));
  EXPECT_EQ(tree(directory.path()),
            (Names{".shardwright-2-0123456789abcdef/", ".shardwright-2-0123456789abcdef/precious"}));
}

TEST(Recovery, LinksInAStagingLeadNowhereButToOurOwnNames) {
  TemporaryDirectory directory, other;
  std::string id = "1-0123456789abcdef", staging = directory.at(".shardwright-" + id);
  write_file(other.at("victim"), "1");
  write_file(other.at("dir/victim"), "1");
  write_file(other.at(".shardwright-" + id + ".7"), "staged here");
  write_file(other.at(".shardwright-2-0123456789abcdef.7"), "somebody else's");
  write_file(staging + "/lock", "");
  fs::create_directory(staging + "/files");
  fs::create_symlink(other.at("victim"), staging + "/files/a");
  fs::create_directory_symlink(other.at("dir"), staging + "/files/b");
  fs::create_symlink(other.at(".shardwright-" + id + ".7"), staging + "/files/c");
  fs::create_symlink(other.at(".shardwright-2-0123456789abcdef.7"), staging + "/files/d");
  ASSERT_OK(recover_now(directory.path()));
  EXPECT_TRUE(tree(directory.path()).empty());
  EXPECT_EQ(tree(other.path()), (Names{".shardwright-2-0123456789abcdef.7", "dir/", "dir/victim", "victim"}));
}

/// In a child, because a mount namespace is for ever. -1: this system does not let us.
int recover_read_only(const std::string& directory) {
  pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) ::_exit(99);
    if (::mount(directory.c_str(), directory.c_str(), nullptr, MS_BIND, nullptr) != 0) ::_exit(99);
    if (::mount(nullptr, directory.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr) != 0) ::_exit(99);
    auto result = recover_now(directory);
    if (result.ok()) ::_exit(98);
    ::_exit(result.error().hint.empty() ? 97 : static_cast<int>(result.error().code));
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  int code = WIFEXITED(status) ? WEXITSTATUS(status) : 96;
  return code == 99 ? -1 : code;
}

TEST(Recovery, AReadOnlyDirectoryWithAJournalIsUnavailable) {
  Interrupted crash;
  int code = recover_read_only(crash.directory.path());
  if (code < 0) GTEST_SKIP() << "no mount namespaces here";
  EXPECT_EQ(code, static_cast<int>(Code::kUnavailable));
  EXPECT_EQ(read_file(crash.at("shard")), "old");
}

TEST(Staging, OneOwnerAtATime) {
  TemporaryDirectory directory;
  auto staging = Staging::create(directory.path(), ".shardwright-");
  ASSERT_OK(staging);
  EXPECT_FALSE((*Staging::adopt(staging->path())).has_value());
  std::string path = staging->path();
  {
    Staging ended = std::move(*staging);
  }
  auto first = Staging::adopt(path);
  ASSERT_OK(first);
  ASSERT_TRUE(first->has_value());
  EXPECT_FALSE((*Staging::adopt(path)).has_value());
  EXPECT_OK((*first)->remove());
  EXPECT_FALSE((*Staging::adopt(path)).has_value());
}

TEST(Staging, MakersAndRemoversAtOnceNeverLoseAFile) {
  TemporaryDirectory directory;
  std::atomic<bool> stop{false};
  std::jthread remover([&] {
    while (!stop) (void)recover_now(directory.path());
  });
  for (int i = 0; i < 60; ++i) {
    auto staging = Staging::create(directory.path(), ".shardwright-");
    ASSERT_OK(staging);
    write_file(staging->files() + "/x", "1");
    std::this_thread::yield();
    EXPECT_EQ(read_file(staging->files() + "/x"), "1");
    ASSERT_OK(staging->remove());
  }
  stop = true;
}

}  // namespace
}  // namespace shardwright::testing_support
