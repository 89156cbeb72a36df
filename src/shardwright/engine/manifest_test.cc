#include "shardwright/engine/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shardwright/store/testing.h"

namespace shardwright {
namespace {

using testing_support::put;
using testing_support::text_at;

/// Two files of one tensor each, "x" in the first and "y" in the second, at the same place in both; the catalogue names the second first.
Checkpoint two_files() {
  Checkpoint out;
  out.store = open_memory_store();
  out.path = "somewhere";
  EXPECT_OK(put(*out.store, "", {{"first", "head1111"}, {"second", "head2222"}}));
  CatalogBuilder builder;
  std::vector<int64_t> shape{4};
  for (auto [file, name] : {std::pair{"second", "y"}, {"first", "x"}}) {
    auto object = builder.add_object({file, 8});
    EXPECT_OK(builder.add_tensor(name, DType::kU8, shape));
    EXPECT_OK(builder.add_flat({Place::kExtent, -1, object, 4, 4}, DType::kU8));
  }
  builder.set_members({"index"}, 1);
  out.catalog = *builder.build();
  return out;
}

uint32_t sum_of(std::string_view text) { return crc32c(view_of(text)); }

std::vector<Receipt> receipts(uint32_t of_first, uint32_t of_second) {
  return {{1, kWholeTensor, {Place::kExtent, -1, 0, 4, 4}, of_first, 0},
          {0, kWholeTensor, {Place::kExtent, -1, 1, 4, 4}, of_second, 0}};
}

TEST(Manifest, SurveyHashesTensorsAndSumsTheirBytes) {
  auto checkpoint = two_files();
  auto manifest = survey(checkpoint, /*stored=*/true, {});
  ASSERT_OK(manifest);
  ASSERT_EQ(manifest->stored.size(), 2u);
  EXPECT_EQ(manifest->stored[0].file, "first");
  EXPECT_EQ(manifest->stored[0].crc32c, sum_of("1111"));
  EXPECT_EQ(manifest->stored[1].crc32c, sum_of("2222"));
  ContentHash hash;
  hash.update(view_of("2222"));
  EXPECT_EQ(manifest->content.at("y").hash, hash.finish().hex());
}

TEST(Manifest, EntriesOfAnotherKindStay) {
  auto checkpoint = two_files();
  const std::string stranger = R"({"content":[1,2],"note":"from elsewhere"})";
  ASSERT_OK(put(*checkpoint.store, "",
                {{std::string(kManifestName), R"({"version": 1, "checkpoints": {"other": )" + stranger +
                                                  R"(, "gone": {"content": {}, "stored": []}}})"}}));
  auto manifest = survey(checkpoint, /*stored=*/true, {});
  ASSERT_OK(manifest);
  ASSERT_OK(write_manifest(checkpoint, *manifest, {}));
  std::string text = text_at(*checkpoint.store, std::string(kManifestName));
  EXPECT_THAT(text, testing::HasSubstr(stranger));
  EXPECT_THAT(text, testing::HasSubstr("\"index\": {"));
  auto without = manifest_without(*checkpoint.store, kManifestName, {"gone"});
  ASSERT_OK(without);
  EXPECT_THAT(std::string(text_of(**without)), testing::HasSubstr(stranger));
  EXPECT_THAT(std::string(text_of(**without)), testing::Not(testing::HasSubstr("gone")));
}

TEST(Manifest, ReceiptsCountByTheDraftsFilesNotByThoseOfTheCatalogue) {
  auto checkpoint = two_files();
  auto manifest = survey(checkpoint, /*stored=*/true, {});
  ASSERT_OK(manifest);
  std::vector<ObjectInfo> written{{"first", 8}, {"second", 8}};
  EXPECT_OK(check_receipts(checkpoint, *manifest, written, receipts(sum_of("1111"), sum_of("2222"))));
  auto damaged = check_receipts(checkpoint, *manifest, written, receipts(sum_of("1111"), sum_of("2223")));
  EXPECT_CODE(damaged, Code::kCorrupt);
  EXPECT_EQ(damaged.error().path, "memory:second");
  EXPECT_EQ(damaged.error().offset, 4u);
}

TEST(Manifest, IsReadAsItWasWrittenAndKeepsTheEntriesOfOthers) {
  auto checkpoint = two_files();
  auto manifest = survey(checkpoint, /*stored=*/true, {});
  ASSERT_OK(manifest);
  ASSERT_OK(write_manifest(checkpoint, *manifest, {}));
  std::string once = text_at(*checkpoint.store, kManifestName);
  ASSERT_OK(write_manifest(checkpoint, *manifest, {}));
  EXPECT_EQ(text_at(*checkpoint.store, kManifestName), once);
  auto again = read_manifest(*checkpoint.store, kManifestName, "index");
  ASSERT_OK(again);
  ASSERT_TRUE(*again);
  EXPECT_EQ((*again)->content.at("x").hash, manifest->content.at("x").hash);
  EXPECT_EQ((*again)->content.at("x").shape, std::vector<int64_t>{4});
  ASSERT_EQ((*again)->stored.size(), 2u);
  EXPECT_EQ((*again)->stored[1].crc32c, sum_of("2222"));

  Checkpoint other = checkpoint;
  CatalogBuilder none;
  none.set_members({"other.safetensors"}, 1);
  other.catalog = *none.build();
  ASSERT_OK(write_manifest(other, {}, {}));
  EXPECT_TRUE(read_manifest(*checkpoint.store, kManifestName, "index")->has_value());
  EXPECT_FALSE(read_manifest(*checkpoint.store, kManifestName, "nobody")->has_value());
  auto rest = manifest_without(*checkpoint.store, kManifestName, {"other.safetensors"});
  ASSERT_OK(rest);
  EXPECT_EQ(text_of(**rest), once);
  auto nothing = manifest_without(*checkpoint.store, kManifestName, {"other.safetensors", "index"});
  ASSERT_OK(nothing);
  EXPECT_TRUE((*nothing)->empty());
  EXPECT_FALSE(manifest_without(*checkpoint.store, kManifestName, {"nobody"})->has_value());
}

TEST(Manifest, DamageIsCorruptAndWrittenOver) {
  for (const char* text : {"", "{", "[]", R"({"version": 1, "checkpoints": {"index": {}}})",
                           R"({"version": 1, "checkpoints": {"index": {"content": {"x": 1}, "stored": []}}})",
                           R"({"version": 1, "checkpoints": {"index": {"content": {}, "stored": [1]}}})"}) {
    auto checkpoint = two_files();
    ASSERT_OK(put(*checkpoint.store, "", {{std::string(kManifestName), text}}));
    EXPECT_CODE(read_manifest(*checkpoint.store, kManifestName, "index"), Code::kCorrupt);
    ASSERT_OK(write_manifest(checkpoint, {}, {}));
    EXPECT_OK(read_manifest(*checkpoint.store, kManifestName, "index"));
  }
  auto later = two_files();
  ASSERT_OK(put(*later.store, "", {{std::string(kManifestName), R"({"version": 2, "checkpoints": {}})"}}));
  EXPECT_CODE(read_manifest(*later.store, kManifestName, "index"), Code::kUnsupported);
  EXPECT_CODE(write_manifest(later, {}, {}), Code::kUnsupported);
}

}  // namespace
}  // namespace shardwright
