#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "shardwright/store/staging.h"
#include "shardwright/store/store.h"
#include "shardwright/store/testing.h"

namespace shardwright::testing_support {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

std::unique_ptr<Store> open_at(const std::string& root) { return std::move(*open_file_store(root)); }

TEST(FileTransaction, ANewDirectoryAppearsWholeWithItsParents) {
  TemporaryDirectory directory;
  auto store = open_at(directory.at("a/b"));
  auto transaction = store->begin("c");
  ASSERT_OK(transaction);
  ASSERT_OK(stage(**transaction, "x", "1"));
  for (const auto& name : tree(directory.path())) EXPECT_TRUE(name.starts_with(".a.shardwright-")) << name;
  ASSERT_OK((*transaction)->commit({{"x"}, {}, {}}));
  EXPECT_EQ(tree(directory.path()), (Names{"a/", "a/b/", "a/b/c/", "a/b/c/x"}));
  EXPECT_EQ(text_at(*store, "c/x"), "1");
}

TEST(FileTransaction, ADirectoryThatAppearsMeanwhileIsNotTouched) {
  TemporaryDirectory directory;
  auto store = open_at(directory.path());
  auto transaction = store->begin("out");
  ASSERT_OK(transaction);
  ASSERT_OK(stage(**transaction, "x", "1"));
  write_file(directory.at("out/theirs"), "2");
  EXPECT_CODE((*transaction)->commit({{"x"}, {}, {}}), Code::kAborted);
  transaction->reset();
  EXPECT_EQ(tree(directory.path()), (Names{"out/", "out/theirs"}));
}

TEST(FileTransaction, WhatAnotherProgramTookAwayIsSaidAndNothingIsPublished) {
  for (const char* under : {"fresh", "present"}) {
    for (bool all : {false, true}) {
      SCOPED_TRACE(std::string(under) + (all ? ", everything" : ", one file"));
      TemporaryDirectory directory;
      write_file(directory.at("present/x"), "old");
      auto store = open_at(directory.path());
      auto transaction = store->begin(under);
      ASSERT_OK(transaction);
      ASSERT_OK(stage(**transaction, "x", "1"));
      ASSERT_OK(stage(**transaction, "y", "2"));
      std::string staged = (*transaction)->token() + (all ? "" : "/x");
      fs::remove_all(staged);
      if (all) {
        auto created = (*transaction)->create("index", 1);
        EXPECT_CODE(created, Code::kAborted);
      } else {
        ASSERT_OK(stage(**transaction, "index", "3"));
      }
      auto status = (*transaction)->commit({{"x", "y", "index"}, {}, {"x"}});
      EXPECT_CODE(status, Code::kAborted);
      EXPECT_EQ(status.error().path, staged);
      EXPECT_FALSE(status.error().hint.empty());
      transaction->reset();
      EXPECT_EQ(tree(directory.path()), (Names{"present/", "present/x"}));
      EXPECT_EQ(text_at(*store, "present/x"), "old");
    }
  }
}

TEST(FileTransaction, RelativeRootsAndDotsMeanTheSamePlace) {
  TemporaryDirectory directory;
  std::string before = fs::current_path();
  fs::current_path(directory.path());
  EXPECT_OK(put(*open_at("."), "", {{"a", "1"}}));
  EXPECT_OK(put(*open_at("./sub//./deep/"), "", {{"b", "2"}}));
  EXPECT_OK(put(*open_at("sub/../sub"), "", {{"c", "3"}}));
  EXPECT_CODE(open_at("none/../sub")->begin(""), Code::kNotFound);
  fs::current_path(before);
  EXPECT_EQ(tree(directory.path()), (Names{"a", "sub/", "sub/c", "sub/deep/", "sub/deep/b"}));
}

TEST(FileTransaction, ModesFollowTheUmask) {
  TemporaryDirectory directory;
  mode_t before = ::umask(027);
  EXPECT_OK(put(*open_at(directory.path()), "new", {{"a", "1"}}));
  EXPECT_OK(put(*open_at(directory.path()), "new", {{"b", "1"}}));
  ::umask(before);
  struct stat info;
  for (const char* name : {"new/a", "new/b"}) {
    ASSERT_EQ(::stat(directory.at(name).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0640u) << name;
  }
  ASSERT_EQ(::stat(directory.at("new").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0750u);
}

TEST(FileTransaction, LinksAreFollowedNotReplaced) {
  TemporaryDirectory directory;
  write_file(directory.at("blobs/1"), "old shard");
  write_file(directory.at("blobs/2"), "old index");
  fs::create_directory(directory.at("set"));
  fs::create_symlink("../blobs/1", directory.at("set/shard"));
  fs::create_symlink(directory.at("blobs/2"), directory.at("set/index"));
  fs::create_symlink("../blobs/3", directory.at("set/dangling"));
  fs::create_symlink("../blobs/1", directory.at("set/stale"));
  fs::create_directory_symlink("set", directory.at("link"));
  ASSERT_OK(put(*open_at(directory.path()), "link",
                {{"shard", "new shard"}, {"dangling", "was not there"}, {"index", "new index"}}, {"stale"}, {"index"}));
  EXPECT_EQ(tree(directory.path()), (Names{"blobs/", "blobs/1", "blobs/2", "blobs/3", "link", "set/", "set/dangling",
                                           "set/index", "set/shard"}));
  EXPECT_EQ(read_file(directory.at("blobs/1")), "new shard");
  EXPECT_EQ(read_file(directory.at("blobs/2")), "new index");
  EXPECT_EQ(read_file(directory.at("blobs/3")), "was not there");
  for (const char* name : {"link", "set/shard", "set/index", "set/dangling"})
    EXPECT_TRUE(fs::is_symlink(directory.at(name))) << name;
}

TEST(FileTransaction, ALinkToAnotherFileSystemIsStagedThere) {
  if (::access("/dev/shm", W_OK) != 0) GTEST_SKIP() << "no second file system";
  TemporaryDirectory directory, other("/dev/shm");
  write_file(other.at("blob"), "old");
  fs::create_symlink(other.at("blob"), directory.at("shard"));
  auto store = open_at(directory.path());
  {
    auto transaction = store->begin("");
    ASSERT_OK(transaction);
    ASSERT_OK(stage(**transaction, "shard", "dropped"));
    EXPECT_EQ(tree(other.path()).size(), 2u);
  }
  EXPECT_EQ(tree(other.path()), Names{"blob"});
  EXPECT_EQ(read_file(other.at("blob")), "old");
  ASSERT_OK(put(*store, "", {{"shard", "new"}, {"index", "i"}}));
  EXPECT_EQ(read_file(other.at("blob")), "new");
  EXPECT_EQ(tree(other.path()), Names{"blob"});
  EXPECT_TRUE(fs::is_symlink(directory.at("shard")));
  EXPECT_EQ(tree(directory.path()), (Names{"index", "shard"}));
}

TEST(FileTransaction, WhatIsInTheWayIsSaidBeforeAnythingIsWritten) {
  TemporaryDirectory directory;
  write_file(directory.at("file"), "");
  write_file(directory.at("dir/x"), "");
  auto store = open_at(directory.path());
  EXPECT_CODE(store->begin("file"), Code::kAlreadyExists);
  EXPECT_CODE(store->begin("file/below"), Code::kAlreadyExists);
  auto transaction = store->begin("");
  ASSERT_OK(transaction);
  EXPECT_CODE((*transaction)->create("dir", 1), Code::kAlreadyExists);
  EXPECT_CODE((*transaction)->create("file/x", 1), Code::kAlreadyExists);
  fs::create_symlink("nowhere", directory.at("dangling"));
  EXPECT_CODE(store->begin("dangling"), Code::kNotFound);
}

TEST(FileTransaction, AFileTooLargeForTheFileSystemIsRefusedAtCreate) {
  TemporaryDirectory directory;
  auto transaction = open_at(directory.path())->begin("");
  ASSERT_OK(transaction);
  EXPECT_CODE((*transaction)->create("petabytes", 1ull << 60), Code::kResourceExhausted);
  EXPECT_CODE((*transaction)->create("nonsense", 1ull << 63), Code::kIo);
}

TEST(FileTransaction, StaleNamesThatAreDirectoriesOrAboveAreNotFollowed) {
  TemporaryDirectory directory;
  write_file(directory.at("keep/x"), "1");
  auto store = open_at(directory.at("set"));
  ASSERT_OK(put(*store, "", {{"index", "1"}}));
  fs::create_directory(directory.at("set/sub"));
  EXPECT_OK(put(*store, "", {{"index", "2"}}, {"sub", "index/below"}, {"index"}));
  EXPECT_CODE(put(*store, "", {{"index", "3"}}, {"../keep/x"}, {"index"}), Code::kInvalidArgument);
  EXPECT_EQ(tree(directory.path()), (Names{"keep/", "keep/x", "set/", "set/index", "set/sub/"}));
}

TEST(FileTransaction, AnotherProgramsDotFilesStay) {
  TemporaryDirectory directory;
  for (const char* name :
       {".shardwright-notes", ".shardwright-12-3/x", ".out.shardwright-abc/y", ".shardwright-1-0123456789abcdeg/z"}) {
    write_file(directory.at(name), "mine");
  }
  auto before = tree(directory.path());
  auto store = open_at(directory.path());
  ASSERT_OK(store->recover(""));
  ASSERT_OK(store->recover("out"));
  EXPECT_EQ(tree(directory.path()), before);
}

}  // namespace
}  // namespace shardwright::testing_support
