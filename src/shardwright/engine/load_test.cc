#include "shardwright/engine/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "shardwright/store/testing.h"

namespace shardwright {
namespace {

using ::testing::HasSubstr;
using testing_support::pattern;
using testing_support::put;

/// A file with "a" and "b" close together in it and "far", a megabyte long, far behind; "tie" is another name of "b", "fill" a literal.
class Load : public ::testing::Test {
 protected:
  void SetUp() override {
    checkpoint_.store = open_memory_store();
    ASSERT_OK(put(*checkpoint_.store, "", {{"file", file_}}));
    CatalogBuilder builder;
    auto object = builder.add_object({"file", file_.size()});
    add(builder, "a", {Place::kExtent, -1, object, 10, 5000});
    add(builder, "b", {Place::kExtent, -1, object, 5020, 3000});
    add(builder, "far", {Place::kExtent, -1, object, 1'500'001, 1'100'000});
    add(builder, "none", {Place::kExtent, -1, object, 50, 0});
    add(builder, "fill", builder.add_literal(view_of(file_).first(9)));
    builder.tie(*builder.add_tensor("tie", DType::kU8, std::vector<int64_t>{3000}), 1);
    checkpoint_.catalog = *builder.build();
  }
  static void add(CatalogBuilder& builder, std::string_view name, const Place& place) {
    std::vector<int64_t> shape{static_cast<int64_t>(place.length)};
    ASSERT_OK(builder.add_tensor(name, DType::kU8, shape));
    ASSERT_OK(builder.add_flat(place, DType::kU8));
  }
  std::string_view values(const Loaded& loaded, std::string_view name) {
    return text_of(loaded.values(*loaded.catalog.find(name)));
  }

  std::string file_ = pattern(3'000'000);
  Checkpoint checkpoint_;
};

TEST_F(Load, AllTensorsInOneArenaTiesOnce) {
  auto loaded = load_checkpoint(checkpoint_, {}, {});
  ASSERT_OK(loaded);
  EXPECT_EQ(loaded->catalog.size(), 6u);
  EXPECT_EQ(values(*loaded, "a"), file_.substr(10, 5000));
  EXPECT_EQ(values(*loaded, "b"), file_.substr(5020, 3000));
  EXPECT_EQ(values(*loaded, "far"), file_.substr(1'500'001, 1'100'000));
  EXPECT_EQ(values(*loaded, "fill"), file_.substr(0, 9));
  EXPECT_EQ(values(*loaded, "none"), "");
  EXPECT_EQ(values(*loaded, "tie").data(), values(*loaded, "b").data());
  EXPECT_LE(loaded->arena.size(), 5000u + 3000 + 1'100'000 + 9 + 4 * 4096);
  EXPECT_LE(checkpoint_.store->bytes_read(), 5000u + 3000 + 1'100'000);
}

TEST_F(Load, AddressesAgreeWithFileOffsetsForDirectReads) {
  auto loaded = load_checkpoint(checkpoint_, {}, {});
  ASSERT_OK(loaded);
  for (auto [name, offset] : {std::pair{"a", 10}, {"b", 5020}, {"far", 1'500'001}}) {
    auto address = reinterpret_cast<uintptr_t>(values(*loaded, name).data());
    EXPECT_EQ(address % 4096, static_cast<uintptr_t>(offset) % 4096) << name;
  }
}

TEST_F(Load, OnlyWhatIsAskedForInThatOrder) {
  auto loaded = load_checkpoint(checkpoint_, {"far", "tie"}, {});
  ASSERT_OK(loaded);
  ASSERT_EQ(loaded->catalog.size(), 2u);
  EXPECT_EQ(loaded->catalog.spec(0).name, "far");
  EXPECT_EQ(values(*loaded, "tie"), file_.substr(5020, 3000));
  EXPECT_LE(checkpoint_.store->bytes_read(), 1'103'000u);
}

TEST_F(Load, AllThatIsMissingIsNamedBeforeAnythingIsRead) {
  auto loaded = load_checkpoint(checkpoint_, {"a", "fart", "b", "nothing"}, {});
  EXPECT_CODE(loaded, Code::kNotFound);
  EXPECT_EQ(loaded.error().tensor, "fart");
  EXPECT_THAT(loaded.error().message, HasSubstr("'fart', 'nothing'"));
  EXPECT_THAT(loaded.error().hint, HasSubstr("'far'"));
  EXPECT_EQ(checkpoint_.store->bytes_read(), 0u);
}

}  // namespace
}  // namespace shardwright
