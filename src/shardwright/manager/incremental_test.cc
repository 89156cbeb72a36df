#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <numeric>

#include "shardwright/format/format.h"
#include "shardwright/manager/write_step.h"
#include "shardwright/store/testing.h"

namespace shardwright {
namespace {

using namespace testing_support;
using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr uint64_t kLarge = 500'000, kSmall = 1000;  // elements of four bytes: more and less than a shard of a MiB

struct Case {
  std::string name, format;
  std::vector<std::pair<std::string, std::string>> settings{};
};

class Incremental : public testing::TestWithParam<Case> {
 protected:
  Incremental() {
    for (auto [name, count] : {std::pair("base.0", kLarge),
                               {"base.1", kLarge},
                               {"lora", kLarge},
                               {"small.0", kSmall},
                               {"small.1", kSmall}}) {
      values[name].resize(count);
      std::iota(values[name].begin(), values[name].end(), static_cast<float>(values.size()));
    }
  }
  Catalog tensors(DType dtype = DType::kF32) const {
    CatalogBuilder builder;
    for (const auto& [name, floats] : values) {
      int64_t shape[] = {static_cast<int64_t>(floats.size())};
      EXPECT_OK(builder.add_tensor(name, dtype, shape));
      EXPECT_OK(builder.add_flat({Place::kMemory, -1, 0, reinterpret_cast<uint64_t>(floats.data()), floats.size() * 4},
                                 dtype));
    }
    return *builder.build();
  }
  WrittenStep write(uint64_t step, StepConflict conflict = {}, DType dtype = DType::kF32) {
    StepContent content;
    content.step = step;
    content.format = GetParam().format;
    content.settings = GetParam().settings;
    content.tensors = tensors(dtype);
    content.incremental = true;
    auto written = write_step(root, {}, content, conflict, {});
    if (!written.ok()) return ADD_FAILURE() << written.error().text(), WrittenStep();
    EXPECT_THAT(written->warnings, ElementsAre());
    return *written;
  }
  void expect_whole(uint64_t step) {
    std::string place = root + "/" + std::to_string(step), state = *tensors_of_step(place);
    auto opened = open_checkpoint(state);
    ASSERT_OK(opened);
    for (const auto& [name, floats] : values) {
      std::vector<float> read(floats.size());
      ASSERT_OK(read_box(*opened, *opened->catalog.find(name), {{0}, {static_cast<int64_t>(read.size())}},
                         MutableView(reinterpret_cast<std::byte*>(read.data()), read.size() * 4)));
      EXPECT_EQ(read, floats) << name;
    }
    std::vector<std::string> findings;
    ASSERT_OK(verify_checkpoint({state, true, place + "/shardwright.manifest.json"}, {},
                                [&](const Error& error) { findings.push_back(error.text()); }));
    EXPECT_THAT(findings, ElementsAre());
    EXPECT_TRUE(prove_step(place).complete);
  }

  TemporaryDirectory directory;
  std::string root = directory.at("run");
  std::map<std::string, std::vector<float>> values;
};

TEST_P(Incremental, WhatDoesNotChangeIsWrittenOnce) {
  auto first = write(1);
  EXPECT_EQ(first.linked_bytes, 0u);
  EXPECT_EQ(first.own_bytes, 3 * kLarge * 4 + 2 * kSmall * 4);
  for (uint64_t step : {2, 3, 4}) {
    std::ranges::fill(values["lora"], static_cast<float>(step));
    if (step == 3) values["small.0"][0] = -1;
    auto written = write(step);
    uint64_t small = step == 3 ? 2 * kSmall * 4 : 0;  // both are in one file
    EXPECT_EQ(written.own_bytes, kLarge * 4 + small) << step;
    expect_whole(step);
  }
  auto steps = list_steps(root, std::nullopt);
  ASSERT_OK(steps);
  if (GetParam().name != "orbax_zstd") {
    EXPECT_GE(steps->back().shared_bytes, 2 * kLarge * 4);
  }
  EXPECT_LT(steps->back().shared_bytes, steps->back().bytes);
  // What is left of it is whole, whatever goes.
  ASSERT_OK(forget_steps(root, std::nullopt, {.last = 1}));
  expect_whole(4);
  EXPECT_EQ(list_steps(root, std::nullopt)->back().shared_bytes, 0u);
}

TEST_P(Incremental, NothingChangedAndEverythingChanged) {
  write(1);
  EXPECT_EQ(write(2).own_bytes, 0u);
  expect_whole(2);
  EXPECT_EQ(write(2, {.replace = true}).own_bytes, 0u);
  expect_whole(2);
  EXPECT_EQ(write(3, {}, DType::kI32).linked_bytes, 0u);
  EXPECT_EQ(write(4, {}, DType::kI32).own_bytes, 0u);
}

TEST_P(Incremental, WhatCannotBeLinkedIsWritten) {
  write(1);
  size_t moved = 0;
  for (const auto& entry : fs::recursive_directory_iterator(root + "/1/state")) {
    if (!entry.is_regular_file() || entry.file_size() < 500'000) continue;
    std::string away = directory.at(fmt::format("moved{}", moved++));
    fs::rename(entry.path(), away);
    fs::create_symlink(away, entry.path());
  }
  EXPECT_GT(moved, 0u);
  EXPECT_LT(write(2).linked_bytes, 500'000u);
  for (const auto& entry : fs::recursive_directory_iterator(root + "/2")) EXPECT_FALSE(entry.is_symlink());
  expect_whole(2);
}

INSTANTIATE_TEST_SUITE_P(Formats, Incremental,
                         testing::Values(Case{"orbax", "orbax"}, Case{"orbax_zstd", "orbax", {{"compression", "zstd"}}},
                                         Case{"orbax_zarr3", "orbax", {{"zarr", "3"}}},
                                         Case{"safetensors", "safetensors"}, Case{"keras", "keras-sharded"}),
                         [](const auto& param) { return param.param.name; });

/// One file: all of it or none.
TEST(IncrementalFile, AFormatOfOneFile) {
  TemporaryDirectory directory;
  std::vector<float> values(kLarge, 1.f);
  CatalogBuilder builder;
  int64_t shape[] = {static_cast<int64_t>(kLarge)};
  ASSERT_OK(builder.add_tensor("w", DType::kF32, shape));
  ASSERT_OK(
      builder.add_flat({Place::kMemory, -1, 0, reinterpret_cast<uint64_t>(values.data()), kLarge * 4}, DType::kF32));
  StepContent content;
  content.format = "keras-h5";
  content.tensors = *builder.build();
  content.incremental = true;
  std::vector<uint64_t> linked;
  for (content.step = 1; content.step <= 3; ++content.step) {
    if (content.step == 3) values[7] = 2;
    auto written = write_step(directory.at("run"), {}, content, {}, {});
    ASSERT_OK(written);
    linked.push_back(written->linked_bytes);
  }
  EXPECT_EQ(linked[0], 0u);
  EXPECT_GE(linked[1], kLarge * 4);
  EXPECT_EQ(linked[2], 0u);
}

}  // namespace
}  // namespace shardwright
