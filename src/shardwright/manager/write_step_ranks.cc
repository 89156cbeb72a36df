// One step by all ranks of a job.
#include <set>

#include "shardwright/base/byte_reader.h"
#include "shardwright/engine/memory_watch.h"
#include "shardwright/manager/step_writer.h"

namespace shardwright {
namespace {

using Files = std::vector<std::pair<std::string, std::string>>;

Json json_of_request(const std::string& root, const StepNames& names, const StepContent& content,
                     const StepConflict& conflict) {
  Json settings = Json::array();
  for (const auto& [name, value] : content.settings) settings.push_back({name, value});
  return {{"directory", root},
          {"name", names.name_of(content.step)},
          {"step", content.step},
          {"item", content.item},
          {"format", content.format},
          {"shard size", content.max_shard_bytes ? Json(*content.max_shard_bytes) : Json()},
          {"options", settings},
          {"incremental", content.incremental},
          {"replacing", conflict.replace},
          {"branching", conflict.branch}};
}

Bytes bytes_of_files(const Files& files) {
  Bytes out;
  for (const auto& [key, text] : files) {
    append_sized(out, key);
    append_sized(out, text);
  }
  return out;
}

Files files_of_all(const std::vector<Bytes>& all) {
  Files out;
  std::set<std::string> taken;
  for (const Bytes& bytes : all) {
    std::set<std::string> mine;
    for (ByteReader in(bytes); !in.bad && !in.at_end();) {
      std::string key(in.text()), text(in.text());
      mine.insert(key);
      if (!taken.contains(key)) out.emplace_back(std::move(key), std::move(text));
    }
    taken.merge(mine);
  }
  return out;
}

Bytes bytes_of_written(const WrittenStep& w) {
  return bytes_of(json_text(Json{w.step, w.bytes, w.tensors, w.linked_bytes, w.name, w.warnings}));
}

Result<WrittenStep> written_from(View bytes) {
  SHARDWRIGHT_ASSIGN(Json json, parse_json(text_of(bytes)));
  if (!json.is_array() || json.size() != 6) return fail(Code::kInternal, "what rank 0 has written cannot be read");
  WrittenStep out;
  out.step = json[0].get<uint64_t>();
  out.bytes = json[1].get<uint64_t>();
  out.tensors = json[2].get<uint64_t>();
  out.linked_bytes = json[3].get<uint64_t>();
  out.name = json[4].get<std::string>();
  for (const auto& warning : json[5]) out.warnings.push_back(warning.get<std::string>());
  return out;
}

}  // namespace

Result<WrittenStep> write_step(const std::string& root, const StepNames& names, const StepContent& content,
                               const StepConflict& conflict, const JobOptions& options, Comm& comm,
                               const std::function<Status()>& own) {
  if (comm.size() == 1) {
    if (own) SHARDWRIGHT_TRY(own());
    return write_step(root, names, content, conflict, options);
  }
  MemoryWatch watch;
  SharedSave save{content.tensors, content.calls, json_of_request(root, names, content, conflict)};
  save.settings = content.settings;
  save.directory = root;
  save.hash = content.incremental;
  save.extra = bytes_of_files(content.files);
  save.own = own;
  JobOptions job = options;
  job.plan.checksums = true;
  auto lead = [&](const Gathered& all, const Fill& fill) -> Result<Bytes> {
    StepContent whole = content;
    whole.tensors = all.tensors;
    whole.files = files_of_all(all.extras);
    SHARDWRIGHT_ASSIGN(auto written,
                       write_step_filled(root, names, whole, conflict, options, comm.size(), all.boxes, fill));
    return bytes_of_written(written);
  };
  SHARDWRIGHT_ASSIGN(auto outcome, save_together(save, job, comm, lead));
  SHARDWRIGHT_ASSIGN(auto written, written_from(outcome.told));
  watch.sample();
  written.own_bytes = outcome.written_bytes;
  written.seconds = watch.seconds();
  written.peak_memory_bytes = watch.peak();
  return written;
}

}  // namespace shardwright
