#include "shardwright/manager/manager.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/bindings.h"
#include "python/given.h"
#include "python/long_work.h"
#include "python/ranks.h"
#include "python/text.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shardwright::python {
namespace {

using std::chrono::steady_clock;

template <class T>
std::optional<T> field(const nb::dict& fields, const char* name) {
  if (!fields.contains(name) || nb::object(fields[name]).is_none()) return std::nullopt;
  if constexpr (std::is_same_v<T, std::string>) {
    return from_str(nb::object(fields[name]));
  } else {
    return nb::cast<T>(fields[name]);
  }
}

StepNames names_of(const nb::dict& fields) {
  return {field<std::string>(fields, "prefix").value_or(""), field<int>(fields, "digits").value_or(0)};
}

Retention retention_of(const nb::dict& fields) {
  Retention out;
  out.last = field<uint64_t>(fields, "last");
  out.every_steps = field<uint64_t>(fields, "every_steps");
  out.every_seconds = field<uint64_t>(fields, "every_seconds");
  out.steps = field<std::vector<uint64_t>>(fields, "steps").value_or(std::vector<uint64_t>());
  if (auto metric = field<std::string>(fields, "metric"))
    if (auto count = field<uint64_t>(fields, "best"))
      out.best.push_back({*metric, *count, field<bool>(fields, "max").value_or(false),
                          field<bool>(fields, "keep_missing").value_or(true)});
  return out;
}

nb::dict dict_of(const Step& step) {
  nb::dict metrics, out;
  for (const auto& [name, value] : step.facts.metrics) metrics[to_str(name)] = value;
  out["step"] = step.facts.step;
  out["name"] = to_str(step.name);
  out["complete"] = step.complete;
  out["proof"] = to_str(step.proof);
  out["pinned"] = step.facts.pinned;
  out["time_ns"] = step.facts.time_ns;
  out["nbytes"] = step.bytes;
  out["shared_nbytes"] = step.shared_bytes;
  out["metrics"] = metrics;
  out["metadata"] = to_str(json_text(step.metadata));
  return out;
}

/// Without the GIL.
template <class Job>
auto freely(const Job& job) {
  auto result = [&] {
    nb::gil_scoped_release released;
    return job();
  }();
  return unwrap(std::move(result));
}

/// Pairs of key and content: text, or bytes.
std::vector<std::pair<std::string, std::string>> files_of(const nb::dict& fields) {
  std::vector<std::pair<std::string, std::string>> out;
  if (!fields.contains("files")) return out;
  for (nb::handle pair : nb::cast<nb::list>(fields["files"])) {
    nb::object content(pair[1]);
    out.emplace_back(from_str(nb::object(pair[0])),
                     nb::isinstance<nb::bytes>(content)
                         ? std::string(nb::borrow<nb::bytes>(content).c_str(), nb::len(content))
                         : from_str(content));
  }
  return out;
}

CheckpointManager* open_manager(const nb::str& root, const nb::dict& fields, uint64_t memory_bytes, int threads,
                                Ranks* ranks) {
  ManagerOptions options;
  options.names = names_of(fields);
  options.retention = retention_of(fields);
  options.staging_bytes = field<uint64_t>(fields, "staging_bytes").value_or(options.staging_bytes);
  options.refuse_second = field<bool>(fields, "refuse_second").value_or(false);
  options.branch = field<bool>(fields, "branch").value_or(false);
  options.job.plan.memory_bytes = memory_bytes;
  options.job.plan.threads = threads;
  std::string path = from_str(root);
  std::unique_ptr<Comm> comm;
  if (ranks != nullptr) {
    options.job.wait = ranks->wait();
    LongWork work(nb::none(), 0, 0);
    comm = ranks->run(work, [](const JobOptions&, Comm& all) { return all.clone(); });
  }
  return freely([&] { return CheckpointManager::open(path, options, std::move(comm)); }).release();
}

/// Everything but the tensors.
CheckpointManager::Request request_of(uint64_t step, const nb::dict& fields) {
  CheckpointManager::Request request;
  StepContent& content = request.content;
  content.step = step;
  content.item = field<std::string>(fields, "item").value_or(content.item);
  content.format = field<std::string>(fields, "format").value_or(content.format);
  content.max_shard_bytes = field<uint64_t>(fields, "max_shard_bytes");
  if (auto settings = field<decltype(content.settings)>(fields, "settings")) content.settings = std::move(*settings);
  content.files = files_of(fields);
  if (auto metadata = field<std::string>(fields, "metadata")) content.metadata = unwrap(parse_json(*metadata));
  auto hold = field<std::string>(fields, "hold").value_or("copy");
  request.hold = hold == "copy"        ? Hold::kStaged
                 : hold == "auto"      ? Hold::kStagedOrBlocking
                 : hold == "reference" ? Hold::kReference
                                       : Hold::kBlocking;
  request.replace = field<bool>(fields, "replace").value_or(false);
  content.incremental = field<bool>(fields, "incremental").value_or(false);
  request.keep = field<std::vector<uint64_t>>(fields, "keep").value_or(std::vector<uint64_t>());
  if (auto seconds = field<double>(fields, "seconds")) request.until = steady_clock::now() + milliseconds_of(*seconds);
  return request;
}

void save(CheckpointManager& manager, uint64_t step, const nb::list& given,
          const std::vector<std::pair<size_t, size_t>>& ties,
          const std::vector<std::pair<std::string, std::string>>& values, const nb::dict& fields, nb::object produce,
          uint64_t memory_bytes, int threads, nb::object progress) {
  auto request = request_of(step, fields);
  request.content.tensors = unwrap(source_of(given, ties, values, {}, /*partial=*/manager.ranks() > 1));
  LongWork work(std::move(progress), memory_bytes, threads);
  if (!produce.is_none())
    request.content.calls.produce = [&](TensorId id, const Box& box, MutableView into) {
      return work.call([&] {
        auto view = nb::steal(PyMemoryView_FromMemory(reinterpret_cast<char*>(into.data()),
                                                      static_cast<Py_ssize_t>(into.size()), PyBUF_WRITE));
        produce(id, box.start, box.extent, view);
      });
    };
  work.run([&](const JobOptions& options) { return manager.save(std::move(request), options); });
}

/// In place of save(), by a process that cannot.
void refuse(CheckpointManager& manager, const nb::str& why) {
  auto error = fail(Code::kInvalidArgument, "a process cannot take part in the save").with_found(from_str(why));
  nb::gil_scoped_release released;
  manager.refuse(error);
}

/// Hears Ctrl-C.
void wait(CheckpointManager& manager, std::optional<double> seconds) {
  LongWork work(nb::none(), 0, 0);
  work.run([&](const JobOptions&) -> Status {
    std::optional<steady_clock::time_point> until;
    if (seconds) until = steady_clock::now() + milliseconds_of(*seconds);
    while (true) {
      auto now = steady_clock::now(), next = now + std::chrono::milliseconds(100);
      bool last = until && *until <= next;
      auto status = manager.wait(last ? *until : next);
      bool waiting = !status.ok() && status.error().code == Code::kUnavailable && !manager.idle();
      if (!waiting || last) return status;
      SHARDWRIGHT_TRY(work.watch());
    }
  });
}

nb::object dict_or_none(const std::optional<Step>& step) { return step ? nb::object(dict_of(*step)) : nb::none(); }

nb::list list_of(const std::vector<Step>& steps) {
  nb::list out;
  for (const auto& step : steps) out.append(dict_of(step));
  return out;
}

nb::list leftovers_of(const std::vector<Leftover>& found) {
  nb::list out;
  for (const auto& leftover : found)
    out.append(nb::make_tuple(to_str(leftover.name), to_str(leftover.what), leftover.live, leftover.bytes));
  return out;
}

}  // namespace

void bind_manager(nb::module_& module) {
  nb::class_<CheckpointManager>(module, "Manager", "Steps below one root, saved in the background.")
      .def("save", save, "step"_a, "tensors"_a, "ties"_a, "values"_a, "fields"_a, "produce"_a.none(), "memory_bytes"_a,
           "threads"_a, "progress"_a.none(),
           nb::sig("def save(self, step: int, tensors: list[typing.Any], ties: list[tuple[int, int]], values: "
                   "list[tuple[str, str]], fields: dict[str, object], produce: object, memory_bytes: int, threads: "
                   "int, progress: object) -> None"))
      .def("refuse", refuse, "why"_a)
      .def("wait", wait, "seconds"_a.none())
      .def("close", [](CheckpointManager& manager) { freely([&] { return manager.close(); }); })
      .def_prop_ro("idle", &CheckpointManager::idle)
      .def_prop_ro("staging_bytes", &CheckpointManager::staging_bytes)
      .def(
          "steps", [](CheckpointManager& manager) { return list_of(freely([&] { return manager.steps(); })); },
          nb::sig("def steps(self) -> list[dict[str, typing.Any]]"))
      .def(
          "latest", [](CheckpointManager& manager) { return dict_or_none(freely([&] { return manager.latest(); })); },
          nb::sig("def latest(self) -> dict[str, typing.Any] | None"))
      .def(
          "best",
          [](CheckpointManager& manager, const nb::str& metric, bool max) {
            std::string name = from_str(metric);
            return dict_or_none(freely([&] { return manager.best(name, max); }));
          },
          "metric"_a, "max"_a, nb::sig("def best(self, metric: str, max: bool) -> dict[str, typing.Any] | None"))
      .def(
          "step",
          [](CheckpointManager& manager, uint64_t number) {
            return dict_or_none(freely([&] { return manager.step(number); }));
          },
          "number"_a, nb::sig("def step(self, number: int) -> dict[str, typing.Any] | None"))
      .def(
          "last",
          [](const CheckpointManager& manager) {
            auto last = manager.last();
            nb::dict out;
            out["step"] = last.step;
            out["nbytes"] = last.bytes;
            out["own_nbytes"] = last.own_bytes;
            out["linked_nbytes"] = last.linked_bytes;
            out["seconds"] = last.seconds;
            out["peak_memory_bytes"] = last.peak_memory_bytes;
            out["warnings"] = strs_of(last.warnings);
            return out;
          },
          nb::sig("def last(self) -> dict[str, typing.Any]"))
      .def("name_of", [](const CheckpointManager& manager, uint64_t step) { return manager.names().name_of(step); })
      .def(
          "prune",
          [](CheckpointManager& manager, double seconds, bool dry_run) {
            PruneOptions options;
            options.age = std::chrono::seconds(static_cast<int64_t>(seconds));
            options.dry_run = dry_run;
            return leftovers_of(freely([&] { return manager.prune(options); }));
          },
          "seconds"_a, "dry_run"_a,
          nb::sig("def prune(self, seconds: float, dry_run: bool) -> list[tuple[str, str, bool, int]]"));
  module.def(
      "open_manager", open_manager, "root"_a, "fields"_a, "memory_bytes"_a, "threads"_a, "ranks"_a.none(),
      nb::sig("def open_manager(root: str, fields: dict[str, object], memory_bytes: int, threads: int, ranks: Ranks | "
              "None) -> Manager"));
  module.def(
      "tensors_of_step",
      [](const nb::str& directory, const nb::str& item) {
        std::string path = from_str(directory), name = from_str(item);
        return to_str(freely([&] { return tensors_of_step(path, name); }));
      },
      "directory"_a, "item"_a, nb::sig("def tensors_of_step(directory: str, item: str) -> str"));
  module.def("pin_step", [](const nb::str& root, const nb::str& name, bool pinned) {
    unwrap(pin_step(from_str(root), from_str(name), pinned));
  });
  module.def("remove_step",
             [](const nb::str& root, const nb::str& name) { unwrap(remove_step(from_str(root), from_str(name))); });
}

}  // namespace shardwright::python
