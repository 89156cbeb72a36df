#include "shardwright/engine/write_part.h"

#include <gtest/gtest.h>

#include <atomic>

#include "shardwright/engine/toy_format_for_test.h"

namespace shardwright {
namespace {

/// Objects of another transaction, and the most operations that any of their writers got at once.
class CountingTransaction : public Transaction {
 public:
  explicit CountingTransaction(std::unique_ptr<Transaction> base) : base_(std::move(base)) {}
  std::string token() const override { return base_->token(); }
  Result<std::unique_ptr<Writer>> create(std::string_view key, uint64_t size_bytes) override {
    SHARDWRIGHT_ASSIGN(auto writer, base_->create(key, size_bytes));
    return std::unique_ptr<Writer>(std::make_unique<CountingWriter>(std::move(writer), most_operations));
  }
  Result<std::unique_ptr<Writer>> open(std::string_view key, uint64_t size_bytes) override {
    return base_->open(key, size_bytes);
  }
  Status commit(const Publication& publication) override { return base_->commit(publication); }
  std::atomic<size_t> most_operations{0};

 private:
  struct CountingWriter : Writer {
    CountingWriter(std::unique_ptr<Writer> to, std::atomic<size_t>& count) : base(std::move(to)), most(count) {}
    Status write(std::span<const WriteOp> ops) override {
      most = std::max(most.load(), ops.size());
      return base->write(ops);
    }
    Status finish(uint64_t size_bytes) override { return base->finish(size_bytes); }
    std::unique_ptr<Writer> base;
    std::atomic<size_t>& most;
  };
  std::unique_ptr<Transaction> base_;
};

/// A chunk wider than its tensor has a run for every row.
TEST(StreamPart, ManyShortRunsAreWrittenInBatchesAndSummedAsOne) {
  constexpr int64_t kRows = 40'000, kWide = 4, kUsed = 3;
  std::vector<int32_t> chunk(kRows * kWide), wanted;
  for (size_t i = 0; i < chunk.size(); ++i) {
    chunk[i] = static_cast<int32_t>(i * 2654435761u);
    if (i % kWide < kUsed) wanted.push_back(chunk[i]);
  }
  Encoding encoding{DType::kI32, false, {{"zlib", 1}}, chunk.size() * 4};
  Bytes stored;
  auto encoder = make_encoder(encoding.chain, encoding.decoded_bytes);
  ASSERT_TRUE(encoder.ok());
  auto keep = [&](View part) -> Status {
    stored.insert(stored.end(), part.begin(), part.end());
    return {};
  };
  ASSERT_TRUE((*encoder)->push(std::as_bytes(std::span(chunk)), true, keep).ok());
  auto store = open_memory_store();
  auto source = store->begin("");
  ASSERT_TRUE(source.ok() && write_object(**source, "source", stored).ok());
  ASSERT_TRUE((*source)->commit({{"source"}, {}, {}}).ok());
  CatalogBuilder builder;
  auto object = builder.add_object({"source", stored.size()});
  std::vector<int64_t> shape{kRows, kUsed};
  ASSERT_TRUE(builder.add_tensor("w", DType::kI32, shape).ok());
  Place place{Place::kExtent, -1, object, 0, stored.size()};
  ASSERT_TRUE(builder.add_piece({Box::whole(shape), place, builder.add_encoding(encoding), {kWide, 1}}).ok());
  auto from = builder.build();
  ASSERT_TRUE(from.ok()) << from.error().text();

  toy::ClosedDraft draft(*from, 1);
  PlanOptions options;
  options.memory_bytes = 1 * MiB;
  options.part_bytes = 64 * KiB;
  options.checksums = true;
  auto plan = plan_write(*from, draft, {}, options);
  ASSERT_TRUE(plan.ok()) << plan.error().text();
  auto target = open_memory_store();
  CountingTransaction transaction(std::move(*target->begin("")));
  auto done = execute(*plan, {store.get(), &draft, &transaction}, {});
  ASSERT_TRUE(done.ok()) << done.error().text();
  ASSERT_TRUE(transaction.commit({{"0"}, {}, {}}).ok());
  EXPECT_EQ(transaction.most_operations, 1024u);
  auto bytes = read_object(*target, "0", GiB);
  View values = View(*bytes).subspan(draft.offsets[0].second, wanted.size() * 4);
  EXPECT_TRUE(std::ranges::equal(values, std::as_bytes(std::span(wanted))));
  ASSERT_EQ(done->receipts.size(), 2u);  // the literal before it, and the tensor
  EXPECT_EQ(done->receipts[1].crc32c, crc32c(values));
}

}  // namespace
}  // namespace shardwright
