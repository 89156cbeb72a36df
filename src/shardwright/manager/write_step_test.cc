#include "shardwright/manager/write_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "shardwright/manager/run_for_test.h"
#include "shardwright/manager/tree_files.h"

namespace shardwright {
namespace {

using namespace testing_support;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;

class WriteStep : public Run {};

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

}  // namespace
}  // namespace shardwright
