#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "shardwright/store/store.h"
#include "shardwright/store/testing.h"

namespace shardwright::testing_support {
namespace {

std::unique_ptr<Store> open_at(const std::string& root, FileStoreOptions options = {}) {
  return std::move(*open_file_store(root, options));
}

size_t open_descriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

TEST(FileStore, DescribesKeysAsPathsTheUserKnows) {
  EXPECT_EQ(open_at("dir")->describe("a/b"), "dir/a/b");
  EXPECT_EQ(open_at("dir/")->describe("a"), "dir/a");
  EXPECT_EQ(open_at("/")->describe("a"), "/a");
  EXPECT_EQ(open_at(".")->describe("a"), "a");
  EXPECT_EQ(open_at("")->describe("a"), "a");
  EXPECT_EQ(open_at("dir")->describe(""), "dir");
}

TEST(FileStore, AnAbsentRootHasNoObjects) {
  TemporaryDirectory directory;
  auto store = open_at(directory.at("none"));
  EXPECT_FALSE((*store->size("a")).has_value());
  EXPECT_TRUE((*store->list("")).empty());
  EXPECT_CODE(read_object(*store, "a", 1), Code::kNotFound);
  std::filesystem::create_directory(directory.at("none"));
  write_file(directory.at("none/a"), "now");
  EXPECT_EQ(text_at(*store, "a"), "now");
}

TEST(FileStore, FollowsLinksToFilesAsCachesMakeThem) {
  TemporaryDirectory directory;
  write_file(directory.at("blobs/abc"), "weights");
  std::filesystem::create_directories(directory.at("snapshots/1"));
  std::filesystem::create_symlink("../../blobs/abc", directory.at("snapshots/1/model.safetensors"));
  std::filesystem::create_directory_symlink("../../blobs", directory.at("snapshots/1/blobs"));
  std::filesystem::create_symlink("nowhere", directory.at("snapshots/1/dangling"));
  auto store = open_at(directory.at("snapshots/1"));
  EXPECT_EQ(text_at(*store, "model.safetensors"), "weights");
  EXPECT_EQ(**store->size("model.safetensors"), 7u);
  EXPECT_EQ(*store->list(""), std::vector<std::string>{"model.safetensors"});
  EXPECT_FALSE((*store->size("dangling")).has_value());
}

TEST(FileStore, ListingSkipsUnfinishedWrites) {
  TemporaryDirectory directory;
  for (const char* name : {"a", ".hidden", ".shardwright-1-2/files/b", ".out.shardwright-3-4/files/c"})
    write_file(directory.at(name), "");
  EXPECT_EQ(*open_at(directory.path())->list(""), (std::vector<std::string>{".hidden", "a"}));
  EXPECT_CODE(open_at(directory.path())->size(".shardwright-1-2/files/b"), Code::kInvalidArgument);
}

TEST(FileStore, AFifoIsRefusedWithoutWaiting) {
  TemporaryDirectory directory;
  ASSERT_EQ(::mkfifo(directory.at("fifo").c_str(), 0600), 0);
  auto store = open_at(directory.path());
  EXPECT_CODE(store->size("fifo"), Code::kUnsupported);
  std::byte byte{};
  ReadOp op{"fifo", 0, {&byte, 1}};
  EXPECT_CODE(store->read({&op, 1}), Code::kUnsupported);
}

TEST(FileStore, NeighboursAndSmallGapsAreOneReadAndLargeOnesAreNot) {
  TemporaryDirectory directory;
  write_file(directory.at("a"), pattern(10'000));
  std::string one(100, 0), two(100, 0), three(100, 0);
  auto op = [](uint64_t offset, std::string& into) {
    return ReadOp{"a", offset, {reinterpret_cast<std::byte*>(into.data()), into.size()}};
  };
  std::vector<ReadOp> ops = {op(5000, three), op(0, one), op(150, two)};
  auto store = open_at(directory.path(), {64, false});
  ASSERT_OK(store->read(ops));
  EXPECT_EQ(store->bytes_read(), 350u);  // 100 + gap of 50 + 100, and 100 far away
  EXPECT_EQ(one, pattern(10'000).substr(0, 100));
  EXPECT_EQ(two, pattern(10'000).substr(150, 100));
  EXPECT_EQ(three, pattern(10'000).substr(5000, 100));
}

TEST(FileStore, MoreRangesThanOneCallTakes) {
  TemporaryDirectory directory;
  std::string content = pattern(200'000);
  write_file(directory.at("a"), content);
  std::vector<std::string> into(5000, std::string(3, 0));
  std::vector<ReadOp> ops;
  for (size_t i = 0; i < into.size(); ++i)
    ops.push_back({"a", i * 40, {reinterpret_cast<std::byte*>(into[i].data()), 3}});
  auto store = open_at(directory.path());
  ASSERT_OK(store->read(ops));
  for (size_t i = 0; i < into.size(); ++i) ASSERT_EQ(into[i], content.substr(i * 40, 3)) << i;
}

TEST(FileStore, HoldsABoundedNumberOfFilesOpen) {
  TemporaryDirectory directory;
  auto store = open_at(directory.path());
  size_t before = open_descriptors();
  for (int i = 0; i < 300; ++i) {
    write_file(directory.at("f" + std::to_string(i)), std::to_string(i));
    EXPECT_EQ(text_at(*store, "f" + std::to_string(i)), std::to_string(i));
  }
  EXPECT_LE(open_descriptors(), before + 66);
  // Closed long ago; opened again it must still be the same file.
  write_file(directory.at("f0"), "x");
  std::byte byte{};
  ReadOp op{"f0", 0, {&byte, 1}};
  EXPECT_CODE(store->read({&op, 1}), Code::kAborted);
  EXPECT_EQ(text_at(*store, "f1"), "1");
}

TEST(FileStore, AFileRenamedOverIsStillReadAsItWasWhileOpen) {
  TemporaryDirectory directory;
  write_file(directory.at("a"), "old");
  auto store = open_at(directory.path());
  EXPECT_EQ(text_at(*store, "a"), "old");
  write_file(directory.at("b"), "new");
  std::filesystem::rename(directory.at("b"), directory.at("a"));
  std::string into(3, 0);
  ReadOp op{"a", 0, {reinterpret_cast<std::byte*>(into.data()), 3}};
  EXPECT_OK(store->read({&op, 1}));
  EXPECT_EQ(into, "old");
  EXPECT_CODE(store->size("a"), Code::kAborted);
}

TEST(FileStore, TruncatedWhileOpenIsAbortedNotCorrupt) {
  TemporaryDirectory directory;
  write_file(directory.at("a"), "0123456789");
  auto store = open_at(directory.path());
  EXPECT_EQ(text_at(*store, "a"), "0123456789");
  std::filesystem::resize_file(directory.at("a"), 4);
  std::string into(10, 0);
  ReadOp op{"a", 0, {reinterpret_cast<std::byte*>(into.data()), 10}};
  auto status = store->read({&op, 1});
  EXPECT_CODE(status, Code::kAborted);
  EXPECT_EQ(status.error().path, directory.at("a"));
}

/// Memory whose address is `remainder` modulo 4096.
struct Aligned {
  Aligned(size_t size, size_t remainder) : bytes(size + 8192) {
    auto address = reinterpret_cast<uintptr_t>(bytes.data());
    data = bytes.data() + ((4096 - address % 4096) + remainder);
  }
  std::vector<std::byte> bytes;
  std::byte* data;
};

TEST(FileStore, DirectReadsGiveTheSameBytesAlignedOrNot) {
  TemporaryDirectory directory;
  std::string content = pattern(5 * MiB + 777);
  write_file(directory.at("a"), content);
  auto store = open_at(directory.path(), {64 * KiB, true});
  for (uint64_t offset : {0ull, 8ull, 4096ull, 5000ull}) {
    for (size_t shift : {0u, 64u}) {
      uint64_t size = content.size() - offset;
      Aligned into(size, (offset + shift) % 4096);
      // Cut into tensors as they lie in a file: neighbours in both file and memory.
      std::vector<ReadOp> ops = {{"a", offset, {into.data, 100}},
                                 {"a", offset + 100, {into.data + 100, 2 * MiB}},
                                 {"a", offset + 100 + 2 * MiB, {into.data + 100 + 2 * MiB, size - 100 - 2 * MiB}}};
      uint64_t before = store->bytes_read();
      ASSERT_OK(store->read(ops));
      EXPECT_EQ(std::string_view(reinterpret_cast<char*>(into.data), size), std::string_view(content).substr(offset));
      EXPECT_EQ(store->bytes_read() - before, size);
    }
  }
}

TEST(FileStore, RoomOfAPathThatDoesNotExistYetIsThatOfItsParent) {
  TemporaryDirectory directory;
  auto here = open_at(directory.path())->room(""), below = open_at(directory.at("no/such"))->room("dir");
  ASSERT_OK(here);
  ASSERT_OK(below);
  ASSERT_TRUE(here->has_value() && below->has_value());
  EXPECT_GT((*here)->bytes, 0u);
  EXPECT_NEAR(static_cast<double>((*here)->bytes), static_cast<double>((*below)->bytes), 1e9);
}

}  // namespace
}  // namespace shardwright::testing_support
