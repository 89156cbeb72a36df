#include "shardwright/format/keras_draft.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "shardwright/format/draft_suite.h"
#include "shardwright/format/hdf5_handle.h"
#include "shardwright/format/values_suite.h"
#include "shardwright/store/testing.h"

namespace shardwright {
namespace {

using ::testing::HasSubstr;
using testing_support::TemporaryDirectory;

struct Wanted {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;
  std::string same_as{};
};

WriteOptions named(std::string name, uint64_t max_shard_bytes = kUnknown) {
  WriteOptions options;
  options.name = std::move(name);
  options.max_shard_bytes = max_shard_bytes;
  return options;
}

Catalog wanted(const std::vector<Wanted>& tensors, const std::map<std::string, std::string>& values = {}) {
  CatalogBuilder builder;
  std::map<std::string, TensorId> ids;
  for (const auto& tensor : tensors) {
    ids[tensor.name] = *builder.add_tensor(tensor.name, tensor.dtype, tensor.shape);
    if (!tensor.same_as.empty()) builder.tie(ids[tensor.name], ids[tensor.same_as]);
  }
  for (const auto& [key, text] : values) builder.set_value(key, {Value::kJson, text});
  return *builder.build(true);
}

Bytes values_of(const Catalog& want, TensorId id) { return testing::pattern(want.same_as(id), want.spec(id).nbytes()); }

std::map<std::string, Bytes> written(const Format& format, const Catalog& want, const WriteOptions& options) {
  auto draft = format.draft(want, options);
  EXPECT_TRUE(draft.ok()) << (draft.ok() ? "" : draft.error().text());
  if (!draft.ok()) return {};
  return testing::materialise(**draft, [&](TensorId id) { return values_of(want, id); });
}

void write_all(const TemporaryDirectory& directory, const std::map<std::string, Bytes>& files) {
  for (const auto& [key, bytes] : files) testing_support::write_file(directory.at(key), text_of(bytes));
}

/// Opens what was written with the same row and compares names, types, shapes, values and ties.
Catalog reopened(const Format& format, const TemporaryDirectory& directory, const std::string& key,
                 const Catalog& want) {
  auto store = *open_file_store(directory.path());
  EXPECT_EQ(sniff_format(*store, key), &format);
  std::vector<Error> findings;
  OpenOptions verify;
  verify.findings = &findings;
  auto catalog = format.open(*store, key, verify);
  EXPECT_TRUE(catalog.ok()) << (catalog.ok() ? "" : catalog.error().text());
  for (const auto& finding : findings) ADD_FAILURE() << finding.text();
  if (!catalog.ok()) return {};
  EXPECT_EQ(catalog->size(), want.size());
  EXPECT_EQ(catalog->tie_count(), want.tie_count());
  for (TensorId id = 0; id < want.size(); ++id) {
    auto spec = want.spec(id);
    auto found = catalog->find(spec.name);
    EXPECT_TRUE(found) << spec.name;
    if (!found) continue;
    EXPECT_EQ(catalog->spec(*found).dtype, spec.dtype) << spec.name;
    EXPECT_THAT(catalog->spec(*found).shape, ::testing::ElementsAreArray(spec.shape)) << spec.name;
    EXPECT_EQ(testing::logical_bytes(*store, *catalog, *found), values_of(want, id)) << spec.name;
    EXPECT_EQ(catalog->same_as(*found), catalog->same_as(*catalog->find(want.spec(want.same_as(id)).name)))
        << spec.name;
  }
  return *catalog;
}

Catalog every_dtype() {
  std::vector<Wanted> tensors;
  for (const auto& row : dtype_table()) {
    tensors.push_back({"layers/" + std::string(row.name) + "/vars/0", row.dtype, {3, 4}});
    tensors.push_back({"layers/" + std::string(row.name) + "/vars/1", row.dtype, {0, 4}});
    if (row.block_elems == 1) tensors.push_back({"scalar." + std::string(row.name), row.dtype, {}});
  }
  return wanted(tensors);
}

TEST(KerasDraft, EveryDtypeComesBack) {
  TemporaryDirectory directory;
  auto want = every_dtype();
  write_all(directory, written(kKerasH5, want, named("x.weights.h5")));
  reopened(kKerasH5, directory, "x.weights.h5", want);
}

TEST(KerasDraft, HostileNamesComeBack) {
  TemporaryDirectory directory;
  auto want = wanted({{"a", DType::kF32, {2}},
                      {"a/vars/0", DType::kF32, {2}},
                      {"a/vars/0/vars/1", DType::kF32, {2}},
                      {"", DType::kF32, {1}},
                      {"/", DType::kF32, {1}},
                      {"a//b", DType::kI8, {3}},
                      {"./.", DType::kI8, {3}},
                      {std::string("n\0l", 3), DType::kI8, {3}},
                      {"größe.重み", DType::kF32, {1}},
                      {"model.0.weight", DType::kF32, {1}}});
  write_all(directory, written(kKerasH5, want, named("x.weights.h5")));
  reopened(kKerasH5, directory, "x.weights.h5", want);
}

TEST(KerasDraft, TiesAreHardLinks) {
  TemporaryDirectory directory;
  auto want = wanted({{"wte.weight", DType::kF32, {5}},
                      {"lm_head.weight", DType::kF32, {5}, "wte.weight"},
                      {"layers/dense/vars/0", DType::kBF16, {4}},
                      {"other", DType::kBF16, {4}, "layers/dense/vars/0"},
                      {"third", DType::kF16, {2}},
                      {"layers/dense_1/vars/0", DType::kF16, {2}, "third"}});
  auto files = written(kKerasH5, want, named("x.weights.h5"));
  write_all(directory, files);
  reopened(kKerasH5, directory, "x.weights.h5", want);
  auto sharded = written(kKerasSharded, want, named("y.weights.json", 20));
  EXPECT_EQ(sharded.size(), 3u);
  write_all(directory, sharded);
  reopened(kKerasSharded, directory, "y.weights.json", want);
}

TEST(KerasDraft, MetadataAndLayerNamesAreKept) {
  TemporaryDirectory directory;
  std::map<std::string, std::string> values = {{"metadata", R"({"format":"pt","note":"größe"})"},
                                               {"keras.names", R"({"layers/dense/vars": "my dense"})"}};
  auto want = wanted({{"layers/dense/vars/0", DType::kF32, {2}}, {"layers/dense/vars/1", DType::kF32, {2}}}, values);
  write_all(directory, written(kKerasH5, want, named("x.weights.h5")));
  write_all(directory, written(kKerasSharded, want, named("y.weights.json", 8)));
  for (const auto& catalog : {reopened(kKerasH5, directory, "x.weights.h5", want),
                              reopened(kKerasSharded, directory, "y.weights.json", want)}) {
    ASSERT_NE(catalog.value("metadata"), nullptr);
    EXPECT_EQ(catalog.value("metadata")->data, values["metadata"]);
    ASSERT_NE(catalog.value("keras.names"), nullptr);
    EXPECT_EQ(catalog.value("keras.names")->data, values["keras.names"]);
  }
}

TEST(KerasDraft, SampleIsReshardedAsKerasDidIt) {
  auto store = *open_file_store(testing::data_path("keras"));
  auto source = *kKerasH5.open(*store, "simple.weights.h5", {});
  auto draft = kKerasSharded.draft(source, named("simple_sharded.weights.json", 1040));
  ASSERT_TRUE(draft.ok()) << draft.error().text();
  auto files = testing::materialise(**draft, [&](TensorId id) { return testing::logical_bytes(*store, source, id); });
  EXPECT_EQ(text_of(files["simple_sharded.weights.json"]),
            text_of(testing::read_file(testing::data_path("keras/simple_sharded.weights.json"))));
  EXPECT_EQ(files.size(), 4u);
  TemporaryDirectory directory;
  write_all(directory, files);
  auto ours = *open_file_store(directory.path());
  auto resharded = kKerasSharded.open(*ours, "simple_sharded.weights.json", {});
  ASSERT_TRUE(resharded.ok()) << resharded.error().text();
  EXPECT_EQ(testing::all_values(*ours, *resharded),
            testing::all_values(*store, *kKerasSharded.open(*store, "simple_sharded.weights.json", {})));
}

/// The library itself, with its own file driver, is the witness.
TEST(KerasDraft, TheLibraryReadsWhatTheDraftSays) {
  TemporaryDirectory directory;
  auto want = wanted({{"layers/dense/vars/0", DType::kF32, {3, 2}},
                      {"model.0.weight", DType::kI16, {5}},
                      {"e", DType::kF8E4M3, {2, 2}}});
  write_all(directory, written(kKerasH5, want, named("x.weights.h5")));
  Hdf5Lock lock;
  Hdf5File file(H5Fopen(directory.at("x.weights.h5").c_str(), H5F_ACC_RDONLY, H5P_DEFAULT));
  ASSERT_TRUE(file.ok());
  const char* paths[] = {"/layers/dense/vars/0", "/model.0.weight/vars/0", "/e/vars/0"};
  for (TensorId id = 0; id < 3; ++id) {
    Hdf5Dataset dataset(H5Dopen2(file.get(), paths[id], H5P_DEFAULT));
    ASSERT_TRUE(dataset.ok()) << paths[id];
    Hdf5Type type(H5Dget_type(dataset.get()));
    Bytes bytes(want.spec(id).nbytes());
    EXPECT_GE(H5Dread(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()), 0);
    EXPECT_EQ(bytes, values_of(want, id));
    EXPECT_EQ(H5Aexists(dataset.get(), "shardwright_name") > 0, id > 0);
  }
}

TEST(KerasDraft, EqualInputGivesEqualBytes) {
  auto want = every_dtype();
  EXPECT_EQ(written(kKerasH5, want, named("x.weights.h5")), written(kKerasH5, want, named("x.weights.h5")));
}

TEST(KerasDraft, LargeTensorsCostOnlyTheirMetadata) {
  constexpr int kTensors = 2000;
  std::vector<Wanted> tensors;
  for (int i = 0; i < kTensors; ++i)
    tensors.push_back({"layers/dense_" + std::to_string(i) + "/vars/0", DType::kF32, {1 << 28}});
  auto draft = kKerasH5.draft(wanted(tensors), named("x.weights.h5"));
  ASSERT_TRUE(draft.ok()) << draft.error().text();
  uint64_t literals = 0, payload = 0;
  for (const auto& segment : (*draft)->segments(0))
    (segment.type == Segment::kLiteral ? literals : payload) += segment.length;
  EXPECT_EQ(payload, kTensors * GiB);
  EXPECT_LT(literals, kTensors * 3 * KiB);
  // A sparse file with the literals alone opens, and from few places.
  TemporaryDirectory directory;
  std::ofstream out(directory.at("x.weights.h5"), std::ios::binary);
  for (const auto& segment : (*draft)->segments(0)) {
    if (segment.type != Segment::kLiteral) continue;
    out.seekp(static_cast<std::streamoff>(segment.offset));
    out << text_of(segment.literal);
  }
  out.close();
  ASSERT_TRUE(out.good());
  std::filesystem::resize_file(directory.at("x.weights.h5"), (*draft)->objects()[0].size);
  auto store = *open_file_store(directory.path());
  auto catalog = kKerasH5.open(*store, "x.weights.h5", {});
  ASSERT_TRUE(catalog.ok()) << catalog.error().text();
  EXPECT_EQ(catalog->size(), static_cast<size_t>(kTensors));
  EXPECT_LT(store->bytes_read(), 4 * literals);
}

TEST(KerasDraft, OversizedTensorsWarnOrFail) {
  auto want = wanted({{"layers/a/vars/0", DType::kF32, {100}}, {"layers/b/vars/0", DType::kF32, {1}}});
  WriteOptions options = named("x.weights.json", 100);
  auto draft = kKerasSharded.draft(want, options);
  ASSERT_TRUE(draft.ok());
  EXPECT_THAT((*draft)->warnings(),
              ::testing::ElementsAre(HasSubstr("'layers/a/vars/0' (400 B) is larger than a shard may be (100 B)")));
  options.strict = true;
  auto refused = kKerasSharded.draft(want, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_EQ(refused.error().tensor, "layers/a/vars/0");
}

TEST(KerasDraft, LongMetadataIsLeftOutAndSaid) {
  auto want = wanted({{"a", DType::kF32, {1}}}, {{"metadata", "{\"k\":\"" + std::string(70'000, 'x') + "\"}"}});
  auto draft = kKerasH5.draft(want, named("x.weights.h5"));
  ASSERT_TRUE(draft.ok()) << draft.error().text();
  EXPECT_THAT((*draft)->warnings(), ::testing::ElementsAre(HasSubstr("metadata")));
}

}  // namespace
}  // namespace shardwright
