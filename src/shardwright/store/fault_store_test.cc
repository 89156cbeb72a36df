#include "shardwright/store/fault_store.h"

#include <gtest/gtest.h>

#include "shardwright/store/testing.h"

namespace shardwright::testing_support {
namespace {

TEST(FaultStore, FailsTheNthCallAndNoOther) {
  std::shared_ptr<Store> memory = open_memory_store();
  FaultStore store(memory);
  ASSERT_OK(put(store, "", {{"a", "abc"}}));
  store.faults().fail_read = 2;
  EXPECT_EQ(text_at(store, "a"), "abc");
  EXPECT_EQ(text_at(store, "a"), "error: memory:a@0: injected: cannot read");
  EXPECT_EQ(text_at(store, "a"), "abc");
}

TEST(FaultStore, EveryWritingFaultLeavesTheOldSet) {
  for (int kind = 0; kind < 4; ++kind) {
    TemporaryDirectory directory;
    std::shared_ptr<Store> files = std::move(*open_file_store(directory.path()));
    ASSERT_OK(put(*files, "", {{"a", "old a"}, {"index", "old"}}));
    FaultStore store(files);
    Faults& faults = store.faults();
    (kind == 0   ? faults.fail_create
     : kind == 1 ? faults.fail_write
     : kind == 2 ? faults.fail_finish
                 : faults.fail_commit) = kind == 3 ? 1 : 2;
    EXPECT_CODE(put(store, "", {{"a", "new a"}, {"index", "new"}}, {}, {"index"}),
                kind < 2 ? Code::kResourceExhausted : Code::kIo);
    EXPECT_EQ(tree(directory.path()), (std::vector<std::string>{"a", "index"})) << kind;
    EXPECT_EQ(text_at(store, "a"), "old a");
    EXPECT_EQ(text_at(store, "index"), "old");
  }
}

}  // namespace
}  // namespace shardwright::testing_support
