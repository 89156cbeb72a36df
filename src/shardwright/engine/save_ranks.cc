#include "shardwright/engine/save_ranks.h"

#include "shardwright/base/json.h"

namespace shardwright {
namespace {

/// All that every rank must ask for alike.
Json json_of_request(const CopyRequest& r) {
  Json rename = Json::array();
  for (const auto& [pattern, name] : r.select.rename) rename.push_back({pattern, name});
  Json settings = Json::array();
  for (const auto& [name, value] : r.settings) settings.push_back({name, value});
  return {{"target", r.target},
          {"format", r.format},
          {"shard size", r.max_shard_bytes ? Json(*r.max_shard_bytes) : Json()},
          {"strict", r.strict},
          {"overwrite", r.overwrite},
          {"dry run", r.dry_run},
          {"manifest", r.manifest},
          {"options", settings},
          {"include", r.select.include},
          {"exclude", r.select.exclude},
          {"rename", rename},
          {"dtype", r.select.dtype ? Json(dtype_row(*r.select.dtype).name) : Json()}};
}

Bytes bytes_of_summary(const CopySummary& s) {
  Json objects = Json::array();
  for (const auto& [key, size] : s.objects) objects.push_back({key, size});
  Json json = {s.source,  s.target, s.format, s.tensors, s.shards, s.bytes_read, s.bytes_written, s.peak_memory_bytes,
               s.seconds, s.reread, objects,  s.warnings};
  return bytes_of(json_text(json));
}

Result<CopySummary> summary_from_bytes(View bytes) {
  SHARDWRIGHT_ASSIGN(Json json, parse_json(text_of(bytes)));
  if (!json.is_array() || json.size() != 12) return fail(Code::kInternal, "the summary of rank 0 cannot be read");
  CopySummary s;
  s.source = json[0].get<std::string>();
  s.target = json[1].get<std::string>();
  s.format = json[2].get<std::string>();
  s.tensors = json[3].get<uint64_t>();
  s.shards = json[4].get<uint64_t>();
  s.bytes_read = json[5].get<uint64_t>();
  s.bytes_written = json[6].get<uint64_t>();
  s.peak_memory_bytes = json[7].get<uint64_t>();
  s.seconds = json[8].get<double>();
  s.reread = json[9].get<double>();
  for (const auto& object : json[10]) s.objects.emplace_back(object[0].get<std::string>(), object[1].get<uint64_t>());
  for (const auto& warning : json[11]) s.warnings.push_back(warning.get<std::string>());
  return s;
}

}  // namespace

Result<CopySummary> save_tensors(const Catalog& tensors, const Calls& calls, const CopyRequest& request,
                                 const JobOptions& options, Comm& comm) {
  if (comm.size() == 1) return save_tensors(tensors, calls, request, options);
  SharedSave save{tensors,          calls,         json_of_request(request), request.select, request.strict,
                  request.settings, request.layout};
  save.own = [&]() -> Status {
    if (!request.part) return {};
    return fail(Code::kInvalidArgument, "ranks save the whole, not one device's part");
  };
  auto lead = [&](const Gathered& all, const Fill& fill) -> Result<Bytes> {
    SHARDWRIGHT_ASSIGN(auto summary, save_filled(all.tensors, comm.size(), request, options, fill));
    return bytes_of_summary(summary);
  };
  JobOptions job = options;
  job.plan.checksums = options.plan.checksums || request.manifest;
  SHARDWRIGHT_ASSIGN(auto outcome, save_together(save, job, comm, lead));
  return summary_from_bytes(outcome.told);
}

}  // namespace shardwright
