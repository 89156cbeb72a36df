#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <random>
#include <thread>

#include "shardwright/base/checksum.h"
#include "shardwright/comm/processes_for_test.h"
#include "shardwright/engine/jobs.h"
#include "shardwright/engine/share.h"
#include "shardwright/store/testing.h"

namespace shardwright::testing_support {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

/// Values of tensor t, whole.
Bytes values_of(size_t t, uint64_t bytes) {
  Bytes out(bytes);
  for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>((i * 131 + t * 17 + i / 251) & 0xff);
  return out;
}

struct Laid {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<std::vector<std::string>> dims;
};
const std::vector<Laid>& model() {
  static const std::vector<Laid> tensors{{"rows", {64, 33}, {{"x"}}},
                                         {"columns", {40, 4096}, {{}, {"y"}}},
                                         {"both", {30, 20, 7}, {{"y"}, {"x"}}},
                                         {"whole", {5, 5}, {}},
                                         {"scalar", {}, {}},
                                         {"nothing", {0, 3}, {{"x"}}},
                                         {"uneven", {7}, {{"x", "y"}}}};
  return tensors;
}

/// What a rank of `ranks` holds of the model on a mesh of x=2, y=2; of everything with one rank.
struct Held {
  std::vector<Bytes> memory;
  Catalog catalog;
  Held(int rank, int ranks) {
    auto mesh = DeviceMesh::parse("x=2,y=2");
    CatalogBuilder builder;
    memory.reserve(1000);
    for (size_t t = 0; t < model().size(); ++t) {
      const auto& [name, shape, dims] = model()[t];
      EXPECT_OK(builder.add_tensor(name, DType::kF32, shape));
      Strided whole{Box::whole(shape), c_strides(shape)};
      Bytes all = values_of(t, whole.box.elements() * 4);
      auto grid = ShardGrid::create(*mesh, {dims, Uneven::kChunk}, shape);
      std::vector<Box> boxes;
      for (int64_t position = rank * 4 / ranks; position < (rank + 1) * 4 / ranks; ++position) {
        Box box = grid->box_of(position);
        if (std::ranges::find(boxes, box) == boxes.end() && (!box.empty() || whole.box.empty())) boxes.push_back(box);
      }
      for (const Box& box : boxes) {
        auto& bytes = memory.emplace_back(box.elements() * 4);
        copy_strided(box, whole, all.data(), {box, c_strides(box.extent)}, bytes.data(), 4);
        Place place{Place::kMemory, -1, 0, reinterpret_cast<uint64_t>(bytes.data()), bytes.size()};
        EXPECT_OK(builder.add_piece({box, place, builder.add_encoding({DType::kF32}), {}}));
      }
    }
    builder.set_value("metadata", {Value::kJson, R"({"by": "test"})"});
    catalog = *builder.build(/*partial=*/true);
  }
};

CopyRequest request_for(const std::string& target, std::optional<uint64_t> shard = {}) {
  CopyRequest request;
  request.target = target;
  request.max_shard_bytes = shard;
  return request;
}

std::string save(const TemporaryDirectory& directory, int rank, int ranks, const CopyRequest& request,
                 std::chrono::milliseconds wait = 30s) {
  auto comm = meet_in_directory(directory.at("meet"), rank, ranks, deadline_in(30s));
  if (!comm.ok()) return comm.error().text();
  Held held(rank, ranks);
  JobOptions options;
  options.wait = wait;
  auto summary = save_tensors(held.catalog, {}, request, options, **comm);
  if (!summary.ok()) return summary.error().text();
  return summary->tensors == model().size() - request.select.exclude.size() ? "saved" : "another summary";
}

/// Bytes of every file below a directory.
std::map<std::string, std::string> files_in(const std::string& path) {
  std::map<std::string, std::string> files;
  if (!std::filesystem::is_directory(path)) return {{"", read_file(path)}};
  for (const auto& name : tree(path))
    if (!name.ends_with("/")) files[name] = read_file(path + "/" + name);
  return files;
}

TEST(SaveRanks, WritesWhatOneProcessWouldByteForByte) {
  TemporaryDirectory directory;
  Held whole(0, 1);
  const std::vector<std::pair<std::string, std::optional<uint64_t>>> targets{
      {"one.safetensors", {}}, {"hub", 100'000}, {"k.weights.h5", {}}, {"sharded/k.weights.json", 200'000}};
  for (int ranks : {2, 4})
    for (const auto& [name, shard] : targets) {
      for (const char* who : {"alone/", "together/"})
        std::filesystem::create_directories(std::filesystem::path(directory.at(who + name)).parent_path());
      CopyRequest alone = request_for(directory.at("alone/" + name), shard),
                  together = request_for(directory.at("together/" + name), shard);
      alone.overwrite = together.overwrite = true;  // the second time it is a replacement
      ASSERT_OK(save_tensors(whole.catalog, {}, alone, {}));
      {
        Processes processes(ranks, [&](int rank) { return save(directory, rank, ranks, together); });
        for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(processes.text(rank), "saved") << name;
      }
      bool in_folder = name == "hub" || name.starts_with("sharded");
      std::string at = in_folder ? name.substr(0, name.find('/')) : name;
      EXPECT_EQ(files_in(directory.at("together/" + at)), files_in(directory.at("alone/" + at)))
          << name << " by " << ranks;
      EXPECT_FALSE(files_in(directory.at("together/" + at)).empty());
    }
  for (const auto& left : tree(directory.at("together"))) EXPECT_EQ(left.find(".shardwright-"), left.npos) << left;
}

void expect_model(const std::string& path, const std::vector<std::string>& without) {
  auto opened = open_checkpoint(path);
  ASSERT_OK(opened);
  ASSERT_EQ(opened->catalog.size(), model().size() - without.size());
  for (size_t t = 0; t < model().size(); ++t) {
    if (std::ranges::find(without, model()[t].name) != without.end()) continue;
    auto id = opened->catalog.find(model()[t].name);
    ASSERT_TRUE(id) << model()[t].name;
    Box box = Box::whole(model()[t].shape);
    Bytes values(box.elements() * 4);
    ASSERT_OK(read_box(*opened, *id, box, values));
    EXPECT_EQ(values, values_of(t, values.size())) << model()[t].name;
  }
}

/// Chunks of which nobody holds all: rank 0 writes them, from what the others send.
TEST(SaveRanks, FormatsThatAreWrittenFromFrontToBack) {
  TemporaryDirectory directory;
  CopyRequest request = request_for(directory.at("orbax"));
  request.format = "orbax";
  Processes processes(2, [&](int rank) { return save(directory, rank, 2, request); });
  for (int rank : {0, 1}) EXPECT_EQ(processes.text(rank), "saved");
  expect_model(directory.at("orbax"), {});
}

/// Where every chunk is somebody's each rank writes a file of its own, compressed or not, and the database refers to all.
TEST(SaveRanks, EachRankWritesFilesOfItsOwn) {
  for (std::string compression : {"none", "zstd"})
    for (int ranks : {2, 4}) {
      TemporaryDirectory directory;
      CopyRequest request = request_for(directory.at("orbax"));
      request.format = "orbax";
      request.settings = {{"compression", compression}};
      request.select.exclude = {"uneven"};
      Processes processes(ranks, [&](int rank) { return save(directory, rank, ranks, request); });
      for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(processes.text(rank), "saved");
      expect_model(directory.at("orbax"), request.select.exclude);
      auto files = files_in(directory.at("orbax"));
      for (int rank = 0; rank < ranks; ++rank) {
        auto of_rank = [&](const auto& file) {
          return file.first.starts_with(fmt::format("ocdbt.process_{}/d/", rank));
        };
        EXPECT_EQ(std::ranges::count_if(files, of_rank), 1) << rank;
      }
    }
}

/// Rank 0 when all is written and the commit is next; another in the middle of writing.
TEST(SaveRanks, RankThatDiesIsNamedAndNothingAppears) {
  for (int dead : {0, 2}) {
    TemporaryDirectory directory;
    auto began = std::chrono::steady_clock::now();
    Processes processes(3, [&](int rank) {
      auto comm = meet_in_directory(directory.at("meet"), rank, 3, deadline_in(30s));
      CatalogBuilder builder;
      std::vector<int64_t> shape{1000};
      EXPECT_OK(builder.add_tensor(fmt::format("made by {}", rank), DType::kF32, shape));
      EXPECT_OK(builder.add_flat({Place::kCall, -1, 0, 0, 4000}, DType::kF32));
      auto mine = builder.build();
      Calls calls;
      calls.produce = [&](TensorId, const Box&, MutableView) -> Status {
        if (rank == dead && dead != 0) ::raise(SIGKILL);
        return {};
      };
      JobOptions options;
      options.progress = [&](std::string_view phase, uint64_t, uint64_t) {
        if (rank == dead && phase == "sync") ::raise(SIGKILL);
        return true;
      };
      auto summary = save_tensors(*mine, calls, request_for(directory.at("out")), options, **comm);
      return summary.ok() ? "saved" : summary.error().text();
    });
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == dead) continue;
      EXPECT_THAT(processes.text(rank), HasSubstr(fmt::format("rank {} ended", dead)));
    }
    EXPECT_LT(std::chrono::steady_clock::now() - began, 20s);
    EXPECT_FALSE(std::filesystem::exists(directory.at("out")));
  }
}

TEST(SaveRanks, RankThatStopsIsNamedInTime) {
  TemporaryDirectory directory;
  Processes processes(3, [&](int rank) {
    if (rank != 1) return save(directory, rank, 3, request_for(directory.at("out")), 500ms);
    auto comm = meet_in_directory(directory.at("meet"), rank, 3, deadline_in(30s));
    ::raise(SIGSTOP);
    return std::string();
  });
  for (int rank : {0, 2}) EXPECT_THAT(processes.text(rank), HasSubstr("rank 1 did not answer in time"));
  EXPECT_FALSE(std::filesystem::exists(directory.at("out")));
}

TEST(SaveRanks, WhatCannotBeIsRefusedOnEveryRank) {
  TemporaryDirectory directory;
  auto texts = [&](const std::function<std::string(int)>& run) {
    Processes processes(2, run);
    return std::vector<std::string>{processes.text(0), processes.text(1)};
  };
  // There already: rank 0 sees it, both learn of it.
  ASSERT_OK(save_tensors(Held(0, 1).catalog, {}, request_for(directory.at("there")), {}));
  for (const auto& text : texts([&](int rank) { return save(directory, rank, 2, request_for(directory.at("there"))); }))
    EXPECT_THAT(text, HasSubstr("a checkpoint is there already"));
  // Half of it is nowhere.
  auto halves = [&](int rank) {
    auto comm = meet_in_directory(directory.at("meet"), rank, 2, deadline_in(30s));
    Held held(0, 2);
    auto summary = save_tensors(held.catalog, {}, request_for(directory.at("half")), {}, **comm);
    return summary.ok() ? "saved" : summary.error().text();
  };
  for (const auto& text : texts(halves)) EXPECT_THAT(text, HasSubstr("tensor 'rows'"));
  EXPECT_FALSE(std::filesystem::exists(directory.at("half")));
}

/// Else the values would be saved where a rank does not look, or by one that was told to write nothing.
TEST(SaveRanks, RanksThatAskForDifferentThingsAreTold) {
  const std::vector<std::pair<std::string, std::function<void(CopyRequest&)>>> changes{
      {"target", [](CopyRequest& r) { r.target += "2"; }},
      {"dry run", [](CopyRequest& r) { r.dry_run = true; }},
      {"dtype", [](CopyRequest& r) { r.select.dtype = DType::kF16; }},
      {"include", [](CopyRequest& r) { r.select.include = {"rows"}; }},
      {"rename", [](CopyRequest& r) { r.select.rename = {{"(", ""}}; }}};
  TemporaryDirectory directory;
  Processes processes(3, [&](int rank) {
    std::string texts;
    for (const auto& [name, change] : changes) {
      CopyRequest request = request_for(directory.at("out"));
      if (rank == 2) change(request);
      std::string text = save(directory, rank, 3, request, 5s);
      bool good = text.find("rank 2 asks for something else than rank 0") != text.npos && text.find(name) != text.npos;
      if (!good) texts += text + "\n";
    }
    return texts;
  });
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(processes.text(rank), "");
  EXPECT_THAT(tree(directory.path()), ::testing::ElementsAre("meet/", "meet/lock"));
}

/// Others say that a tensor has the values of another one: not of the same other one.
TEST(SaveRanks, TiesMustAgree) {
  auto tied = [](const char* kept) {
    CatalogBuilder builder;
    std::vector<int64_t> shape{2};
    for (const char* name : {"a", "b", "c"}) {
      EXPECT_OK(builder.add_tensor(name, DType::kF32, shape));
      if (*name != 'c') EXPECT_OK(builder.add_flat({Place::kMemory, -1, 0, 64, 8}, DType::kF32));
    }
    builder.tie(2, *kept == 'a' ? 0 : 1);
    return *builder.build();
  };
  std::vector<Catalog> ranks{tied("a"), tied("a")};
  EXPECT_OK(merge_catalogs(ranks));
  ranks[1] = tied("b");
  EXPECT_CODE(merge_catalogs(ranks), Code::kInvalidArgument);
}

/// What is committed is saved, whoever is lost meanwhile.
TEST(SaveRanks, RankThatDiesWhileRankZeroCommitsChangesNothing) {
  TemporaryDirectory directory;
  Processes processes(3, [&](int rank) {
    auto comm = meet_in_directory(directory.at("meet"), rank, 3, deadline_in(30s));
    Held held(0, 1);
    JobOptions options;
    options.progress = [&](std::string_view phase, uint64_t, uint64_t) {
      if (phase == "sync") std::ofstream(directory.at("committing")) << "now";
      if (phase == "sync") std::this_thread::sleep_for(300ms);
      return true;
    };
    (*comm)->set_watch([&]() -> Status {
      if (rank == 1 && std::filesystem::exists(directory.at("committing"))) ::raise(SIGKILL);
      return {};
    });
    auto summary = save_tensors(held.catalog, {}, request_for(directory.at("out")), options, **comm);
    return summary.ok() ? "saved" : summary.error().text();
  });
  EXPECT_EQ(processes.text(1), "");
  for (int rank : {0, 2}) EXPECT_EQ(processes.text(rank), "saved");
  EXPECT_TRUE(std::filesystem::exists(directory.at("out")));
}

TEST(SaveRanks, MoreFilesThanAProcessMayOpen) {
  TemporaryDirectory directory;
  Processes processes(2, [&](int rank) {
    rlimit few{40, 40};
    ::setrlimit(RLIMIT_NOFILE, &few);
    auto comm = meet_in_directory(directory.at("meet"), rank, 2, deadline_in(30s));
    CatalogBuilder builder;
    Bytes bytes(1000);
    std::vector<int64_t> shape{1000};
    for (int t = 0; t < 100; ++t) {
      EXPECT_OK(builder.add_tensor(std::to_string(t), DType::kU8, shape));
      EXPECT_OK(builder.add_flat({Place::kMemory, -1, 0, reinterpret_cast<uint64_t>(bytes.data()), 1000}, DType::kU8));
    }
    auto mine = builder.build();
    auto summary = save_tensors(*mine, {}, request_for(directory.at("out"), 1200), {}, **comm);
    return summary.ok() ? fmt::format("{} files", summary->shards) : summary.error().text();
  });
  for (int rank : {0, 1}) EXPECT_EQ(processes.text(rank), "100 files");
}

/// A producer that fails on one rank while all write.
TEST(SaveRanks, FailureWhileWritingIsEveryones) {
  TemporaryDirectory directory;
  Processes processes(2, [&](int rank) {
    auto comm = meet_in_directory(directory.at("meet"), rank, 2, deadline_in(30s));
    CatalogBuilder builder;
    std::vector<int64_t> shape{1000};
    auto name = fmt::format("made by {}", rank);
    EXPECT_OK(builder.add_tensor(name, DType::kF32, shape));
    EXPECT_OK(builder.add_flat({Place::kCall, -1, 0, 0, 4000}, DType::kF32));
    auto mine = builder.build();
    Calls calls;
    calls.produce = [&](TensorId, const Box&, MutableView) -> Status {
      if (rank == 1) return fail(Code::kIo, "the source is gone");
      return {};
    };
    auto summary = save_tensors(*mine, calls, request_for(directory.at("out")), {}, **comm);
    return summary.ok() ? "saved" : summary.error().text();
  });
  for (int rank : {0, 1}) EXPECT_THAT(processes.text(rank), HasSubstr("the source is gone"));
  EXPECT_FALSE(std::filesystem::exists(directory.at("out")));
}

TEST(AssignWriters, EveryBoxOnceAndTheLoadIsEven) {
  std::vector<Catalog> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    CatalogBuilder builder;
    for (int t = 0; t < 8; ++t) {
      std::vector<int64_t> shape{100, 10};
      EXPECT_OK(builder.add_tensor(std::to_string(t), DType::kF32, shape));
      // Halves, each on two ranks.
      Box half{{rank % 2 * 50, 0}, {50, 10}};
      EXPECT_OK(builder.add_piece({half, {Place::kMemory, -1, 0, 64, 2000}, builder.add_encoding({DType::kF32}), {}}));
    }
    ranks.push_back(*builder.build(true));
  }
  auto merged = merge_catalogs(ranks);
  ASSERT_OK(merged);
  std::map<int, uint64_t> bytes;
  for (const auto& boxes : assign_writers(*merged, 4)) {
    ASSERT_EQ(boxes.size(), 2u);
    for (const auto& owned : boxes) {
      EXPECT_EQ(owned.rank % 2, owned.box.start[0] / 50) << "who writes must hold it";
      bytes[owned.rank] += owned.box.elements() * 4;
    }
  }
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(bytes[rank], 8u * 4000 / 4);
}

}  // namespace
}  // namespace shardwright::testing_support
