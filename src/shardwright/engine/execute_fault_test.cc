// Whatever call of the target or the source fails, the copy ends with that error and publishes nothing.
#include <gtest/gtest.h>

#include "shardwright/engine/execute.h"
#include "shardwright/engine/toy_format_for_test.h"
#include "shardwright/store/fault_store.h"
#include "shardwright/store/testing.h"

namespace shardwright {
namespace {

using testing_support::Faults;
using testing_support::FaultStore;
using testing_support::pattern;
using testing_support::put;
using testing_support::text_at;

/// Eight tensors of 40,000 bytes in one file.
Catalog source_catalog() {
  CatalogBuilder builder;
  auto object = builder.add_object({"source", 320'000});
  std::vector<int64_t> shape{200, 200};
  for (uint64_t i = 0; i < 8; ++i) {
    EXPECT_OK(builder.add_tensor("t" + std::to_string(i), DType::kU8, shape));
    EXPECT_OK(builder.add_flat({Place::kExtent, -1, object, 40'000 * i, 40'000}, DType::kU8));
  }
  return *builder.build();
}

/// Three files and an index.
Status copy(Store& from, Store& to) {
  auto catalog = source_catalog();
  toy::ClosedDraft draft(catalog, 3);
  PlanOptions options;
  options.memory_bytes = 1 * MiB;
  options.part_bytes = 64 * KiB;
  options.threads = 2;
  options.checksums = true;
  SHARDWRIGHT_ASSIGN(auto plan, plan_write(catalog, draft, {}, options));
  SHARDWRIGHT_ASSIGN(auto transaction, to.begin("out"));
  SHARDWRIGHT_ASSIGN(auto executed, execute(plan, {&from, &draft, transaction.get()}, {}));
  SHARDWRIGHT_ASSIGN(auto sealed, draft.seal(executed.receipts));
  Publication publication{{"0", "1", "2"}, {}, {}};
  for (const auto& [key, bytes] : sealed) {
    SHARDWRIGHT_TRY(write_object(*transaction, key, bytes));
    publication.keys.push_back(key);
  }
  return transaction->commit(publication);
}

class ExecuteFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    source_ = open_memory_store();
    ASSERT_OK(put(*source_, "", {{"source", pattern(320'000)}}));
    std::unique_ptr<Store> whole = open_memory_store();
    ASSERT_OK(copy(*source_, *whole));
    for (const char* key : {"out/0", "out/1", "out/2", "out/index"}) wanted_.emplace_back(key, text_at(*whole, key));
  }

  std::shared_ptr<Store> source_;
  testing_support::Files wanted_;
};

TEST_F(ExecuteFaults, AFailingCallEndsTheCopyWithItsErrorAndPublishesNothing) {
  struct Kind {
    std::atomic<uint64_t> Faults::* nth;
    Code code;
    bool of_source;
  };
  const Kind kinds[] = {{&Faults::fail_read, Code::kIo, true},
                        {&Faults::fail_create, Code::kResourceExhausted, false},
                        {&Faults::fail_write, Code::kResourceExhausted, false},
                        {&Faults::fail_finish, Code::kIo, false},
                        {&Faults::fail_commit, Code::kIo, false}};
  for (size_t kind = 0; kind < std::size(kinds); ++kind) {
    bool finished = false;
    for (uint64_t nth = 1; !finished && nth < 100; ++nth) {
      SCOPED_TRACE("kind " + std::to_string(kind) + ", call " + std::to_string(nth));
      FaultStore from(source_), to{std::shared_ptr<Store>(open_memory_store())};
      (kinds[kind].of_source ? from : to).faults().*kinds[kind].nth = nth;
      auto status = copy(from, to);
      finished = status.ok();
      if (finished) {
        EXPECT_GT(nth, 1u);
        for (const auto& [key, text] : wanted_) EXPECT_EQ(text_at(to, key), text) << key;
        continue;
      }
      ASSERT_EQ(status.error().code, kinds[kind].code) << status.error().text();
      EXPECT_TRUE(status.error().message.starts_with("injected")) << status.error().text();
      EXPECT_TRUE(to.list("")->empty());
      ASSERT_OK(copy(*source_, to));  // and the next one is made
    }
    EXPECT_TRUE(finished);
  }
}

TEST_F(ExecuteFaults, ShortReadsChangeNothing) {
  FaultStore from(source_);
  from.faults().read_bytes_at_once = 1000;
  auto to = open_memory_store();
  ASSERT_OK(copy(from, *to));
  for (const auto& [key, text] : wanted_) EXPECT_EQ(text_at(*to, key), text) << key;
}

}  // namespace
}  // namespace shardwright
