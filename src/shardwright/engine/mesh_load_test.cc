#include "shardwright/engine/mesh_load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <thread>

#include "shardwright/engine/big_file_for_test.h"

namespace shardwright {
namespace {

using ::testing::HasSubstr;
using Shape = std::vector<int64_t>;

/// Random tensors of two dtypes in one object: in one stretch, in two pieces, in deflated chunks; scalars, empty ones and ties among them.
class Source {
 public:
  explicit Source(std::mt19937& random) : random_(random) {
    builder_.add_object({"o", kUnknown});
    for (size_t i = 0, n = 1 + below(5); i < n; ++i) add("t" + std::to_string(i));
    checkpoint.store = open_memory_store();
    EXPECT_OK(testing_support::put(*checkpoint.store, "", {{"o", std::string(text_of(file_))}}));
    auto built = builder_.build();
    EXPECT_OK(built);
    checkpoint.catalog = *built;
  }
  Checkpoint checkpoint;

 private:
  size_t below(size_t n) { return random_() % n; }

  void add(const std::string& name) {
    Shape shape(below(4));
    for (auto& extent : shape) extent = static_cast<int64_t>(below(12) == 0 ? 0 : 1 + below(40));
    DType dtype = below(2) == 0 ? DType::kF32 : DType::kU16;
    TensorId id = *builder_.add_tensor(name, dtype, shape);
    Box whole = Box::whole(shape);
    size_t kind = below(4);
    if (kind < 2 || whole.rank() == 0 || whole.extent[0] < 2) {
      ASSERT_OK(builder_.add_flat(append(values(whole, dtype)), dtype));
    } else {
      Box upper = whole, lower = whole;
      upper.extent[0] = lower.start[0] = 1 + static_cast<int64_t>(below(static_cast<size_t>(whole.extent[0]) - 1));
      lower.extent[0] -= upper.extent[0];
      for (const Box& box : {upper, lower}) ASSERT_OK(add_piece(box, dtype, kind == 2));
    }
    if (below(4) == 0) builder_.tie(*builder_.add_tensor(name + "-tied", dtype, shape), id);
  }

  Status add_piece(const Box& box, DType dtype, bool deflated) {
    Bytes bytes = values(box, dtype);
    Encoding encoding{dtype};
    if (deflated) {
      encoding.chain = {{"zlib", 1}};
      encoding.decoded_bytes = bytes.size();
      SHARDWRIGHT_ASSIGN(auto encoder, make_encoder(encoding.chain, bytes.size()));
      Bytes out;
      SHARDWRIGHT_TRY(encoder->push(bytes, true, [&](View part) -> Status {
        out.insert(out.end(), part.begin(), part.end());
        return {};
      }));
      bytes = std::move(out);
    }
    return builder_.add_piece({box, append(bytes), builder_.add_encoding(encoding), {}});
  }

  Bytes values(const Box& box, DType dtype) {
    Bytes bytes(*bytes_of_elements(dtype, box.elements()));
    for (auto& byte : bytes) byte = static_cast<std::byte>(below(256));
    return bytes;
  }

  Place append(View bytes) {
    file_.resize(file_.size() + below(40));
    Place place{Place::kExtent, -1, 0, file_.size(), bytes.size()};
    file_.insert(file_.end(), bytes.begin(), bytes.end());
    return place;
  }

  std::mt19937& random_;
  CatalogBuilder builder_;
  Bytes file_;
};

/// A device that the host does not reach, as an accelerator would be.
class FarDevice final : public Device {
 public:
  class Array final : public DeviceArray {
   public:
    explicit Array(uint64_t bytes) : bytes_(bytes) {}
    uint64_t size() const override { return bytes_.size(); }
    MutableView host() override { return {}; }
    Status put(uint64_t offset, View values) override {
      std::ranges::copy(values, bytes_.begin() + static_cast<int64_t>(offset));
      put_ += values.size();
      return {};
    }
    Status finish() override {
      EXPECT_EQ(put_, bytes_.size()) << "every byte once";
      finished = true;
      return {};
    }
    View values() const { return bytes_; }
    bool finished = false;

   private:
    Bytes bytes_;
    uint64_t put_ = 0;
  };
  const std::string& name() const override { return name_; }
  Result<std::unique_ptr<DeviceArray>> allocate(uint64_t bytes) override { return std::make_unique<Array>(bytes); }
  std::unique_ptr<DeviceArray> share(DeviceArray&) override { return nullptr; }

 private:
  std::string name_ = "far";
};

View values_of(DeviceArray& array) {
  auto* far = dynamic_cast<FarDevice::Array*>(&array);
  if (far == nullptr) return array.host();
  EXPECT_TRUE(far->finished);
  return far->values();
}

DeviceMesh random_mesh(std::mt19937& random) {
  std::vector<std::vector<int64_t>> shapes = {{1}, {5}, {2, 4}, {3, 2}, {2, 1, 3}};
  auto shape = shapes[random() % shapes.size()];
  std::vector<std::string> axes = {"a", "b", "c"};
  axes.resize(shape.size());
  return *DeviceMesh::create(shape, axes);
}

TensorLayout random_layout(std::mt19937& random, const DeviceMesh& mesh, size_t rank) {
  TensorLayout layout{std::vector<std::vector<std::string>>(rank), Uneven::kChunk};
  for (const auto& axis : mesh.axis_names())
    if (rank > 0 && random() % 3 != 0) layout.dims[random() % rank].push_back(axis);
  return layout;
}

TEST(MeshLoad, EveryBoxOfEveryPositionIsWhatReadBoxSays) {
  for (int round = 0; round < 150; ++round) {
    auto seed = static_cast<unsigned>(std::random_device()());
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    Source source(random);
    const Catalog& catalog = source.checkpoint.catalog;
    DeviceMesh mesh = random_mesh(random);
    std::vector<MeshTensor> tensors;
    for (TensorId id = 0; id < catalog.size(); ++id) {
      auto spec = catalog.spec(id);
      auto layout = random_layout(random, mesh, spec.shape.size());
      if (random() % 2 == 0 && id > 0) layout = random_layout(random, mesh, 0);  // of ties: both alike, sometimes
      tensors.push_back({id, spec.dtype, *ShardGrid::create(mesh, layout, spec.shape)});
    }
    HostDevice host("host"), second("second");
    FarDevice far;
    std::vector<Device*> devices{&host, &second, &far};
    devices.resize(1 + random() % 3);
    std::vector<MeshSeat> seats;
    for (int64_t position = 0; position < mesh.size(); ++position)
      if (random() % 4 != 0) seats.push_back({position, devices[random() % devices.size()]});
    std::map<std::pair<TensorId, int64_t>, int> handed;
    JobOptions options;
    options.plan.memory_bytes = 1 * MiB;
    options.plan.part_bytes = 64 * KiB;
    auto caller = std::this_thread::get_id();
    auto loaded = load_onto_mesh(
        source.checkpoint, tensors, seats,
        [&](MeshBox got) -> Status {
          EXPECT_EQ(std::this_thread::get_id(), caller);
          ++handed[{got.tensor, got.position}];
          EXPECT_TRUE(got.box == tensors[got.tensor].grid.box_of(got.position));
          Bytes expected(*bytes_of_elements(got.dtype, got.box.elements()));
          EXPECT_OK(read_box(source.checkpoint, got.tensor, got.box, expected));
          EXPECT_TRUE(std::ranges::equal(values_of(*got.array), expected)) << got.box.text();
          return {};
        },
        options);
    ASSERT_OK(loaded);
    EXPECT_EQ(handed.size(), catalog.size() * seats.size());
    EXPECT_EQ(loaded->boxes, handed.size());
    EXPECT_LE(loaded->peak_bytes, options.plan.memory_bytes);
    EXPECT_EQ(host.held_bytes() + second.held_bytes(), 0u) << "the consumer kept nothing";
    if (testing::Test::HasFailure()) return;
  }
}

TEST(MeshLoad, ConvertsOnTheWay) {
  std::vector<float> values(64 * 32);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  CatalogBuilder builder;
  (void)*builder.add_tensor("w", DType::kF32, Shape{64, 32});
  ASSERT_OK(builder.add_flat(builder.add_literal(std::as_bytes(std::span(values))), DType::kF32));
  Checkpoint checkpoint;
  checkpoint.store = open_memory_store();
  checkpoint.catalog = *builder.build();
  DeviceMesh mesh = *DeviceMesh::parse("x=4");
  std::vector<MeshTensor> tensors{{0, DType::kF16, *ShardGrid::create(mesh, {{{}, {"x"}}}, Shape{64, 32})}};
  HostDevice host("host");
  std::vector<MeshSeat> seats{{2, &host}};
  auto take = [](const MeshBox& box) -> Status {
    EXPECT_EQ(box.array->size(), 64u * 8 * 2);
    EXPECT_EQ(load_le<uint16_t>(box.array->host().first(2)), 0x4c00) << "16 in half precision";
    return {};
  };
  EXPECT_OK(load_onto_mesh(checkpoint, tensors, seats, take, {}));
}

// Two elements a byte: a row of eight is four bytes, of which each of two columns of devices has two.
TEST(MeshLoad, PackedTypesAreCutBetweenBytes) {
  CatalogBuilder builder;
  Bytes values;
  for (int i = 0; i < 16; ++i) values.push_back(static_cast<std::byte>(i));
  Checkpoint checkpoint;
  checkpoint.store = open_memory_store();
  ASSERT_OK(testing_support::put(*checkpoint.store, "", {{"o", std::string(text_of(values))}}));
  builder.add_object({"o", values.size()});
  (void)*builder.add_tensor("w", DType::kF4, Shape{4, 8});
  ASSERT_OK(builder.add_flat({Place::kExtent, -1, 0, 0, values.size()}, DType::kF4));
  checkpoint.catalog = *builder.build();
  DeviceMesh mesh = *DeviceMesh::parse("y=2,x=2");
  HostDevice host("host");
  FarDevice far;
  auto load = [&](const TensorLayout& layout, std::vector<MeshSeat> seats) {
    std::map<int64_t, std::vector<int>> out;
    std::vector<MeshTensor> tensors{{0, DType::kF4, *ShardGrid::create(mesh, layout, Shape{4, 8})}};
    auto take = [&](const MeshBox& box) -> Status {
      for (std::byte value : values_of(*box.array)) out[box.position].push_back(static_cast<int>(value));
      return {};
    };
    EXPECT_OK(load_onto_mesh(checkpoint, tensors, seats, take, {}));
    return out;
  };
  for (Device* device : std::vector<Device*>{&host, &far}) {
    auto blocks = load({{{"y"}, {"x"}}}, {{0, device}, {1, device}, {2, device}, {3, device}});
    EXPECT_EQ(blocks[0], (std::vector<int>{0, 1, 4, 5}));
    EXPECT_EQ(blocks[3], (std::vector<int>{10, 11, 14, 15}));
    auto columns = load({{{}, {"x"}}}, {{1, device}});
    EXPECT_EQ(columns[1], (std::vector<int>{2, 3, 6, 7, 10, 11, 14, 15}));
    auto rows = load({{{"x"}}}, {{1, device}});
    EXPECT_EQ(rows[1], (std::vector<int>{8, 9, 10, 11, 12, 13, 14, 15}));
  }
  std::vector<MeshSeat> seats{{0, &host}};
  std::vector<MeshTensor> cut{
      {0, DType::kF4, *ShardGrid::create(*DeviceMesh::parse("x=8"), {{{}, {"x"}}}, Shape{4, 8})}};
  EXPECT_CODE(load_onto_mesh(checkpoint, cut, seats, [](const MeshBox&) -> Status { return {}; }, {}),
              Code::kInvalidArgument);
}

TEST_F(BigFile, NeededBytesAreReadOnce) {
  make({2048, 1024});
  HostDevice host("host");
  auto drop = [](const MeshBox&) -> Status { return {}; };
  auto read = [&](const TensorLayout& layout, std::vector<MeshSeat> seats) {
    uint64_t before = checkpoint_.store->bytes_read();
    auto loaded = load_onto_mesh(checkpoint_, laid("x=2,y=4", layout), seats, drop, {});
    EXPECT_OK(loaded);
    EXPECT_EQ(loaded->read_bytes, checkpoint_.store->bytes_read() - before);
    EXPECT_LE(loaded->read_bytes, loaded->needed_bytes + loaded->gap_bytes);
    return loaded->read_bytes;
  };
  auto everyone = all(8, host);
  EXPECT_EQ(read({{{"x", "y"}}}, everyone), bytes_);
  EXPECT_EQ(read({{{}, {"x", "y"}}}, everyone), bytes_);
  EXPECT_EQ(read({{{"y"}, {"x"}}}, everyone), bytes_);
  EXPECT_EQ(read({}, everyone), bytes_) << "replicas are read once";
  EXPECT_EQ(read({{{"x"}}}, {{0, &host}, {1, &host}, {3, &host}}), bytes_ / 2);
  EXPECT_EQ(read({{{"x", "y"}}}, {{1, &host}, {6, &host}}), bytes_ / 4);
  // Neighbouring columns share their reading, with the gaps of half a kilobyte between them; the last row's gap is not read.
  uint64_t columns = read({{{}, {"x", "y"}}}, {{0, &host}, {1, &host}, {3, &host}});
  EXPECT_LE(columns, bytes_);
  EXPECT_GE(columns, bytes_ / 8 * 3);
}

TEST_F(BigFile, WideGapsAreNotRead) {
  make({8, 256 * 1024});  // columns of 128 KiB
  HostDevice host("host");
  std::vector<MeshSeat> seats{{1, &host}, {5, &host}};
  auto loaded =
      load_onto_mesh(checkpoint_, laid("x=8", {{{}, {"x"}}}), seats, [](const MeshBox&) -> Status { return {}; }, {});
  ASSERT_OK(loaded);
  EXPECT_EQ(loaded->read_bytes, bytes_ / 4);
  EXPECT_EQ(loaded->gap_bytes, 0u);
}

TEST_F(BigFile, ReplicasShareBytesAndCountForEach) {
  make({64, 64});
  HostDevice a("a"), b("b");
  std::vector<MeshBox> kept;
  auto keep = [&](MeshBox box) -> Status {
    kept.push_back(std::move(box));
    return {};
  };
  std::vector<MeshSeat> seats{{0, &a}, {1, &b}};
  auto loaded = load_onto_mesh(checkpoint_, laid("x=2", {}), seats, keep, {});
  ASSERT_OK(loaded);
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[0].array->host().data(), kept[1].array->host().data());
  EXPECT_EQ(a.held_bytes(), bytes_);
  EXPECT_EQ(b.held_bytes(), bytes_);
  kept.pop_back();
  EXPECT_EQ(a.held_bytes() + b.held_bytes(), bytes_);
}

TEST_F(BigFile, WhatCannotBeDoneIsSaidBeforeAByteIsRead) {
  make({64, 64});
  auto none = [](const MeshBox&) -> Status { return {}; };
  HostDevice small("small", bytes_ / 8), host("host");
  auto full = load_onto_mesh(checkpoint_, laid("x=4", {{{"x"}}}), all(4, small), none, {});
  EXPECT_CODE(full, Code::kResourceExhausted);
  EXPECT_THAT(full.error().text(), HasSubstr("'w'"));
  EXPECT_THAT(full.error().text(), HasSubstr("device 'small'"));
  EXPECT_EQ(small.held_bytes(), 0u);
  std::vector<MeshSeat> twice{{1, &host}, {1, &host}};
  EXPECT_CODE(load_onto_mesh(checkpoint_, laid("x=4", {}), twice, none, {}), Code::kInvalidArgument);
  std::vector<MeshTensor> other{{0, DType::kF32, *ShardGrid::create(*DeviceMesh::parse("x=4"), {}, Shape{64, 65})}};
  EXPECT_CODE(load_onto_mesh(checkpoint_, other, all(4, host), none, {}), Code::kInvalidArgument);
  EXPECT_EQ(checkpoint_.store->bytes_read(), 0u);
  auto stop = [](const MeshBox&) -> Status { return fail(Code::kIo, "enough"); };
  EXPECT_CODE(load_onto_mesh(checkpoint_, laid("x=4", {}), all(4, host), stop, {}), Code::kIo);
}

TEST(LayOut, ByTheRulesOfAMap) {
  CatalogBuilder builder;
  for (const char* name : {"a", "b"}) {
    (void)*builder.add_tensor(name, DType::kF32, Shape{6, 4});
    ASSERT_OK(builder.add_flat(builder.add_literal(Bytes(96)), DType::kF32));
  }
  Catalog catalog = *builder.build();
  LayoutMap map(*DeviceMesh::parse("x=4"));
  ASSERT_OK(map.set("b", {{{}, {"x"}}}));
  auto laid = lay_out(map, catalog, {"b", "a"});
  ASSERT_OK(laid);
  EXPECT_EQ((*laid)[0].tensor, 1u);
  EXPECT_EQ((*laid)[0].grid.shard_shape(), (Shape{6, 1}));
  EXPECT_EQ((*laid)[1].grid.shard_shape(), (Shape{6, 4}));
  EXPECT_CODE(lay_out(map, catalog, {"c"}), Code::kNotFound);
  ASSERT_OK(map.set("[ab]$", {{{"x"}}}));
  EXPECT_THAT(lay_out(map, catalog, {"a"}).error().text(),
              HasSubstr("tensor 'a': dimension 0 of size 6 is not divisible by axis 'x' of size 4"));
}

}  // namespace
}  // namespace shardwright
