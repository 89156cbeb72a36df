// What loading onto a mesh takes of anonymous memory. Sanitizers have memory of their own: this is of trees without.
#include "shardwright/engine/big_file_for_test.h"
#include "shardwright/engine/memory_watch.h"

namespace shardwright {
namespace {

// A variable eight budgets wide, by rows, by columns and by blocks, over devices that the host does not reach and that drop what they get: the
// host never holds more than its budget. (64 MiB more is the promise's allowance, and less than the variable.)
TEST_F(BigFile, AnonymousMemoryStaysInTheBudget) {
  class Sink final : public Device {
   public:
    explicit Sink(MemoryWatch& watch) : watch_(watch) {}
    class Array final : public DeviceArray {
     public:
      Array(uint64_t bytes, MemoryWatch& watch) : bytes_(bytes), watch_(watch) {}
      uint64_t size() const override { return bytes_; }
      MutableView host() override { return {}; }
      Status put(uint64_t, View) override {
        if (++puts_ % 512 == 1) watch_.sample();
        return {};
      }
      Status finish() override { return {}; }

     private:
      uint64_t bytes_, puts_ = 0;
      MemoryWatch& watch_;
    };
    const std::string& name() const override { return name_; }
    Result<std::unique_ptr<DeviceArray>> allocate(uint64_t bytes) override {
      return std::make_unique<Array>(bytes, watch_);
    }
    std::unique_ptr<DeviceArray> share(DeviceArray&) override { return nullptr; }

   private:
    std::string name_ = "sink";
    MemoryWatch& watch_;
  };
  make({8192, 4096});
  JobOptions options;
  options.plan.memory_bytes = 16 * MiB;
  ASSERT_EQ(bytes_, 8 * options.plan.memory_bytes);
  for (const TensorLayout& layout :
       {TensorLayout{{{"x", "y"}}}, TensorLayout{{{}, {"x", "y"}}}, TensorLayout{{{"y"}, {"x"}}}}) {
    MemoryWatch watch;
    Sink sink(watch);
    auto loaded = load_onto_mesh(
        checkpoint_, laid("x=2,y=4", layout), all(8, sink), [](const MeshBox&) -> Status { return {}; }, options);
    ASSERT_OK(loaded);
    EXPECT_LE(loaded->peak_bytes, options.plan.memory_bytes);
    EXPECT_LE(watch.peak(), options.plan.memory_bytes + 64 * MiB) << layout.text();
    EXPECT_EQ(loaded->read_bytes, bytes_);
  }
}

// The same onto the host's own devices: their parts, and the budget.
TEST_F(BigFile, HostDevicesHoldTheirPartsAndNoMore) {
  make({8192, 4096});
  JobOptions options;
  options.plan.memory_bytes = 16 * MiB;
  for (const TensorLayout& layout : {TensorLayout{{{"x", "y"}}}, TensorLayout{{{}, {"x", "y"}}}}) {
    MemoryWatch watch;
    std::vector<std::unique_ptr<HostDevice>> devices;
    std::vector<MeshSeat> seats;
    for (int64_t i = 0; i < 8; ++i) {
      devices.push_back(std::make_unique<HostDevice>("host:" + std::to_string(i), bytes_ / 8));
      seats.push_back({i, devices.back().get()});
    }
    std::vector<MeshBox> kept;
    auto keep = [&](MeshBox box) -> Status {
      watch.sample();
      kept.push_back(std::move(box));
      return {};
    };
    ASSERT_OK(load_onto_mesh(checkpoint_, laid("x=2,y=4", layout), seats, keep, options));
    watch.sample();
    EXPECT_GE(watch.peak(), bytes_);
    EXPECT_LE(watch.peak(), bytes_ + options.plan.memory_bytes + 64 * MiB);
    for (const auto& device : devices) EXPECT_EQ(device->held_bytes(), bytes_ / 8);
    kept.clear();
    for (const auto& device : devices) EXPECT_EQ(device->held_bytes(), 0u);
  }
}

TEST_F(BigFile, FiftyLoadsLeaveMemoryFlat) {
  make({1024, 1024});
  HostDevice host("host");
  uint64_t early = 0;
  for (int i = 0; i < 50; ++i) {
    std::vector<MeshBox> kept;
    auto keep = [&](MeshBox box) -> Status {
      kept.push_back(std::move(box));
      return {};
    };
    ASSERT_OK(load_onto_mesh(checkpoint_, laid("x=8", {{{}, {"x"}}}), all(8, host), keep, {}));
    if (i == 4) early = resident_anonymous_bytes();
  }
  EXPECT_LE(resident_anonymous_bytes(), early + bytes_ / 2);
}

}  // namespace
}  // namespace shardwright
