#include "shardwright/manager/step_files.h"

#include <fmt/format.h>

#include "shardwright/base/text.h"
#include "shardwright/format/orbax_metadata.h"

namespace shardwright {
namespace {

/// nullopt when there is no such file.
Result<std::optional<std::string>> read_text(const std::string& directory, std::string_view key) {
  SHARDWRIGHT_ASSIGN(auto store, open_file_store(directory));
  SHARDWRIGHT_ASSIGN(auto size, store->size(key));
  if (!size) return std::optional<std::string>();
  SHARDWRIGHT_ASSIGN(Bytes text, read_object(*store, key, kMaxStepFile));
  return std::optional(std::string(text_of(text)));
}

Result<std::optional<Json>> read_json(const std::string& directory, std::string_view key) {
  SHARDWRIGHT_ASSIGN(auto text, read_text(directory, key));
  if (!text) return std::optional<Json>();
  auto json = parse_json(*text);
  if (!json.ok()) return std::move(json.error()).at_path(directory + "/" + std::string(key));
  return std::optional(std::move(*json));
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size()) text.replace(at, from.size(), to);
}

Error bad_manifest(const std::string& directory, std::string what) {
  return fail(Code::kCorrupt, "manifest of a step: " + std::move(what))
      .at_path(directory + "/" + std::string(kManifestName));
}

}  // namespace

Result<StepMetadata> read_step_metadata(const std::string& directory) {
  StepMetadata out;
  SHARDWRIGHT_ASSIGN(auto json, read_json(directory, kOrbaxStep));
  if (!json) return out;
  out.present = true;
  SHARDWRIGHT_ASSIGN(auto step, parse_orbax_step(json_text(*json)));
  out.committed = step.committed;
  out.custom = std::move(step.custom);
  const Json& time = json_member(*json, "commit_timestamp_nsecs");
  if (time.is_number_unsigned()) out.commit_ns = time.get<uint64_t>();
  return out;
}

Result<std::map<std::string, double>> read_step_metrics(const std::string& directory) {
  std::map<std::string, double> out;
  SHARDWRIGHT_ASSIGN(auto text, read_text(directory, kMetricsFile));
  if (!text) return out;
  // As Python writes them, though JSON has no such numbers.
  constexpr std::pair<const char*, const char*> kWords[] = {
      {"NaN", "null"}, {"-Infinity", "-1.7976931348623157e308"}, {"Infinity", "1.7976931348623157e308"}};
  for (const auto& [word, number] : kWords)
    for (std::string before : {": ", ":"}) replace_all(*text, before + word, before + number);
  auto json = parse_json(*text);
  if (!json.ok() || !json->is_object()) return out;
  for (const auto& [name, value] : json->items())
    if (value.is_number()) out[name] = value.get<double>();
  return out;
}

std::string step_manifest_text(const StepManifest& manifest, const std::string& entry,
                               const std::vector<StoredSum>& stored) {
  std::string out =
      fmt::format("{{\n \"version\": 1,\n \"checkpoints\": {{\n  {}: {{\n   \"content\": {{}},\n   \"stored\": [",
                  json_quote(entry));
  const char* comma = "";
  for (const auto& sum : stored) {
    out += fmt::format("{}\n    {{\"file\": {}, \"offset\": {}, \"length\": {}, \"crc32c\": \"{:08x}\"}}", comma,
                       json_quote(sum.file), sum.offset, sum.length, sum.crc32c);
    comma = ",";
  }
  out += fmt::format("\n   ]\n  }}\n }},\n \"step\": {},\n \"files\": [", manifest.step);
  comma = "";
  for (const auto& [file, size] : manifest.files) {
    out += fmt::format("{}\n  {{\"file\": {}, \"size\": {}}}", comma, json_quote(file), size);
    comma = ",";
  }
  if (!manifest.contents.is_null()) return out + "\n ],\n \"contents\": " + json_text(manifest.contents) + "\n}\n";
  return out + "\n ]\n}\n";
}

Result<std::optional<StepManifest>> read_step_manifest(const std::string& directory) {
  SHARDWRIGHT_ASSIGN(auto json, read_json(directory, kManifestName));
  if (!json) return std::optional<StepManifest>();
  const Json &files = json_member(*json, "files"), &step = json_member(*json, "step");
  if (files.is_null() && step.is_null()) return std::optional<StepManifest>();
  if (!files.is_array() || !step.is_number_unsigned()) return bad_manifest(directory, "not of the expected shape");
  StepManifest out;
  out.step = step.get<uint64_t>();
  out.contents = json_member(*json, "contents");
  for (const auto& row : files) {
    const Json &file = json_member(row, "file"), &size = json_member(row, "size");
    if (!file.is_string() || !size.is_number_unsigned()) return bad_manifest(directory, "a file without name or size");
    if (!is_safe_relative_path(file.get<std::string>()))
      return bad_manifest(directory, "a name that leaves the step").with_found(file.dump());
    out.files.emplace_back(file.get<std::string>(), size.get<uint64_t>());
  }
  return std::optional(std::move(out));
}

}  // namespace shardwright
