/// For tests only: the steps of a run, of one small tensor each.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "shardwright/format/format.h"
#include "shardwright/manager/write_step.h"
#include "shardwright/store/testing.h"

namespace shardwright::testing_support {

namespace fs = std::filesystem;

/// One float tensor "w" of 1000 elements, all `value`.
struct Weights {
  explicit Weights(float value) : values(1000, value) {}
  Catalog catalog() const {
    CatalogBuilder builder;
    int64_t shape[] = {1000};
    EXPECT_OK(builder.add_tensor("w", DType::kF32, shape));
    EXPECT_OK(builder.add_flat({Place::kMemory, -1, 0, reinterpret_cast<uint64_t>(values.data()), 4000}, DType::kF32));
    return *builder.build();
  }
  std::vector<float> values;
};

/// A step of one float tensor "w" of 1000 elements, whose values calls.produce makes.
inline StepContent called(uint64_t step) {
  CatalogBuilder builder;
  int64_t shape[] = {1000};
  EXPECT_OK(builder.add_tensor("w", DType::kF32, shape));
  EXPECT_OK(builder.add_flat({Place::kCall, -1, 0, 0, 4000}, DType::kF32));
  StepContent content;
  content.step = step;
  content.tensors = *builder.build();
  return content;
}

/// A run below a directory of its own.
class Run : public testing::TestWithParam<const char*> {
 protected:
  Result<WrittenStep> write(uint64_t step, float value, StepConflict conflict = {}, double loss = 0) {
    Weights weights(value);
    StepContent content;
    content.step = step;
    content.format = format;
    content.tensors = weights.catalog();
    content.files = {{"metrics/metrics", "{\"loss\": " + std::to_string(loss) + "}"},
                     {"iterator/process_0-of-1.json", "{\"at\": 7}"}};
    content.metadata = {{"run", "a"}};
    return write_step(root, names, content, conflict, {});
  }
  std::string state_of(uint64_t step) const {
    return root + "/" + names.name_of(step) + (format == "keras-h5" ? "/state/model.weights.h5" : "/state");
  }
  float value_of(uint64_t step) {
    auto opened = open_checkpoint(state_of(step));
    if (!opened.ok()) return ADD_FAILURE() << opened.error().text(), -1;
    float value = 0;
    EXPECT_OK(read_box(*opened, 0, {{999}, {1}}, MutableView(reinterpret_cast<std::byte*>(&value), 4)));
    return value;
  }
  std::vector<uint64_t> complete() {
    std::vector<uint64_t> out;
    auto steps = list_steps(root, names);
    EXPECT_OK(steps);
    for (const auto& step : *steps)
      if (step.complete) out.push_back(step.facts.step);
    return out;
  }
  std::vector<std::string> entries() {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(root)) out.push_back(entry.path().filename().string());
    std::ranges::sort(out);
    return out;
  }

  TemporaryDirectory directory;
  std::string root = directory.at("run/steps"), format = "orbax";
  StepNames names;
};

}  // namespace shardwright::testing_support
