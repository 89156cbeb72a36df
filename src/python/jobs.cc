#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/bindings.h"
#include "python/job_options.h"
#include "python/long_work.h"
#include "python/text.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shardwright::python {
namespace {

template <class T>
void take(const nb::dict& fields, const char* name, T& into) {
  if (!fields.contains(name)) return;
  nb::object value = fields[name];
  if (value.is_none()) return;
  if constexpr (std::is_same_v<T, std::string>) {
    into = from_str(value);
  } else {
    into = nb::cast<T>(value);
  }
}

nb::object size_or_none(uint64_t size) {
  return size == kUnknown ? nb::object(nb::none()) : nb::object(nb::int_(size));
}

nb::dict copy(const nb::dict& fields, uint64_t memory_bytes, int threads, bool isolate, nb::object progress) {
  CopyRequest request = copy_request_of(fields);
  LongWork work(std::move(progress), memory_bytes, threads);
  return summary_of(work.run([&](JobOptions options) {
    options.open.isolate = isolate;
    return copy_checkpoint(request, options);
  }));
}

nb::dict verify(const nb::str& path, bool full, const nb::str& against, uint64_t memory_bytes, int threads,
                bool isolate, nb::object progress) {
  VerifyRequest request{from_str(path), full, from_str(against)};
  std::vector<Error> findings;
  LongWork work(std::move(progress), memory_bytes, threads);
  auto summary = work.run([&](JobOptions options) {
    options.open.isolate = isolate;
    return verify_checkpoint(request, options, [&](const Error& error) { findings.push_back(error); });
  });
  nb::list found;
  for (const auto& error : findings) found.append(exception_of(error));
  nb::dict out;
  out["tensors"] = summary.tensors;
  out["bytes_checked"] = summary.bytes_checked;
  out["peak_memory_bytes"] = summary.peak_memory_bytes;
  out["manifest"] = summary.manifest;
  out["findings"] = found;
  return out;
}

nb::list diff(const nb::str& a, const nb::str& b, bool names_only, double absolute, double relative,
              uint64_t memory_bytes, int threads, bool isolate, nb::object progress) {
  DiffRequest request{from_str(a), from_str(b), names_only, absolute, relative};
  LongWork work(std::move(progress), memory_bytes, threads);
  auto differences = work.run([&](JobOptions options) {
    options.open.isolate = isolate;
    return diff_checkpoints(request, options);
  });
  nb::list out;
  for (const auto& row : differences)
    out.append(nb::make_tuple(to_str(row.name), to_str(row.change), nb::cast(row.max_abs_diff), to_str(row.detail)));
  return out;
}

nb::list hash(const nb::str& path, bool write, uint64_t memory_bytes, int threads, bool isolate, nb::object progress) {
  std::string name = from_str(path);
  LongWork work(std::move(progress), memory_bytes, threads);
  auto hashes = work.run([&](JobOptions options) {
    options.open.isolate = isolate;
    return hash_checkpoint(name, write, options);
  });
  nb::list out;
  for (const auto& row : hashes) {
    nb::list shape;
    for (int64_t extent : row.shape) shape.append(extent);
    out.append(
        nb::make_tuple(to_str(row.name), to_str(dtype_row(row.dtype).numpy_name), nb::tuple(shape), to_str(row.hash)));
  }
  return out;
}

nb::dict reindex(const nb::str& directory, bool dry_run, nb::object progress) {
  std::string name = from_str(directory);
  LongWork work(std::move(progress), PlanOptions{}.memory_bytes, 0);
  auto summary = work.run([&](const JobOptions& options) { return reindex_checkpoint(name, dry_run, options); });
  nb::dict out;
  out["index"] = to_str(summary.index);
  out["tensors"] = summary.tensors;
  out["shards"] = summary.shards;
  out["added"] = strs_of(summary.added);
  out["removed"] = strs_of(summary.removed);
  out["moved"] = strs_of(summary.moved);
  return out;
}

}  // namespace

CopyRequest copy_request_of(const nb::dict& fields) {
  CopyRequest request;
  take(fields, "source", request.source);
  take(fields, "target", request.target);
  take(fields, "format", request.format);
  if (fields.contains("max_shard_bytes") && !nb::object(fields["max_shard_bytes"]).is_none())
    request.max_shard_bytes = nb::cast<uint64_t>(fields["max_shard_bytes"]);
  take(fields, "strict", request.strict);
  take(fields, "overwrite", request.overwrite);
  take(fields, "dry_run", request.dry_run);
  take(fields, "manifest", request.manifest);
  take(fields, "include", request.select.include);
  take(fields, "exclude", request.select.exclude);
  take(fields, "rename", request.select.rename);
  take(fields, "settings", request.settings);
  take(fields, "replaces", request.replaces);
  std::string dtype;
  take(fields, "dtype", dtype);
  if (!dtype.empty()) request.select.dtype = unwrap(parse_dtype(dtype));
  return request;
}

nb::dict summary_of(const CopySummary& summary) {
  nb::list files;
  for (const auto& [key, size] : summary.objects) files.append(nb::make_tuple(to_str(key), size_or_none(size)));
  nb::dict out;
  out["source"] = to_str(summary.source);
  out["target"] = to_str(summary.target);
  out["format"] = to_str(summary.format);
  out["tensors"] = summary.tensors;
  out["shards"] = summary.shards;
  out["bytes_read"] = summary.bytes_read;
  out["bytes_written"] = summary.bytes_written;
  out["peak_memory_bytes"] = summary.peak_memory_bytes;
  out["seconds"] = summary.seconds;
  out["reread"] = summary.reread;
  out["files"] = files;
  out["warnings"] = strs_of(summary.warnings);
  return out;
}

void bind_jobs(nb::module_& module) {
  module.def("copy", copy, "request"_a, "memory_bytes"_a, "threads"_a, "isolate"_a, "progress"_a.none(),
             nb::sig("def copy(request: dict[str, object], memory_bytes: int, threads: int, isolate: bool, "
                     "progress: object) -> dict[str, typing.Any]"));
  module.def("verify", verify, "path"_a, "full"_a, "against"_a, "memory_bytes"_a, "threads"_a, "isolate"_a,
             "progress"_a.none(),
             nb::sig("def verify(path: str, full: bool, against: str, memory_bytes: int, threads: int, isolate: bool, "
                     "progress: object) -> dict[str, typing.Any]"));
  module.def("diff", diff, "a"_a, "b"_a, "names_only"_a, "absolute"_a, "relative"_a, "memory_bytes"_a, "threads"_a,
             "isolate"_a, "progress"_a.none(),
             nb::sig("def diff(a: str, b: str, names_only: bool, absolute: float, relative: float, memory_bytes: int, "
                     "threads: int, isolate: bool, progress: object) -> list[tuple[str, str, float | None, str]]"));
  module.def("hash", hash, "path"_a, "write"_a, "memory_bytes"_a, "threads"_a, "isolate"_a, "progress"_a.none(),
             nb::sig("def hash(path: str, write: bool, memory_bytes: int, threads: int, isolate: bool, "
                     "progress: object) -> list[tuple[str, str, tuple[int, ...], str]]"));
  module.def("reindex", reindex, "directory"_a, "dry_run"_a, "progress"_a.none(),
             nb::sig("def reindex(directory: str, dry_run: bool, progress: object) -> dict[str, typing.Any]"));
}

}  // namespace shardwright::python
