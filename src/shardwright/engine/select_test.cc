#include "shardwright/engine/select.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shardwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Tensors in the order given, in a file where the last stands first.
Catalog source(std::vector<std::string> names) {
  CatalogBuilder builder;
  auto file = builder.add_object({"f", 16 * names.size()});
  std::vector<int64_t> shape{4};
  for (size_t i = 0; i < names.size(); ++i) {
    auto dtype = names[i].ends_with("ids") ? DType::kI32 : DType::kF32;
    EXPECT_TRUE(builder.add_tensor(names[i], dtype, shape).ok());
    EXPECT_TRUE(builder.add_flat({Place::kExtent, -1, file, 16 * (names.size() - 1 - i), 16}, dtype).ok());
  }
  return *builder.build();
}

std::vector<std::string> names_of(const Catalog& catalog) {
  std::vector<std::string> names;
  for (TensorId id = 0; id < catalog.size(); ++id) names.emplace_back(catalog.spec(id).name);
  return names;
}

/// Not by offset: Keras's small variables lie before larger ones that were saved first, and its split goes by what was saved first.
TEST(Select, KeepsTheOrderOfTheCatalogue) {
  auto selected = select_tensors(source({"b", "a", "c"}), {});
  ASSERT_TRUE(selected.ok());
  EXPECT_THAT(names_of(selected->want), ElementsAre("b", "a", "c"));
}

TEST(Select, GlobsCrossDotsAndSlashes) {
  Selection selection;
  selection.include = {"model.*"};
  selection.exclude = {"*bias"};
  auto selected = select_tensors(source({"head/w", "model.a/b.w", "model.a/b.bias"}), selection);
  ASSERT_TRUE(selected.ok());
  EXPECT_THAT(names_of(selected->want), ElementsAre("model.a/b.w"));
  selection.include = {"model.layer.weigth"};
  auto none = select_tensors(source({"model.layer.weight"}), selection);
  EXPECT_EQ(none.error().code, Code::kNotFound);
  EXPECT_THAT(none.error().hint, HasSubstr("model.layer.weight"));
}

TEST(Select, CastsFloatingTypesOnly) {
  Selection selection;
  selection.dtype = DType::kBF16;
  auto selected = select_tensors(source({"w", "ids"}), selection);
  ASSERT_TRUE(selected.ok());
  EXPECT_EQ(selected->want.spec(*selected->want.find("w")).dtype, DType::kBF16);
  EXPECT_EQ(selected->want.spec(*selected->want.find("ids")).dtype, DType::kI32);
  selection.dtype = DType::kI8;
  EXPECT_EQ(select_tensors(source({"w"}), selection).error().code, Code::kInvalidArgument);
}

TEST(Select, RenamesInOrderAndRefusesCollisions) {
  Selection selection;
  selection.rename = {{R"(^model\.)", ""}, {R"(layers\.(\d+))", R"(blk.\1)"}};
  auto selected = select_tensors(source({"model.layers.3.w"}), selection);
  ASSERT_TRUE(selected.ok());
  EXPECT_THAT(names_of(selected->want), ElementsAre("blk.3.w"));
  auto collision = select_tensors(source({"model.x", "x"}), selection);
  EXPECT_EQ(collision.error().code, Code::kInvalidArgument);
  EXPECT_THAT(collision.error().text(), HasSubstr("'model.x'"));
}

TEST(Select, TieIsKeptByWhatRemains) {
  CatalogBuilder builder;
  auto file = builder.add_object({"f", 16});
  std::vector<int64_t> shape{4};
  ASSERT_TRUE(builder.add_tensor("embed", DType::kF32, shape).ok());
  ASSERT_TRUE(builder.add_flat({Place::kExtent, -1, file, 0, 16}, DType::kF32).ok());
  builder.tie(*builder.add_tensor("head", DType::kF32, shape), 0);
  builder.tie(*builder.add_tensor("tail", DType::kF32, shape), 0);
  Selection selection;
  selection.exclude = {"embed"};
  auto selected = select_tensors(*builder.build(), selection);
  ASSERT_TRUE(selected.ok());
  ASSERT_THAT(names_of(selected->want), ElementsAre("head", "tail"));
  EXPECT_EQ(selected->want.same_as(0), 0u);
  EXPECT_EQ(selected->want.same_as(1), 0u);
}

}  // namespace
}  // namespace shardwright
