#include "shardwright/manager/write_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "shardwright/format/format.h"
#include "shardwright/manager/claim.h"
#include "shardwright/manager/step_files.h"
#include "shardwright/manager/tree_files.h"
#include "shardwright/store/testing.h"

namespace shardwright {
namespace {

using namespace testing_support;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;
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
StepContent called(uint64_t step) {
  CatalogBuilder builder;
  int64_t shape[] = {1000};
  EXPECT_OK(builder.add_tensor("w", DType::kF32, shape));
  EXPECT_OK(builder.add_flat({Place::kCall, -1, 0, 0, 4000}, DType::kF32));
  StepContent content;
  content.step = step;
  content.tensors = *builder.build();
  return content;
}

class WriteStep : public testing::TestWithParam<const char*> {
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

TEST_P(WriteStep, IsAllThere) {
  format = GetParam();
  auto written = write(5, 1.5, {}, 0.25);
  ASSERT_OK(written);
  EXPECT_THAT(tree(root + "/5"),
              IsSupersetOf({"_CHECKPOINT_METADATA", "commit_success.txt", "iterator/process_0-of-1.json",
                            "metrics/metrics", "shardwright.manifest.json", "state/"}));
  EXPECT_THAT(entries(), ElementsAre("5"));
  EXPECT_EQ(value_of(5), 1.5f);
  auto steps = list_steps(root, names);
  ASSERT_OK(steps);
  ASSERT_EQ(steps->size(), 1u);
  const Step& step = steps->front();
  EXPECT_TRUE(step.complete) << step.proof;
  EXPECT_EQ(step.facts.metrics.at("loss"), 0.25);
  EXPECT_EQ(step.metadata, Json({{"run", "a"}}));
  EXPECT_GT(step.facts.time_ns, 1'700'000'000ull * 1'000'000'000);
  EXPECT_GE(step.bytes, 4000u);
  // What was written can be held against the checksums that were taken on the way.
  std::vector<std::string> findings;
  auto verified = verify_checkpoint({state_of(5), true, root + "/5/shardwright.manifest.json"}, {},
                                    [&](const Error& error) { findings.push_back(error.text()); });
  ASSERT_OK(verified);
  EXPECT_TRUE(verified->manifest);
  EXPECT_THAT(findings, ElementsAre());
}
INSTANTIATE_TEST_SUITE_P(Formats, WriteStep, testing::Values("orbax", "safetensors", "keras-h5", "keras-sharded"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST_F(WriteStep, AManifestThatDoesNotHoldIsNoStep) {
  ASSERT_OK(write(1, 1));
  ASSERT_OK(write(2, 2));
  fs::path data;
  for (const auto& entry : fs::directory_iterator(root + "/2/state/d")) data = entry.path();
  fs::resize_file(data, fs::file_size(data) - 1);
  EXPECT_THAT(complete(), ElementsAre(1));
  EXPECT_THAT(prove_step(root + "/2").text, HasSubstr("bytes, not"));
  fs::remove(data);
  EXPECT_THAT(prove_step(root + "/2").text, HasSubstr("is missing"));
  auto latest = latest_step(root, names);
  ASSERT_OK(latest);
  EXPECT_EQ((*latest)->facts.step, 1u);
}

TEST_F(WriteStep, NothingSilently) {
  ASSERT_OK(write(5, 1));
  ASSERT_OK(write(9, 2));
  EXPECT_CODE(write(5, 3), Code::kAlreadyExists);
  EXPECT_CODE(write(7, 3), Code::kAlreadyExists);
  EXPECT_EQ(value_of(5), 1.f);
  EXPECT_THAT(entries(), ElementsAre("5", "9"));
}

TEST_F(WriteStep, AnEmptyDirectoryIsNoLaterStep) {
  ASSERT_OK(write(5, 1));
  fs::create_directory(root + "/9");
  EXPECT_EQ(prove_step(root + "/9").text, "it is empty");
  EXPECT_OK(write(6, 2));
  EXPECT_THAT(complete(), ElementsAre(5, 6));
}

TEST_F(WriteStep, ForceReplacesTheOne) {
  ASSERT_OK(write(5, 1));
  ASSERT_OK(write(9, 2));
  ASSERT_OK(write(5, 3, {.replace = true}));
  EXPECT_EQ(value_of(5), 3.f);
  EXPECT_THAT(entries(), ElementsAre("5", "9"));
}

TEST_F(WriteStep, ABranchSetsLaterStepsAside) {
  for (uint64_t step : {5, 7, 9}) ASSERT_OK(write(step, static_cast<float>(step)));
  ASSERT_OK(write(6, 6, {.branch = true}));
  EXPECT_THAT(complete(), ElementsAre(5, 6));
  EXPECT_THAT(entries(), ElementsAre(".branches", "5", "6"));
  EXPECT_TRUE(prove_step(root + "/.branches/0/7").complete);
  EXPECT_TRUE(prove_step(root + "/.branches/0/9").complete);
  ASSERT_OK(write(5, 8, {.replace = true, .branch = true}));
  EXPECT_THAT(complete(), ElementsAre(5, 6));
  ASSERT_OK(prune_steps(root, names, {.branches = false}));
  EXPECT_THAT(entries(), ElementsAre(".branches", "5", "6"));
  ASSERT_OK(prune_steps(root, names, {}));
  EXPECT_THAT(entries(), ElementsAre("5", "6"));
}

TEST_F(WriteStep, ABranchMayBeginAtAStepThatIsThere) {
  for (uint64_t step : {5, 6, 7}) ASSERT_OK(write(step, static_cast<float>(step)));
  ASSERT_OK(write(6, 8, {.branch = true}));
  EXPECT_EQ(value_of(6), 8.f);
  EXPECT_THAT(entries(), ElementsAre(".branches", "5", "6"));
  EXPECT_TRUE(prove_step(root + "/.branches/0/6").complete);
  EXPECT_TRUE(prove_step(root + "/.branches/0/7").complete);
}

TEST_F(WriteStep, ATreeAmongTheFilesIsAnItem) {
  Weights weights(1);
  StepContent content;
  content.step = 1;
  content.tensors = weights.catalog();
  content.files = {{"note/_METADATA",
                    R"x({"tree_metadata": {"('a',)": {"key_metadata": [{"key": "a", "key_type": 2}],)x"
                    R"( "value_metadata": {"value_type": "string", "skip_deserialize": false}}}, "use_ocdbt": true})"},
                   {"note/_strings.json", R"({"a": "text"})"}};
  ASSERT_OK(write_step(root, names, content, {}, {}));
  auto step = open_checkpoint(root + "/1");
  ASSERT_OK(step);
  EXPECT_THAT(std::string(step->catalog.value("orbax")->data), HasSubstr(R"("strings":{"a":"text"})"));
  std::ifstream metadata(root + "/1/_CHECKPOINT_METADATA");
  std::string text{std::istreambuf_iterator<char>(metadata), {}};
  EXPECT_THAT(text, HasSubstr("\"note\""));
}

TEST_F(WriteStep, AFailureLeavesNothing) {
  ASSERT_OK(write(5, 1));
  format = "hdf5";
  EXPECT_CODE(write(6, 2), Code::kInvalidArgument);
  format = "orbax";
  StepContent content = called(6);
  content.calls.produce = [](TensorId, const Box&, MutableView) -> Status { return fail(Code::kIo, "no more"); };
  EXPECT_CODE(write_step(root, names, content, {}, {}), Code::kIo);
  EXPECT_CODE(write_step(root, names, content, {.replace = true}, {}), Code::kIo);
  content.step = 5;
  EXPECT_CODE(write_step(root, names, content, {.replace = true}, {}), Code::kIo);
  EXPECT_THAT(entries(), ElementsAre("5"));
  EXPECT_EQ(value_of(5), 1.f);
}

TEST_F(WriteStep, FilesThatWouldGoAstray) {
  Weights weights(1);
  StepContent content;
  content.tensors = weights.catalog();
  for (const char* key : {"../x", "commit_success.txt", "/x", "shardwright.manifest.json"}) {
    content.files = {{key, "x"}};
    EXPECT_CODE(write_step(root, names, content, {}, {}), Code::kInvalidArgument);
  }
  content.files = {};
  content.item = "a/b";
  EXPECT_CODE(write_step(root, names, content, {}, {}), Code::kInvalidArgument);
  EXPECT_FALSE(fs::exists(root));
}

TEST_F(WriteStep, PrefixAndPadding) {
  names = {"ckpt", 6};
  ASSERT_OK(write(5, 1));
  EXPECT_THAT(entries(), ElementsAre("ckpt_000005"));
  EXPECT_THAT(complete(), ElementsAre(5));
  auto any = list_steps(root, std::nullopt);
  ASSERT_OK(any);
  EXPECT_EQ(any->front().facts.step, 5u);
}

/// Other things that end in a number are not of the run, though they be steps: a copy, a step of another name, logs.
TEST_F(WriteStep, ARunHasOneKindOfName) {
  for (uint64_t step : {5, 6}) ASSERT_OK(write(step, 1));
  fs::copy(root + "/6", root + "/backup_7", fs::copy_options::recursive);
  fs::copy(root + "/6", root + "/006", fs::copy_options::recursive);
  for (const char* other : {"logs_9", "1_0", "8", "step_3"}) write_file(root + "/" + other + "/notes", "x");
  EXPECT_EQ(names_of_run(root)->name_of(5), "5");
  auto found = list_step_names(root, std::nullopt);
  ASSERT_OK(found);
  EXPECT_THAT(*found, ElementsAre(testing::Pair(5, "5"), testing::Pair(6, "6"), testing::Pair(8, "8")));
  ASSERT_OK(forget_steps(root, std::nullopt, {.last = 1}, false));
  ASSERT_OK(prune_steps(root, std::nullopt, {.age = std::chrono::seconds(0)}));
  EXPECT_THAT(entries(), ElementsAre("006", "1_0", "6", "8", "backup_7", "logs_9", "step_3"));
  names = {"ckpt", 3};
  for (uint64_t step : {1, 2}) ASSERT_OK(write(step, 1));
  EXPECT_EQ(names_of_run(root)->name_of(5), "ckpt_005");
}

TEST_F(WriteStep, Forgetting) {
  for (uint64_t step = 1; step <= 5; ++step)
    ASSERT_OK(write(step, static_cast<float>(step), {}, static_cast<double>(step)));
  ASSERT_OK(pin_step(root, "2", true));
  EXPECT_CODE(pin_step(root, "77", true), Code::kNotFound);
  Retention rules{.last = 1, .best = {{"loss", 1, false}}};
  auto dry = forget_steps(root, names, rules, true);
  ASSERT_OK(dry);
  EXPECT_THAT(complete(), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_FALSE(dry->verdicts[2].keep());
  ASSERT_OK(forget_steps(root, names, rules, false));
  EXPECT_THAT(complete(), ElementsAre(1, 2, 5));
  ASSERT_OK(pin_step(root, "2", false));
  ASSERT_OK(forget_steps(root, names, rules, false));
  EXPECT_THAT(complete(), ElementsAre(1, 5));
  EXPECT_THAT(entries(), ElementsAre(".pinned", "1", "5"));
  EXPECT_CODE(forget_steps(root, names, {.last = 0}, false), Code::kInvalidArgument);
}

TEST_F(WriteStep, StepsByName) {
  for (uint64_t step : {3, 5, 9}) ASSERT_OK(write(step, 1, {}, step == 5 ? 0.5 : 2));
  auto number = [&](const std::string& which) { return find_step(root + which)->step.facts.step; };
  EXPECT_EQ(number(""), 9u);
  EXPECT_EQ(number("@latest"), 9u);
  EXPECT_EQ(number("@3"), 3u);
  EXPECT_EQ(number("@best:loss"), 5u);
  EXPECT_EQ(number("@best:loss:max"), 9u);
  EXPECT_CODE(find_step(root + "@4"), Code::kNotFound);
  EXPECT_CODE(find_step(root + "@best:other"), Code::kNotFound);
  EXPECT_CODE(find_step(root + "@newest"), Code::kInvalidArgument);
  EXPECT_CODE(find_step(directory.at("nowhere")), Code::kNotFound);
}

/// What is left by Orbax, by this library when it is killed, and by neither.
TEST_F(WriteStep, Pruning) {
  ASSERT_OK(write(5, 1));
  write_file(root + "/6.orbax-checkpoint-tmp/_CHECKPOINT_METADATA", "{}");
  write_file(root + "/.7.shardwright-1-0123456789abcdef/lock", "");
  write_file(root + "/.trash.4.00000001/state/x", "x");
  write_file(root + "/8/notes", "x");
  write_file(root + "/notes.txt", "mine");
  write_file(root + "/.new.9/x", "x");
  auto found = prune_steps(root, names, {.age = std::chrono::hours(1), .dry_run = true});
  ASSERT_OK(found);
  std::vector<std::string> named;
  for (const auto& leftover : *found) named.push_back(leftover.name);
  // Nobody writes here by the claim: what managers leave needs not be old.
  EXPECT_THAT(named, ElementsAre(".7.shardwright-1-0123456789abcdef", ".new.9", ".trash.4.00000001"));
  {
    auto claim = Claim::take(root, {});
    ASSERT_OK(claim);
    EXPECT_TRUE(list_leftovers(root, names, std::chrono::seconds(0))->at(1).live);
  }
  ASSERT_OK(prune_steps(root, names, {.age = std::chrono::seconds(0)}));
  EXPECT_THAT(entries(), ElementsAre("5", "8", "notes.txt"));
}

/// What only looks like ours, or like a step, is somebody's.
TEST_F(WriteStep, PruningLeavesWhatNeverWasAStep) {
  ASSERT_OK(write(5, 1));
  ASSERT_OK(write(6, 1));
  fs::remove(root + "/6/state/_METADATA");
  std::vector<std::string> others = {".5.shardwright-notes",  ".git", ".new.notes", ".trash.mine", "2024", "logs_9",
                                     "x.orbax-checkpoint-tmp"};
  for (const auto& name : others) write_file(root + "/" + name + "/notes.txt", "x");
  auto pruned = prune_steps(root, names, {.age = std::chrono::seconds(0)});
  ASSERT_OK(pruned);
  ASSERT_EQ(pruned->size(), 1u);
  EXPECT_THAT(pruned->front().what, HasSubstr("'state/_METADATA' is missing"));
  auto there = entries();
  EXPECT_THAT(there, IsSupersetOf(others));
  EXPECT_EQ(there.size(), others.size() + 1);
}

/// A link in a circle is what root cannot open either. Nobody can tell what the step is: that is neither missing nor incomplete.
TEST_F(WriteStep, WhatCannotBeLookedAtIsNotMissing) {
  for (uint64_t step : {1, 2, 3}) ASSERT_OK(write(step, 1));
  fs::rename(root + "/3/state", directory.at("away"));
  fs::create_symlink("state", root + "/3/state");
  auto proof = prove_step(root + "/3");
  EXPECT_FALSE(proof.complete);
  EXPECT_TRUE(proof.trouble) << proof.text;
  EXPECT_FALSE(latest_step(root, names).ok());
  EXPECT_FALSE(find_step(root).ok());
  EXPECT_EQ(find_step(root + "@2")->step.facts.step, 2u);
  auto forgotten = forget_steps(root, names, {.last = 1}, false);
  ASSERT_OK(forgotten);
  EXPECT_THAT(forgotten->verdicts.back().reasons, ElementsAre(HasSubstr("nobody can tell")));
  ASSERT_OK(prune_steps(root, names, {.age = std::chrono::seconds(0)}));
  EXPECT_THAT(entries(), ElementsAre("2", "3"));
  for (uint64_t step : {1, 3}) EXPECT_FALSE(write(step, 1).ok());
  fs::remove(root + "/3/state");
  fs::rename(directory.at("away"), root + "/3/state");
  EXPECT_EQ((*latest_step(root, names))->facts.step, 3u);
}

/// The loop of a training run that goes on from the step before.
TEST_F(WriteStep, ABrokenStepIsInNobodysWay) {
  for (uint64_t step : {3, 4}) ASSERT_OK(write(step, 1));
  fs::resize_file(root + "/4/state/_METADATA", 3);
  EXPECT_EQ((*latest_step(root, names))->facts.step, 3u);
  auto written = write(4, 2);
  ASSERT_OK(written);
  EXPECT_THAT(written->warnings, ElementsAre(HasSubstr("bytes, not")));
  EXPECT_EQ(value_of(4), 2.f);
  EXPECT_TRUE(fs::exists(root + "/.branches/0/4/shardwright.manifest.json"));
  EXPECT_THAT(entries(), ElementsAre(".branches", "3", "4"));
  // Somebody's files, and what another program may be writing just now.
  write_file(root + "/5/notes", "x");
  write_file(root + "/7", "x");
  EXPECT_THAT(write(7, 1).error().found, "no directory");
  write_file(root + "/6/_CHECKPOINT_METADATA", R"({"init_timestamp_nsecs": 1, "commit_timestamp_nsecs": null})");
  EXPECT_CODE(write(5, 1), Code::kAlreadyExists);
  EXPECT_THAT(write(6, 1).error().found, HasSubstr("never committed"));
  for (const char* name : {"/6/_CHECKPOINT_METADATA", "/6"})
    fs::last_write_time(root + name, fs::file_time_type::clock::now() - std::chrono::hours(2));
  EXPECT_OK(write(6, 1));
  EXPECT_THAT(complete(), ElementsAre(3, 4, 6));
}

/// Two writers that know nothing of each other: the second one to finish does not win.
TEST_F(WriteStep, AStepThatAppearsMeanwhileStays) {
  ASSERT_OK(write(2, 2));
  StepContent content = called(3);
  content.calls.produce = [&](TensorId, const Box&, MutableView) -> Status {
    fs::copy(root + "/2", root + "/3", fs::copy_options::recursive);
    return {};
  };
  EXPECT_CODE(write_step(root, names, content, {}, {}), Code::kAlreadyExists);
  EXPECT_THAT(entries(), ElementsAre("2", "3"));
  EXPECT_EQ(value_of(3), 2.f);
}

TEST_F(WriteStep, AReplacementInTwoRenamesIsFinished) {
  ASSERT_OK(write(5, 1));
  ASSERT_OK(write(6, 2));
  fs::rename(root + "/5", root + "/.old.5");
  fs::rename(root + "/6", root + "/.new.5");
  ASSERT_OK(prune_steps(root, names, {.age = std::chrono::seconds(0)}));
  EXPECT_THAT(entries(), ElementsAre("5"));
  EXPECT_EQ(value_of(5), 2.f);
  fs::rename(root + "/5", root + "/.old.5");
  ASSERT_OK(prune_steps(root, names, {.age = std::chrono::seconds(0)}));
  EXPECT_EQ(value_of(5), 2.f);
}

TEST(Steps, OfOrbax) {
  std::string samples = std::string(SHARDWRIGHT_TEST_DATA) + "/orbax/";
  auto steps = list_steps(samples + "manager", std::nullopt);
  ASSERT_OK(steps);
  ASSERT_EQ(steps->size(), 3u);
  for (const auto& step : *steps) EXPECT_TRUE(step.complete) << step.name << ": " << step.proof;
  EXPECT_EQ((*steps)[1].metadata, Json({{"note", "step10"}}));
  EXPECT_NEAR((*steps)[1].facts.metrics.at("loss"), 1 / 11., 1e-9);
  auto named = list_steps(samples + "manager_single", StepNames{"ckpt", 6});
  ASSERT_OK(named);
  ASSERT_EQ(named->size(), 1u);
  EXPECT_TRUE(named->front().complete) << named->front().proof;
}

}  // namespace
}  // namespace shardwright
