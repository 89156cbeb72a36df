/// For tests only: what every store must do, run against each of them. Include in one file and instantiate StoreSuite there.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>

#include "shardwright/store/store.h"
#include "shardwright/store/testing.h"

namespace shardwright::testing_support {

/// A store and a way to change its objects behind its back.
struct StoreFixture {
  std::shared_ptr<void> holder;  ///< temporary directory, if any
  std::shared_ptr<Store> store;
  std::function<void(const std::string& key, const std::string& text)> replace;
  bool own_changes = false;  ///< `replace` goes through the store's own commit, which is no surprise to it
};
struct StoreCase {
  std::string name;
  std::function<StoreFixture()> make;
};
inline void PrintTo(const StoreCase& which, std::ostream* out) { *out << which.name; }

class StoreSuite : public ::testing::TestWithParam<StoreCase> {
 protected:
  StoreFixture fixture_ = GetParam().make();
  Store& store_ = *fixture_.store;
};

TEST_P(StoreSuite, ReadsWhatWasReplaced) {
  fixture_.replace("a.bin", "hello");
  fixture_.replace("sub/b.bin", "");
  EXPECT_EQ(text_at(store_, "a.bin"), "hello");
  EXPECT_EQ(text_at(store_, "sub/b.bin"), "");
  auto size = store_.size("a.bin");
  ASSERT_OK(size);
  EXPECT_EQ(**size, 5u);
}

TEST_P(StoreSuite, AbsentIsNoErrorForSizeAndNotFoundForRead) {
  fixture_.replace("sub/b.bin", "x");
  for (const char* key : {"none", "sub/none", "none/none", "sub", "sub/b.bin/deeper"}) {
    auto size = store_.size(key);
    ASSERT_OK(size);
    EXPECT_FALSE(size->has_value()) << key;
  }
  std::byte byte{};
  ReadOp op{"none", 0, {&byte, 1}};
  EXPECT_CODE(store_.read({&op, 1}), Code::kNotFound);
  EXPECT_CODE(read_object(store_, "none", 10), Code::kNotFound);
}

TEST_P(StoreSuite, RefusesKeysThatCouldLeaveTheRoot) {
  for (const char* key : {"../a", "a/../../b", "/etc/passwd", "", "a//b", "./a", "a\\b"}) {
    EXPECT_CODE(store_.size(key), Code::kInvalidArgument);
    std::byte byte{};
    ReadOp op{key, 0, {&byte, 1}};
    EXPECT_CODE(store_.read({&op, 1}), Code::kInvalidArgument);
  }
  EXPECT_CODE(store_.list("../"), Code::kInvalidArgument);
  EXPECT_CODE(store_.list("sub"), Code::kInvalidArgument);
  EXPECT_CODE(store_.begin(".."), Code::kInvalidArgument);
  EXPECT_CODE(store_.recover("/tmp"), Code::kInvalidArgument);
}

TEST_P(StoreSuite, ReadObjectHasACap) {
  fixture_.replace("a.bin", "0123456789");
  EXPECT_OK(read_object(store_, "a.bin", 10));
  EXPECT_CODE(read_object(store_, "a.bin", 9), Code::kResourceExhausted);
}

TEST_P(StoreSuite, ZeroOpsAndZeroLengthsAreFine) {
  fixture_.replace("a.bin", "abc");
  EXPECT_OK(store_.read({}));
  ReadOp at_end{"a.bin", 3, {}}, beyond{"a.bin", 4, {}};
  EXPECT_OK(store_.read({&at_end, 1}));
  EXPECT_CODE(store_.read({&beyond, 1}), Code::kCorrupt);
  EXPECT_EQ(store_.bytes_read(), 0u);
}

TEST_P(StoreSuite, ShortObjectIsCorruptWithPlaceAndSizes) {
  fixture_.replace("a.bin", "0123456789");
  std::string into(8, '\0');
  ReadOp op{"a.bin", 4, {reinterpret_cast<std::byte*>(into.data()), into.size()}};
  auto status = store_.read({&op, 1});
  EXPECT_CODE(status, Code::kCorrupt);
  EXPECT_EQ(status.error().path, store_.describe("a.bin"));
  EXPECT_EQ(status.error().offset, 4u);
  EXPECT_NE(status.error().found.find("10 bytes"), std::string::npos);
  op.offset = ~0ull - 3;  // offset + length overflows
  EXPECT_CODE(store_.read({&op, 1}), Code::kCorrupt);
}

TEST_P(StoreSuite, RandomBatchesReadTheRightBytes) {
  unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::vector<std::string> keys = {"a.bin", "b.bin", "sub/c.bin"}, contents;
  for (size_t i = 0; i < keys.size(); ++i) {
    contents.push_back(pattern(300'000 + i * 1000, static_cast<unsigned>(i)));
    fixture_.replace(keys[i], contents[i]);
  }
  for (int round = 0; round < 12; ++round) {
    std::vector<std::string> into(1 + random() % 1500);
    std::vector<ReadOp> ops;
    std::vector<std::pair<size_t, uint64_t>> wanted;
    for (std::string& buffer : into) {
      size_t file = random() % keys.size();
      uint64_t offset = random() % contents[file].size();
      uint64_t length =
          std::min<uint64_t>(contents[file].size() - offset, random() % (random() % 20 == 0 ? 100'000 : 40));
      buffer.assign(length, '\xee');
      ops.push_back({keys[file], offset, {reinterpret_cast<std::byte*>(buffer.data()), length}});
      wanted.push_back({file, offset});
    }
    ASSERT_OK(store_.read(ops));
    for (size_t i = 0; i < into.size(); ++i) {
      ASSERT_EQ(into[i], contents[wanted[i].first].substr(wanted[i].second, into[i].size()))
          << "round " << round << " op " << i;
    }
  }
}

TEST_P(StoreSuite, AChangedObjectAbortsInsteadOfMixing) {
  if (fixture_.own_changes) GTEST_SKIP() << "nobody else can change it";
  fixture_.replace("a.bin", "old old");
  EXPECT_OK(store_.size("a.bin"));  // pins
  fixture_.replace("a.bin", "newer and longer");
  std::byte byte{};
  ReadOp op{"a.bin", 0, {&byte, 1}};
  auto status = store_.read({&op, 1});
  EXPECT_CODE(status, Code::kAborted);
  EXPECT_EQ(status.error().path, store_.describe("a.bin"));
}

TEST_P(StoreSuite, ListsWholePathsSorted) {
  using Keys = std::vector<std::string>;
  EXPECT_EQ(*store_.list(""), Keys());
  for (const char* key : {"b", "a.x", "sub/two", "sub/one", "sub/deep/er/z", "subway"}) fixture_.replace(key, "1");
  EXPECT_EQ(*store_.list(""), (Keys{"a.x", "b", "sub/deep/er/z", "sub/one", "sub/two", "subway"}));
  EXPECT_EQ(*store_.list("sub/"), (Keys{"sub/deep/er/z", "sub/one", "sub/two"}));
  EXPECT_EQ(*store_.list("sub/deep/"), (Keys{"sub/deep/er/z"}));
  EXPECT_EQ(*store_.list("none/"), Keys());
}

TEST_P(StoreSuite, ManyThreadsReadManyObjects) {
  constexpr int kFiles = 100;  // more than stay open at once
  for (int i = 0; i < kFiles; ++i) fixture_.replace("f" + std::to_string(i), pattern(1000, static_cast<unsigned>(i)));
  std::vector<std::jthread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 3 * kFiles; ++i) {
        int file = (i * 7 + t * 13) % kFiles;
        if (text_at(store_, "f" + std::to_string(file)) != pattern(1000, static_cast<unsigned>(file))) ++wrong;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(wrong, 0);
}

TEST_P(StoreSuite, ASetAppearsWhenCommittedAndNotBefore) {
  {
    auto transaction = store_.begin("new");
    ASSERT_OK(transaction);
    ASSERT_OK(stage(**transaction, "a", "one"));
    ASSERT_OK(stage(**transaction, "sub/b", "two"));
    EXPECT_TRUE(store_.list("")->empty());
    EXPECT_FALSE((*store_.size("new/a")).has_value());
    ASSERT_OK((*transaction)->commit({{"sub/b", "a"}, {}, {}}));
  }
  EXPECT_EQ(*store_.list(""), (std::vector<std::string>{"new/a", "new/sub/b"}));
  EXPECT_EQ(text_at(store_, "new/a"), "one");
  EXPECT_EQ(text_at(store_, "new/sub/b"), "two");
}

TEST_P(StoreSuite, DroppedUncommittedLeavesNothing) {
  fixture_.replace("have/old", "1");
  for (const char* under : {"", "new/deep/er", "have"}) {
    auto transaction = store_.begin(under);
    ASSERT_OK(transaction);
    ASSERT_OK(stage(**transaction, "a", "one"));
    auto unfinished = (*transaction)->create("b", 5);
    ASSERT_OK(unfinished);
  }
  EXPECT_EQ(*store_.list(""), (std::vector<std::string>{"have/old"}));
  EXPECT_OK(store_.begin("have"));
}

TEST_P(StoreSuite, WritesAtAnyOffsetInAnyOrderAndAppends) {
  std::string text = pattern(100'000);
  auto transaction = store_.begin("");
  ASSERT_OK(transaction);
  auto known = (*transaction)->create("known", text.size()), grown = (*transaction)->create("grown", kUnknown);
  ASSERT_OK(known);
  ASSERT_OK(grown);
  std::vector<WriteOp> ops;
  for (size_t at = 0; at < text.size(); at += 7000) {
    ops.push_back({at, view_of(std::string_view(text).substr(at, 7000))});
  }
  for (const WriteOp& op : ops) ASSERT_OK((*grown)->write({&op, 1}));
  std::mt19937 random(7);
  std::shuffle(ops.begin(), ops.end(), random);
  ASSERT_OK((*known)->write(ops));
  ASSERT_OK((*known)->write({}));
  ASSERT_OK((*known)->finish(text.size()));
  ASSERT_OK((*grown)->finish(text.size() - 1));
  ASSERT_OK((*transaction)->commit({{"grown", "known"}, {}, {}}));
  EXPECT_EQ(text_at(store_, "known"), text);
  EXPECT_EQ(text_at(store_, "grown"), text.substr(0, text.size() - 1));
}

TEST_P(StoreSuite, MisuseOfWritersIsAnError) {
  auto transaction = store_.begin("");
  ASSERT_OK(transaction);
  auto writer = (*transaction)->create("a", 10);
  ASSERT_OK(writer);
  WriteOp beyond{8, view_of("abc")};
  EXPECT_FALSE((*writer)->write({&beyond, 1}).ok());
  EXPECT_FALSE((*writer)->finish(9).ok());
  EXPECT_FALSE((*transaction)->create("a", 1).ok());
  EXPECT_CODE((*transaction)->create("../a", 1), Code::kInvalidArgument);
  EXPECT_CODE((*transaction)->create(".shardwright-1", 1), Code::kInvalidArgument);
  EXPECT_FALSE((*transaction)->commit({{"a"}, {}, {}}).ok());  // not finished
}

TEST_P(StoreSuite, ReplacingRemovesWhatIsStaleAndNothingElse) {
  ASSERT_OK(put(store_, "set", {{"1", "old1"}, {"2", "old2"}, {"3", "old3"}, {"index", "old"}}));
  fixture_.replace("set/mine", "kept");
  ASSERT_OK(put(store_, "set", {{"1", "new1"}, {"index", "new"}}, {"2", "3", "gone already"}, {"index"}));
  EXPECT_EQ(*store_.list(""), (std::vector<std::string>{"set/1", "set/index", "set/mine"}));
  EXPECT_EQ(text_at(store_, "set/1"), "new1");
  EXPECT_EQ(text_at(store_, "set/index"), "new");
}

TEST_P(StoreSuite, AStoreReadsItsOwnReplacementWithoutSurprise) {
  ASSERT_OK(put(store_, "", {{"a", "old"}}));
  EXPECT_EQ(text_at(store_, "a"), "old");
  ASSERT_OK(put(store_, "", {{"a", "new and longer"}}, {}, {"a"}));
  EXPECT_EQ(text_at(store_, "a"), "new and longer");
}

TEST_P(StoreSuite, OneWriterPerDirectory) {
  fixture_.replace("b/x", "");
  for (const char* under : {"absent", "b"}) {
    auto first = store_.begin(under);
    ASSERT_OK(first);
    EXPECT_CODE(store_.begin(under), Code::kUnavailable);
    first->reset();
    EXPECT_OK(store_.begin(under));
  }
}

TEST_P(StoreSuite, JoinedTransactionsWriteAndTheOwnerCommits) {
  for (const char* under : {"fresh/dir", "fresh/dir"}) {  // absent, then present
    auto owner = store_.begin(under);
    ASSERT_OK(owner);
    auto joined = store_.join((*owner)->token());
    ASSERT_OK(joined);
    ASSERT_OK(stage(**joined, "shard", under));
    ASSERT_OK(stage(**owner, "index", "i"));
    EXPECT_FALSE((*joined)->commit({{"shard", "index"}, {}, {}}).ok());
    joined->reset();
    ASSERT_OK((*owner)->commit({{"shard", "index"}, {}, {"index"}}));
    EXPECT_EQ(*store_.list(""), (std::vector<std::string>{"fresh/dir/index", "fresh/dir/shard"}));
  }
  EXPECT_CODE(store_.join("nonsense"), Code::kNotFound);
}

/// Ranks write disjoint ranges of one object; what each has finished is in it.
TEST_P(StoreSuite, JoinedTransactionsWriteOneObjectTogether) {
  for (const char* under : {"fresh", "fresh"}) {  // absent, then present
    auto owner = store_.begin(under);
    ASSERT_OK(owner);
    auto joined = store_.join((*owner)->token());
    ASSERT_OK(joined);
    EXPECT_CODE((*joined)->open("a", 6), Code::kNotFound);
    auto first = (*owner)->create("a", 6);
    ASSERT_OK(first);
    auto second = (*joined)->open("a", 6);
    ASSERT_OK(second);
    EXPECT_FALSE((*joined)->open("a", 7).ok());
    WriteOp ends[] = {{0, view_of("12")}, {5, view_of("6")}}, middle{2, view_of("345")}, beyond{5, view_of("67")};
    ASSERT_OK((*second)->write({&middle, 1}));
    EXPECT_FALSE((*second)->write({&beyond, 1}).ok());
    ASSERT_OK((*first)->write(ends));
    ASSERT_OK((*second)->finish(6));
    ASSERT_OK((*first)->finish(6));
    ASSERT_OK((*owner)->create("b", 1));  // dropped: whoever opens it again finishes it
    auto again = (*owner)->open("b", 1);
    ASSERT_OK(again);
    ASSERT_OK((*again)->finish(1));
    ASSERT_OK((*owner)->commit({{"a", "b"}, {}, {"a"}}));
    EXPECT_EQ(text_at(store_, "fresh/a"), "123456");
  }
}

TEST_P(StoreSuite, CommitNamesEveryObject) {
  auto transaction = store_.begin("set");
  ASSERT_OK(transaction);
  ASSERT_OK(stage(**transaction, "a", "1"));
  ASSERT_OK(stage(**transaction, "b", "2"));
  EXPECT_FALSE((*transaction)->commit({{"a"}, {}, {}}).ok());
  EXPECT_FALSE((*transaction)->commit({{"a", "b", "c"}, {}, {}}).ok());
  EXPECT_OK((*transaction)->commit({{"a", "b"}, {}, {}}));
  EXPECT_FALSE((*transaction)->commit({{"a", "b"}, {}, {}}).ok());
}

TEST_P(StoreSuite, ManyThreadsWriteOneObject) {
  std::string text = pattern(4'000'000);
  auto transaction = store_.begin("");
  ASSERT_OK(transaction);
  auto writer = (*transaction)->create("a", text.size());
  ASSERT_OK(writer);
  std::atomic<size_t> next{0};
  std::atomic<int> failures{0};
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      constexpr size_t kStep = 123'456;
      for (size_t at; (at = next.fetch_add(kStep)) < text.size();) {
        WriteOp op{at, view_of(std::string_view(text).substr(at, kStep))};
        if (!(*writer)->write({&op, 1}).ok()) ++failures;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(failures, 0);
  ASSERT_OK((*writer)->finish(text.size()));
  ASSERT_OK((*transaction)->commit({{"a"}, {}, {}}));
  EXPECT_EQ(text_at(store_, "a"), text);
}

}  // namespace shardwright::testing_support
