#include "shardwright/format/keras_archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shardwright/format/draft_suite.h"
#include "shardwright/format/values_suite.h"
#include "shardwright/store/testing.h"
#include "shardwright/store/zip.h"

namespace shardwright {
namespace {

TEST(KerasArchive, WeightsAreReadInPlace) {
  auto store = *open_file_store(testing::data_path("keras"));
  EXPECT_EQ(sniff_format(*store, "nested.keras"), &kKerasArchive);
  auto archive = kKerasArchive.open(*store, "nested.keras", {});
  ASSERT_TRUE(archive.ok()) << archive.error().text();
  // nested.weights.h5 is the same model saved without an archive.
  auto plain = kKerasH5.open(*store, "nested.weights.h5", {});
  ASSERT_TRUE(plain.ok()) << plain.error().text();
  EXPECT_EQ(testing::all_values(*store, *archive), testing::all_values(*store, *plain));
  std::vector<std::string> names;
  for (const auto& file : archive->side_files()) names.push_back(file.name);
  EXPECT_THAT(names, ::testing::ElementsAre("metadata.json", "config.json"));
  const auto& metadata = archive->side_files()[0];
  Bytes text(metadata.length);
  ReadOp op{metadata.key, metadata.offset, text};
  ASSERT_TRUE(store->read({&op, 1}).ok());
  EXPECT_THAT(std::string(text_of(text)), ::testing::HasSubstr("\"keras_version\""));
}

TEST(KerasArchive, ReplacingTheWeightsKeepsTheModel) {
  auto store = *open_file_store(testing::data_path("keras"));
  auto source = *kKerasArchive.open(*store, "nested.keras", {});
  WriteOptions options;
  options.name = "new.keras";
  options.base_store = store.get();
  options.base_key = "nested.keras";
  auto draft = kKerasArchive.draft(source, options);
  ASSERT_TRUE(draft.ok()) << draft.error().text();
  EXPECT_TRUE((*draft)->wants_crc32());
  auto files =
      testing::materialise(**draft, [&](TensorId id) { return testing::pattern(id, source.spec(id).nbytes()); });
  testing_support::TemporaryDirectory directory;
  testing_support::write_file(directory.at("new.keras"), text_of(files.at("new.keras")));
  auto ours = *open_file_store(directory.path());
  auto before = *read_zip(*store, "nested.keras");
  auto after = read_zip(*ours, "new.keras");
  ASSERT_TRUE(after.ok()) << after.error().text();
  ASSERT_EQ(after->size(), before.size());
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ((*after)[i].name, before[i].name);
    Bytes bytes((*after)[i].bytes);
    ReadOp op{"new.keras", (*after)[i].offset, bytes};
    ASSERT_TRUE(ours->read({&op, 1}).ok());
    EXPECT_EQ(crc32(bytes), (*after)[i].crc32) << before[i].name;
    EXPECT_TRUE(before[i].name == "model.weights.h5" || (*after)[i].crc32 == before[i].crc32);
  }
  auto catalog = kKerasArchive.open(*ours, "new.keras", {});
  ASSERT_TRUE(catalog.ok()) << catalog.error().text();
  ASSERT_EQ(catalog->size(), source.size());
  for (TensorId id = 0; id < source.size(); ++id)
    EXPECT_EQ(testing::logical_bytes(*ours, *catalog, *catalog->find(source.spec(id).name)),
              testing::pattern(id, source.spec(id).nbytes()));
}

TEST(KerasArchive, ChecksumsOfItsMembersFindAFlippedBit) {
  auto samples = *open_file_store(testing::data_path("keras"));
  auto member = read_zip(*samples, "nested.keras")->back();
  ASSERT_EQ(member.name, "model.weights.h5");
  std::string bytes = testing_support::text_at(*samples, "nested.keras");
  for (bool damaged : {false, true}) {
    if (damaged) bytes[member.offset + member.bytes - 1] ^= 1;
    std::shared_ptr<Store> store = open_memory_store();
    ASSERT_OK(testing_support::put(*store, "", {{"x.keras", bytes}}));
    std::vector<Error> findings;
    OpenOptions options;
    options.findings = &findings;
    ASSERT_OK(kKerasArchive.check_sums(*store, "x.keras", options));
    ASSERT_EQ(findings.size(), damaged ? 1u : 0u);
    if (!damaged) continue;
    EXPECT_EQ(findings[0].code, Code::kCorrupt);
    EXPECT_EQ(findings[0].offset, member.offset);
    EXPECT_THAT(findings[0].message, ::testing::HasSubstr("model.weights.h5"));
  }
}

TEST(KerasArchive, NeedsAnArchiveToWriteInto) {
  EXPECT_EQ(kKerasArchive.draft(Catalog(), WriteOptions()).error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace shardwright
