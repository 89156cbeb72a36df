#include "python/ranks.h"

#include <fmt/format.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <map>

#include "python/bindings.h"
#include "python/text.h"
#include "shardwright/comm/mailbox.h"
#include "shardwright/engine/relayout.h"

namespace nb = nanobind;

namespace shardwright::python {
namespace {

/// Letters as values of a store that all processes of a job share: put(key, bytes), take(key) -> bytes | None, which also removes them.
class StoreMailbox : public Mailbox {
 public:
  StoreMailbox(int rank, int size, std::shared_ptr<nb::object> put, std::shared_ptr<nb::object> take,
               std::string channel)
      : rank_(rank), size_(size), put_(std::move(put)), take_(std::move(take)), channel_(std::move(channel)) {}
  ~StoreMailbox() override {
    nb::gil_scoped_acquire held;
    put_.reset();
    take_.reset();
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Result<std::unique_ptr<Mailbox>> clone(Deadline) override {
    return std::unique_ptr<Mailbox>(
        std::make_unique<StoreMailbox>(rank_, size_, put_, take_, fmt::format("{}-{}", channel_, clones_++)));
  }
  Status send(int to, Subject subject, View bytes) override {
    return call([&] { (*put_)(key_of(subject, rank_, to), nb::bytes(bytes.data(), bytes.size())); });
  }
  Result<std::vector<int>> unsent() override { return std::vector<int>(); }

  Result<std::optional<uint64_t>> arrived(int from, Subject subject) override {
    std::string key = key_of(subject, from, rank_);
    auto at = letters_.find(key);
    if (at == letters_.end()) {
      SHARDWRIGHT_TRY(call([&] {
        nb::object found = (*take_)(key);
        if (found.is_none()) return;
        auto value = nb::cast<nb::bytes>(found);
        at = letters_.emplace(key, bytes_of({value.c_str(), value.size()})).first;
      }));
    }
    if (at == letters_.end()) return std::optional<uint64_t>();
    return std::optional<uint64_t>(at->second.size());
  }
  Status receive(int from, Subject subject, MutableView into) override {
    auto letter = letters_.extract(key_of(subject, from, rank_));
    std::ranges::copy(letter.mapped(), into.begin());
    return {};
  }

 private:
  std::string key_of(Subject subject, int from, int to) const {
    return fmt::format("{}/{}{}/{}-{}", channel_, "gxf"[subject.kind], subject.number, from, to);
  }
  static Status call(const std::function<void()>& action) {
    nb::gil_scoped_acquire held;
    try {
      action();
      return {};
    } catch (nb::python_error& error) {
      if (error.matches(PyExc_KeyboardInterrupt)) {
        PyErr_SetInterrupt();  // not the store's doing: heard again by who waits
        return {};
      }
      return fail(Code::kUnavailable, "the store through which the processes speak failed").with_found(error.what());
    } catch (const std::exception& error) {
      return fail(Code::kUnavailable, "the store through which the processes speak failed").with_found(error.what());
    }
  }
  const int rank_, size_;
  std::shared_ptr<nb::object> put_, take_;
  const std::string channel_;
  int clones_ = 0;
  std::map<std::string, Bytes> letters_;  ///< come, not yet received
};

constexpr double kDefaultSeconds = 600;

Ranks* meet(const nb::str& directory, int rank, int size, double seconds) {
  std::string path = from_str(directory);
  LongWork work(nb::none(), 0, 0);
  auto comm = work.run([&](const JobOptions&) {
    return meet_in_directory(path, rank, size, deadline_in(milliseconds_of(seconds)), [&] { return work.watch(); });
  });
  return new Ranks(std::move(comm), kDefaultSeconds);
}

nb::list all_gather(Ranks& ranks, const nb::bytes& mine) {
  Bytes bytes = bytes_of({mine.c_str(), mine.size()});
  LongWork work(nb::none(), 0, 0);
  auto all =
      ranks.run(work, [&](const JobOptions&, Comm& comm) { return comm.all_gather(bytes, deadline_in(ranks.wait())); });
  nb::list out;
  for (const auto& part : all) out.append(nb::bytes(part.data(), part.size()));
  return out;
}

using Extents = std::vector<int64_t>;
using GivenShard = std::tuple<Extents, Extents, int32_t, int64_t>;  ///< start, extent, rank, device
using GivenTensor = std::tuple<std::string, uint32_t, std::vector<GivenShard>, std::vector<GivenShard>>;

std::vector<RelayoutTensor> tensors_of(const std::vector<GivenTensor>& given) {
  std::vector<RelayoutTensor> out;
  for (const auto& [name, element_bytes, from, to] : given) {
    RelayoutTensor tensor{name, element_bytes, {}, {}};
    for (const auto& [start, extent, rank, device] : from) tensor.from.push_back({{start, extent}, rank, device});
    for (const auto& [start, extent, rank, device] : to) tensor.to.push_back({{start, extent}, rank, device});
    out.push_back(std::move(tensor));
  }
  return out;
}

nb::dict counts_of(const RelayoutPlan& plan) {
  nb::dict out;
  out["sent_bytes"] = plan.sent_bytes;
  out["copied_bytes"] = plan.copied_bytes;
  out["kept_bytes"] = plan.kept_bytes;
  out["rounds"] = plan.rounds;
  out["rank_sends"] = nb::cast(plan.rank_sends);
  out["rank_receives"] = nb::cast(plan.rank_receives);
  return out;
}

/// source, target(tensor, shard) -> (address, strides in elements); finished(tensor).
nb::dict relayout(const std::vector<GivenTensor>& given, const nb::object& source, const nb::object& target,
                  const nb::object& finished, uint64_t memory_bytes, Ranks* ranks) {
  auto tensors = tensors_of(given);
  LongWork work(nb::none(), memory_bytes, 0);
  auto asking = [&](const nb::object& callback) {
    return [&](uint32_t tensor, uint32_t shard) -> Result<ShardMemory> {
      ShardMemory memory;
      SHARDWRIGHT_TRY(work.call([&] {
        auto [address, strides] = nb::cast<std::pair<uint64_t, Extents>>(callback(tensor, shard));
        memory = {reinterpret_cast<std::byte*>(address), std::move(strides)};
      }));
      return memory;
    };
  };
  RelayoutCalls calls{asking(source), asking(target),
                      [&](uint32_t tensor) { return work.call([&] { finished(tensor); }); }};
  RelayoutOptions options;
  options.memory_bytes = memory_bytes;
  if (ranks == nullptr) {
    auto alone = single_process();
    return counts_of(
        work.run([&](const JobOptions&) { return shardwright::relayout(tensors, calls, options, *alone); }));
  }
  options.wait = ranks->wait();
  return counts_of(ranks->run(
      work, [&](const JobOptions&, Comm& comm) { return shardwright::relayout(tensors, calls, options, comm); }));
}

}  // namespace

void bind_ranks(nb::module_& module) {
  nb::class_<Ranks>(module, "Ranks", "The processes of a job, and how long this one waits for them.")
      .def_prop_ro("index", &Ranks::rank)
      .def_prop_ro("count", &Ranks::size)
      .def_prop_rw("timeout", &Ranks::seconds, &Ranks::set_seconds, "Seconds.")
      .def("all_gather", all_gather, nb::arg("mine"), nb::sig("def all_gather(self, mine: bytes) -> list[bytes]"));
  module.def("meet_in_directory", meet, nb::arg("directory"), nb::arg("index"), nb::arg("count"), nb::arg("seconds"));
  module.def(
      "ranks_of_store",
      [](int index, int count, nb::object put, nb::object take, const std::string& channel) {
        auto mailbox = std::make_unique<StoreMailbox>(index, count, std::make_shared<nb::object>(std::move(put)),
                                                      std::make_shared<nb::object>(std::move(take)), channel);
        return new Ranks(comm_of(std::move(mailbox)), kDefaultSeconds);
      },
      nb::arg("index"), nb::arg("count"), nb::arg("put"), nb::arg("take"), nb::arg("channel"),
      "Ranks that speak through put(key, bytes) and take(key) -> bytes | None of a store that all share.");
  module.def(
      "relayout", relayout, nb::arg("tensors"), nb::arg("source"), nb::arg("target"), nb::arg("finished"),
      nb::arg("memory_bytes"), nb::arg("ranks").none() = nb::none(),
      nb::sig("def relayout(tensors: list[typing.Any], source: object, target: object, finished: object, "
              "memory_bytes: int, ranks: Ranks | None = None) -> dict[str, typing.Any]"),
      "tensors: (name, bytes of an element, shards that are, shards that are to be), a shard being (start, extent, "
      "process, device). source, target(tensor, shard) -> (address, strides in elements), for this process's.");
  module.def(
      "plan_relayout",
      [](const std::vector<GivenTensor>& given, int count, uint64_t budget_bytes) {
        return counts_of(unwrap(plan_relayout(tensors_of(given), count, budget_bytes)));
      },
      nb::arg("tensors"), nb::arg("count"), nb::arg("budget_bytes"),
      nb::sig("def plan_relayout(tensors: list[typing.Any], count: int, budget_bytes: int) -> dict[str, typing.Any]"));
}

}  // namespace shardwright::python
