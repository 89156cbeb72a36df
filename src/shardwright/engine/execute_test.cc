#include "shardwright/engine/execute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <thread>

#include "shardwright/engine/toy_format_for_test.h"
#include "shardwright/store/testing.h"
#include "shardwright/tensor/convert.h"

namespace shardwright {
namespace {

/// A random source: tensors of int32 whose values are distinct, in pieces of every kind, and what they should read as.
class Source {
 public:
  explicit Source(std::mt19937& random) : random_(random), store(open_memory_store()) {
    auto object = builder_.add_object({"source", kUnknown});
    size_t tensors = 1 + random_() % 6;
    for (size_t i = 0; i < tensors; ++i) add_tensor(object, "t" + std::to_string(i));
    put();
    auto built = builder_.build();
    EXPECT_TRUE(built.ok()) << built.error().text();
    catalog = *built;
  }

  Catalog catalog;
  std::map<std::string, std::vector<int32_t>> values;

 private:
  void add_tensor(ObjectId object, const std::string& name) {
    std::vector<int64_t> shape(random_() % 4);
    for (auto& extent : shape) extent = static_cast<int64_t>(random_() % 60) + (random_() % 20 != 0);
    auto& wanted = values[name];
    wanted.resize(*element_count(shape));
    for (auto& value : wanted) value = next_value_++;
    ASSERT_TRUE(builder_.add_tensor(name, DType::kI32, shape).ok());
    // Cut along every dimension into one or two.
    std::vector<Box> boxes{Box::whole(shape)};
    bool whole = shape.empty() || boxes[0].empty() || random_() % 2 == 0;
    for (size_t d = 0; d < shape.size() && !whole; ++d) {
      int64_t at = static_cast<int64_t>(random_() % static_cast<uint64_t>(shape[d]));
      if (at == 0) continue;
      std::vector<Box> halves;
      for (auto box : boxes) {
        auto second = box;
        box.extent[d] = at;
        second.start[d] = at;
        second.extent[d] = shape[d] - at;
        halves.push_back(box);
        halves.push_back(second);
      }
      boxes = halves;
    }
    bool big_endian = random_() % 4 == 0;
    for (const Box& box : boxes) add_piece(object, box, shape, wanted, big_endian);
  }

  void add_piece(ObjectId object, const Box& box, const std::vector<int64_t>& shape, const std::vector<int32_t>& wanted,
                 bool big_endian) {
    std::vector<int32_t> packed(box.elements());
    if (!packed.empty())
      copy_strided(box, {Box::whole(shape), c_strides(shape)}, reinterpret_cast<const std::byte*>(wanted.data()),
                   {box, c_strides(box.extent)}, reinterpret_cast<std::byte*>(packed.data()), 4);
    std::vector<int64_t> strides;
    int kind = static_cast<int>(random_() % 5);
    if (kind == 4 && box.rank() == 2 && !box.empty()) {  // column order in memory
      strides = {1, box.extent[0]};
      std::vector<int32_t> turned(packed.size());
      copy_strided(box, {box, c_strides(box.extent)}, reinterpret_cast<const std::byte*>(packed.data()), {box, strides},
                   reinterpret_cast<std::byte*>(turned.data()), 4);
      packed = turned;
    }
    Bytes bytes(packed.size() * 4);
    if (!bytes.empty()) std::memcpy(bytes.data(), packed.data(), bytes.size());
    if (big_endian) byteswap(bytes, 4);
    Encoding encoding{DType::kI32, big_endian};
    Place place;
    if (kind == 0) {
      place = builder_.add_literal(bytes);
    } else if (kind == 1 && !bytes.empty()) {
      encoding.chain = {{"shuffle", 4}, {"zlib", 5}};
      encoding.decoded_bytes = bytes.size();
      auto encoder = make_encoder(encoding.chain, bytes.size());
      ASSERT_TRUE(encoder.ok());
      Bytes out;
      ASSERT_TRUE((*encoder)
                      ->push(bytes, true,
                             [&](View part) -> Status {
                               out.insert(out.end(), part.begin(), part.end());
                               return {};
                             })
                      .ok());
      place = append(object, out);
    } else if (kind == 4) {
      memory_.push_back(std::move(bytes));
      place = {Place::kMemory, -1, 0, reinterpret_cast<uint64_t>(memory_.back().data()), memory_.back().size()};
    } else {
      place = append(object, bytes);
    }
    auto status = builder_.add_piece({box, place, builder_.add_encoding(encoding), strides});
    ASSERT_TRUE(status.ok()) << status.error().text();
  }

  Place append(ObjectId object, View bytes) {
    file_.resize(file_.size() + random_() % 3);
    Place place{Place::kExtent, -1, object, file_.size(), bytes.size()};
    file_.insert(file_.end(), bytes.begin(), bytes.end());
    return place;
  }

  void put() {
    auto transaction = store->begin("");
    ASSERT_TRUE(transaction.ok());
    auto writer = (*transaction)->create("source", file_.size());
    ASSERT_TRUE(writer.ok());
    WriteOp op{0, file_};
    ASSERT_TRUE((*writer)->write({&op, 1}).ok());
    ASSERT_TRUE((*writer)->finish(file_.size()).ok());
    ASSERT_TRUE((*transaction)->commit({{"source"}, {}, {}}).ok());
  }

  std::mt19937& random_;
  CatalogBuilder builder_;
  Bytes file_;
  std::deque<Bytes> memory_;
  int32_t next_value_ = 1;

 public:
  std::unique_ptr<Store> store;
};

PlanOptions random_options(std::mt19937& random) {
  PlanOptions options;
  options.memory_bytes = 2 * MiB + random() % (2 * MiB);
  options.part_bytes = std::vector<uint64_t>{64 * KiB, 64 * KiB, 8 * MiB}[random() % 3];
  options.threads = 1 + static_cast<int>(random() % 4);
  options.checksums = random() % 2 == 0;
  return options;
}

class Execute : public ::testing::Test {
 protected:
  void each_round(int rounds, const std::function<void(std::mt19937&)>& body) {
    for (int round = 0; round < rounds && !HasFatalFailure(); ++round) {
      auto seed = static_cast<unsigned>(std::random_device()());
      SCOPED_TRACE("seed " + std::to_string(seed));
      std::mt19937 random(seed);
      body(random);
    }
  }
};

TEST_F(Execute, LoadsEveryKindOfPieceIntoMemoryWholeAndInBoxes) {
  each_round(150, [&](std::mt19937& random) {
    Source source(random);
    CatalogBuilder builder;
    std::map<std::string, std::vector<int32_t>> arrays;
    auto encoding = builder.add_encoding({DType::kI32});
    for (TensorId id = 0; id < source.catalog.size(); ++id) {
      auto spec = source.catalog.spec(id);
      auto& array = arrays[std::string(spec.name)];
      array.assign(spec.elements(), -1);
      ASSERT_TRUE(builder.add_tensor(spec.name, spec.dtype, spec.shape).ok());
      Box whole = Box::whole(spec.shape);
      // Boxes of one array: as views with the strides of the whole.
      std::vector<Box> boxes{whole};
      if (random() % 2 == 0 && whole.rank() > 0 && whole.extent[0] > 1) {
        boxes.push_back(whole);
        boxes[0].extent[0] = 1;
        boxes[1].start[0] = 1;
        boxes[1].extent[0] -= 1;
      }
      for (const Box& box : boxes) {
        int64_t first = box.rank() == 0 || box.empty() ? 0 : Strided{whole, c_strides(spec.shape)}.offset_of(box.start);
        Place place{Place::kMemory, -1, 0, reinterpret_cast<uint64_t>(array.data() + first), box.elements() * 4};
        ASSERT_TRUE(builder.add_piece({box, place, encoding, c_strides(spec.shape)}).ok());
      }
    }
    auto to = builder.build();
    ASSERT_TRUE(to.ok()) << to.error().text();
    auto plan = plan_load(source.catalog, *to, {}, random_options(random));
    ASSERT_TRUE(plan.ok()) << plan.error().text();
    auto done = execute(*plan, {source.store.get(), nullptr, nullptr}, {});
    ASSERT_TRUE(done.ok()) << done.error().text();
    EXPECT_LE(done->peak_bytes, plan->options.memory_bytes);
    EXPECT_EQ(arrays, source.values);
  });
}

TEST_F(Execute, ConsumerGetsEveryTensorOnceInOrder) {
  each_round(150, [&](std::mt19937& random) {
    Source source(random);
    CatalogBuilder specs;
    for (TensorId id = 0; id < source.catalog.size(); ++id)
      ASSERT_TRUE(specs.add_tensor(source.catalog.spec(id).name, DType::kI32, source.catalog.spec(id).shape).ok());
    auto plan = plan_load(source.catalog, *specs.build(/*partial=*/true), {}, random_options(random));
    ASSERT_TRUE(plan.ok()) << plan.error().text();
    std::map<std::string, std::vector<int32_t>> seen;
    auto caller = std::this_thread::get_id();
    Calls calls;
    calls.consume = [&](TensorId id, const Box& box, View values) -> Status {
      EXPECT_EQ(std::this_thread::get_id(), caller);
      EXPECT_EQ(values.size(), box.elements() * 4);
      auto& out = seen[std::string(source.catalog.spec(id).name)];
      size_t before = out.size();
      out.resize(before + values.size() / 4);
      if (!values.empty()) std::memcpy(out.data() + before, values.data(), values.size());
      return {};
    };
    auto done = execute(*plan, {source.store.get(), nullptr, nullptr}, calls);
    ASSERT_TRUE(done.ok()) << done.error().text();
    EXPECT_EQ(seen, source.values);
  });
}

TEST_F(Execute, WritesFilesOfClosedFormWithLateBytes) {
  each_round(100, [&](std::mt19937& random) {
    Source source(random);
    toy::ClosedDraft draft(source.catalog, 1 + random() % 4);
    auto options = random_options(random);
    options.checksums = true;
    auto plan = plan_write(source.catalog, draft, {}, options);
    ASSERT_TRUE(plan.ok()) << plan.error().text();
    auto target = open_memory_store();
    auto transaction = target->begin("");
    ASSERT_TRUE(transaction.ok());
    auto done = execute(*plan, {source.store.get(), &draft, transaction->get()}, {});
    ASSERT_TRUE(done.ok()) << done.error().text();
    std::vector<std::string> keys;
    for (const auto& object : draft.objects()) keys.push_back(object.key);
    ASSERT_TRUE((*transaction)->commit({keys, {}, {}}).ok());
    for (const auto& object : draft.objects()) {
      auto bytes = read_object(*target, object.key, GiB);
      ASSERT_TRUE(bytes.ok());
      ASSERT_EQ(bytes->size(), object.size);
      uint32_t crc = 0;
      for (TensorId id = 0; id < source.catalog.size(); ++id) {
        auto [at_object, offset] = draft.offsets[id];
        if (std::to_string(at_object) != object.key) continue;
        const auto& wanted = source.values[std::string(source.catalog.spec(id).name)];
        View stored = View(*bytes).subspan(offset, wanted.size() * 4);
        EXPECT_TRUE(std::ranges::equal(stored, std::as_bytes(std::span(wanted))));
        crc = crc32c(stored, crc);
      }
      EXPECT_EQ(text_of(View(*bytes).last(8)), fmt::format("{:08x}", crc));
    }
  });
}

/// The chunk of a receipt decodes to the values of its box.
void expect_chunk(Source& source, const Catalog& target, const Receipt& receipt, View file) {
  View stored = file.subspan(receipt.place.offset, receipt.place.length);
  EXPECT_EQ(receipt.crc32c, crc32c(stored));
  auto spec = target.spec(receipt.tensor);
  auto piece = target.pieces(receipt.tensor)[receipt.piece];
  const auto& encoding = target.encoding(piece.encoding);
  auto decoder = make_decoder(encoding.chain, encoding.decoded_bytes);
  ASSERT_TRUE(decoder.ok());
  Bytes decoded;
  auto status = (*decoder)->push(stored, true, [&](View part) -> Status {
    decoded.insert(decoded.end(), part.begin(), part.end());
    return {};
  });
  ASSERT_TRUE(status.ok()) << status.error().text();
  if (decoded.empty()) return;
  const auto& wanted = source.values[std::string(spec.name)];
  auto first = static_cast<size_t>(Strided{Box::whole(spec.shape), c_strides(spec.shape)}.offset_of(piece.box.start));
  EXPECT_TRUE(std::ranges::equal(decoded, std::as_bytes(std::span(wanted).subspan(first, decoded.size() / 4))))
      << spec.name << " " << piece.box.text();
}

TEST_F(Execute, AppendsEncodedChunksInOrderWhateverTheThreads) {
  each_round(60, [&](std::mt19937& random) {
    Source source(random);
    std::optional<Bytes> first;
    for (int threads : {1, 2, 7}) {
      auto draft = toy::AppendDraft::create(source.catalog);
      ASSERT_TRUE(draft.ok()) << draft.error().text();
      auto options = random_options(random);
      options.threads = threads;
      options.checksums = true;
      auto plan = plan_write(source.catalog, **draft, {}, options);
      ASSERT_TRUE(plan.ok()) << plan.error().text();
      auto target = open_memory_store();
      auto transaction = target->begin("");
      auto done = execute(*plan, {source.store.get(), draft->get(), transaction->get()}, {});
      ASSERT_TRUE(done.ok()) << done.error().text();
      ASSERT_TRUE((*transaction)->commit({{"data"}, {}, {}}).ok());
      auto bytes = read_object(*target, "data", GiB);
      ASSERT_TRUE(bytes.ok());
      EXPECT_EQ(text_of(View(*bytes).last(4)), "END.");
      for (const auto& receipt : (*draft)->places) expect_chunk(source, (*draft)->target(), receipt, *bytes);
      if (first) {
        EXPECT_TRUE(*bytes == *first);
      }
      first = std::move(*bytes);
    }
  });
}

TEST_F(Execute, ProducerFillsFilesTensorByTensorOnTheCallingThread) {
  std::vector<int64_t> shape{300, 1000};
  CatalogBuilder builder;
  for (const char* name : {"a", "b"}) {
    ASSERT_TRUE(builder.add_tensor(name, DType::kI32, shape).ok());
    ASSERT_TRUE(builder.add_flat({Place::kCall, -1, 0, 0, kUnknown}, DType::kI32).ok());
  }
  auto from = builder.build();
  ASSERT_TRUE(from.ok());
  toy::ClosedDraft draft(*from, 1);
  PlanOptions options;
  options.memory_bytes = 1 * MiB;
  options.threads = 2;
  auto plan = plan_write(*from, draft, {}, options);
  ASSERT_TRUE(plan.ok()) << plan.error().text();
  std::vector<std::pair<TensorId, int64_t>> order;
  auto caller = std::this_thread::get_id();
  Calls calls;
  calls.produce = [&](TensorId id, const Box& box, MutableView into) -> Status {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    order.emplace_back(id, box.start[0]);
    auto out = reinterpret_cast<int32_t*>(into.data());
    for (size_t i = 0; i < into.size() / 4; ++i)
      out[i] = static_cast<int32_t>(id * 1000000 + static_cast<uint64_t>(box.start[0]) * 1000 + i);
    return {};
  };
  auto target = open_memory_store();
  auto transaction = target->begin("");
  auto done = execute(*plan, {nullptr, &draft, transaction->get()}, calls);
  ASSERT_TRUE(done.ok()) << done.error().text();
  ASSERT_TRUE((*transaction)->commit({{"0"}, {}, {}}).ok());
  EXPECT_TRUE(std::ranges::is_sorted(order));
  EXPECT_GT(order.size(), 4u);
  auto bytes = read_object(*target, "0", GiB);
  for (TensorId id = 0; id < 2; ++id) {
    auto stored = View(*bytes).subspan(draft.offsets[id].second);
    for (size_t i : {0ul, 299'999ul})
      EXPECT_EQ(load_le<int32_t>(stored.subspan(4 * i)), static_cast<int32_t>(id * 1000000 + i));
  }
}

TEST_F(Execute, ContiguousMemoryIsWrittenFromWhereItLies) {
  std::vector<int32_t> values(300'000);
  std::iota(values.begin(), values.end(), 7);
  auto at = [&](size_t row) { return reinterpret_cast<uint64_t>(&values[row * 1000]); };
  std::vector<int64_t> shape{300, 1000};
  CatalogBuilder builder;
  (void)*builder.add_tensor("whole", DType::kI32, shape);
  ASSERT_OK(builder.add_flat({Place::kMemory, -1, 0, at(0), values.size() * 4}, DType::kI32));
  (void)*builder.add_tensor("two boxes", DType::kI32, shape);
  uint32_t raw = builder.add_encoding({DType::kI32});
  ASSERT_OK(builder.add_piece({{{0, 0}, {160, 1000}}, {Place::kMemory, -1, 0, at(0), 640'000}, raw, {}}));
  ASSERT_OK(builder.add_piece({{{160, 0}, {140, 1000}}, {Place::kMemory, -1, 0, at(160), 560'000}, raw, {}}));
  auto from = *builder.build();
  toy::ClosedDraft draft(from, 1);
  PlanOptions options;
  options.part_bytes = 64 * KiB;  // 16 rows
  auto plan = plan_write(from, draft, {}, options);
  ASSERT_OK(plan);
  auto target = open_memory_store();
  auto transaction = *target->begin("");
  auto done = execute(*plan, {nullptr, &draft, transaction.get()}, {});
  ASSERT_OK(done);
  EXPECT_EQ(done->peak_bytes, 0u);
  ASSERT_OK(transaction->commit({{"0"}, {}, {}}));
  Bytes file = *read_object(*target, "0", GiB);
  for (TensorId id : {0u, 1u}) {
    View stored = View(file).subspan(draft.offsets[id].second, values.size() * 4);
    EXPECT_TRUE(std::ranges::equal(stored, std::as_bytes(std::span(values)))) << id;
  }
}

TEST_F(Execute, ProducersFillEncodedChunksLargerThanTheBudget) {
  std::vector<int64_t> shape{900, 1000};
  CatalogBuilder builder;
  for (const char* name : {"a", "b"}) {
    ASSERT_TRUE(builder.add_tensor(name, DType::kI32, shape).ok());
    ASSERT_TRUE(builder.add_flat({Place::kCall, -1, 0, 0, kUnknown}, DType::kI32).ok());
  }
  auto from = *builder.build();
  auto draft = *toy::AppendDraft::create(from);
  PlanOptions options;
  options.memory_bytes = MiB;
  auto plan = plan_write(from, *draft, {}, options);
  ASSERT_TRUE(plan.ok()) << plan.error().text();
  std::map<TensorId, std::vector<int32_t>> made;  // in the order of the calls, which is that of the values
  Calls calls;
  calls.produce = [&](TensorId id, const Box& box, MutableView into) -> Status {
    EXPECT_EQ(static_cast<size_t>(box.start[0]) * 1000, made[id].size());
    for (size_t i = 0; i < into.size() / 4; ++i) {
      made[id].push_back(static_cast<int32_t>(id + made[id].size() * 7));
      std::memcpy(into.data() + 4 * i, &made[id].back(), 4);
    }
    return {};
  };
  auto target = open_memory_store();
  auto transaction = *target->begin("");
  ASSERT_OK(execute(*plan, {nullptr, draft.get(), transaction.get()}, calls));
  ASSERT_OK(transaction->commit({{"data"}, {}, {}}));
  Bytes file = *read_object(*target, "data", GiB);
  for (const auto& receipt : draft->places) {
    auto piece = draft->target().pieces(receipt.tensor)[receipt.piece];
    auto decoder = *make_decoder(std::vector<CodecSpec>{{"zlib", 1}}, piece.box.elements() * 4);
    Bytes decoded;
    auto keep = [&](View part) -> Status {
      decoded.insert(decoded.end(), part.begin(), part.end());
      return {};
    };
    ASSERT_OK(decoder->push(View(file).subspan(receipt.place.offset, receipt.place.length), true, keep));
    auto wanted =
        std::as_bytes(std::span(made[receipt.tensor])).subspan(static_cast<size_t>(piece.box.start[0]) * 4000);
    EXPECT_TRUE(std::ranges::equal(decoded, wanted.first(decoded.size()))) << piece.box.text();
  }
  EXPECT_EQ(draft->places.size(), 4u);
}

TEST_F(Execute, ConvertsOnTheWay) {
  std::vector<int64_t> shape{100'000};
  std::vector<float> values(100'000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) * 0.37f;
  CatalogBuilder builder, wanted;
  ASSERT_TRUE(builder.add_tensor("w", DType::kF32, shape).ok());
  ASSERT_TRUE(
      builder.add_flat({Place::kMemory, -1, 0, reinterpret_cast<uint64_t>(values.data()), 400'000}, DType::kF32).ok());
  Bytes out(200'000);
  ASSERT_TRUE(wanted.add_tensor("w", DType::kBF16, shape).ok());
  ASSERT_TRUE(
      wanted.add_flat({Place::kMemory, -1, 0, reinterpret_cast<uint64_t>(out.data()), out.size()}, DType::kBF16).ok());
  auto from = builder.build(), to = wanted.build();
  PlanOptions options;
  options.memory_bytes = 1 * MiB;
  auto plan = plan_load(*from, *to, {}, options);
  ASSERT_TRUE(plan.ok()) << plan.error().text();
  ASSERT_TRUE(execute(*plan, {}, {}).ok());
  Bytes expected(200'000);
  ASSERT_TRUE(convert(DType::kF32, std::as_bytes(std::span(values)), DType::kBF16, expected).ok());
  EXPECT_EQ(out, expected);
}

TEST_F(Execute, StopsOnRequestAndOnTheFirstError) {
  std::mt19937 random(7);
  Source source(random);
  auto plan = plan_load(source.catalog, source.catalog, {}, {});
  ASSERT_TRUE(plan.ok());
  Calls calls;
  calls.consume = [&](TensorId id, const Box&, View) -> Status {
    return fail(Code::kIo, "no").at_tensor(std::string(source.catalog.spec(id).name));
  };
  auto failed = execute(*plan, {source.store.get(), nullptr, nullptr}, calls);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, Code::kIo);
  calls.consume = [](TensorId, const Box&, View) -> Status { return {}; };
  calls.keep_going = [](uint64_t, uint64_t) { return false; };
  auto stopped = execute(*plan, {source.store.get(), nullptr, nullptr}, calls);
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, Code::kAborted);
}

}  // namespace
}  // namespace shardwright
