/// shardwright ocdbt: the database that Orbax and TensorStore keep arrays in, as it is.
#include <fmt/format.h>

#include <filesystem>

#include "cli/json_output.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "shardwright/base/checksum.h"
#include "shardwright/base/error_table.h"
#include "shardwright/base/text.h"
#include "shardwright/store/ocdbt.h"
#include "shardwright/store/ocdbt_write.h"

namespace shardwright::cli {
namespace {

std::string shown_key(std::string_view key) { return is_utf8(key) ? printable(key) : json_quote(key); }

Json key_json(std::string_view key) { return std::string(key); }

/// In one pass: a table would want two.
Status list_keys(Output& output, const OcdbtDatabase& database) {
  std::optional<JsonArray> array;
  if (output.json()) array.emplace(output);
  uint64_t keys = 0, bytes = 0;
  SHARDWRIGHT_TRY(database.for_each([&](const OcdbtValue& value) -> Status {
    ++keys;
    bytes += value.length;
    if (array) {
      array->add(Json{{"key", key_json(value.key)},
                      {"size", value.length},
                      {"file", value.is_inline ? Json() : Json(std::string(value.file))},
                      {"offset", value.is_inline ? Json() : Json(value.offset)}});
    } else if (output.quiet()) {
      output.line(shown_key(value.key));
    } else {
      output.line(fmt::format("{:>12}  {}{}", value.length, shown_key(value.key),
                              !output.verbose() ? ""
                              : value.is_inline ? "  (in the node)"
                                                : fmt::format("  {}@{}", value.file, value.offset)));
    }
    return {};
  }));
  array.reset();
  if (!output.json() && !output.quiet())
    output.line(output.styled(counted(keys, "key") + ", " + format_bytes(bytes), Style::kDim));
  return {};
}

Json config_json(const OcdbtConfig& config) {
  std::string uuid;
  for (std::byte byte : config.uuid) uuid += fmt::format("{:02x}", std::to_integer<int>(byte));
  return {{"uuid", uuid},
          {"max_inline_value_bytes", config.max_inline_bytes},
          {"max_decoded_node_bytes", config.max_node_bytes},
          {"version_tree_arity_log2", config.arity_log2},
          {"zstd_level", config.zstd_level ? Json(*config.zstd_level) : Json()}};
}

Json version_json(const OcdbtVersion& version) {
  return {{"type", "version"},
          {"generation", version.generation},
          {"height", version.height},
          {"empty", !version.root.has_value()},
          {"keys", version.statistics.keys},
          {"tree_bytes", version.statistics.tree_bytes},
          {"indirect_bytes", version.statistics.indirect_bytes},
          {"commit_time_ns", version.commit_ns}};
}

/// One JSON object a line, also for people: it is what it is.
Status dump(Output& output, const OcdbtDatabase& database) {
  const OcdbtManifest& manifest = database.manifest();
  json_line(output,
            Json{{"type", "manifest"}, {"file", database.manifest_key()}, {"config", config_json(manifest.config)}});
  SHARDWRIGHT_ASSIGN(auto versions, database.versions());
  for (const OcdbtVersion& version : versions) json_line(output, version_json(version));
  return database.for_each_node([&](const OcdbtDatabase::NodeVisit& visit) -> Status {
    json_line(output, Json{{"type", "node"},
                           {"height", visit.node.height()},
                           {"file", std::string(visit.file)},
                           {"offset", visit.range.offset},
                           {"length", visit.range.length},
                           {"prefix", key_json(visit.prefix)},
                           {"entries", visit.node.entries().size()}});
    for (const auto& entry : visit.node.entries()) {
      Json row = {{"type", visit.node.height() == 0 ? "value" : "child"},
                  {"key", std::string(visit.prefix) + std::string(visit.node.key(entry))},
                  {"length", entry.range.length}};
      if (!entry.is_inline) {
        row["file"] = visit.node.files()[entry.range.file].path();
        row["offset"] = entry.range.offset;
      }
      json_line(output, row);
    }
    return {};
  });
}

Result<int> check(Output& output, Store& store, const OcdbtOptions& options, const std::string& path) {
  uint64_t findings = 0;
  SHARDWRIGHT_ASSIGN(uint64_t values, check_ocdbt(store, "", options, [&](const Error& finding) {
                       ++findings;
                       print_finding(output, finding);
                     }));
  if (output.json()) {
    json_line(output, Json{{"type", "summary"}, {"path", path}, {"keys", values}, {"findings", findings}});
  } else if (!output.quiet()) {
    output.line(findings == 0 ? output.styled("sound", Style::kGreen) + "  " + counted(values, "key")
                              : output.styled(counted(findings, "finding"), Style::kRed));
  }
  return findings == 0 ? kExitOk : kExitNo;
}

/// Makes the database that Orbax makes when all processes have written theirs: of references to them.
Result<int> merge(Output& output, Store& store, const std::string& path) {
  SHARDWRIGHT_ASSIGN(auto keys, store.list(""));
  std::vector<std::string> children;
  OcdbtConfig config;
  for (const auto& key : keys) {
    if (key == kOcdbtManifest)
      return fail(Code::kAlreadyExists, "there is a database already").at_path(store.describe(key));
    auto slash = key.find('/');
    if (key.starts_with("ocdbt.process_") && slash != key.npos && key.substr(slash + 1) == kOcdbtManifest)
      children.push_back(key.substr(0, slash + 1));
  }
  if (children.empty())
    return fail(Code::kNotFound, "no database of a process")
        .at_path(path)
        .with_expected("ocdbt.process_0/manifest.ocdbt");
  SHARDWRIGHT_ASSIGN(auto first, OcdbtDatabase::open(store, children.front()));
  config = first->manifest().config;
  config.numbered = false;
  config.uuid = xxh3_128(config.uuid).bytes;  // a database of its own
  OcdbtFile nodes{"", "d/" + xxh3_128(view_of("nodes of " + children.front())).hex()};
  OcdbtTreeBuilder builder(config, nodes);
  SHARDWRIGHT_TRY(merge_ocdbt(store, "", children, builder));
  SHARDWRIGHT_ASSIGN(auto version, builder.finish());
  version.generation = 1;
  SHARDWRIGHT_ASSIGN(Bytes manifest, make_ocdbt_manifest(config, version, nodes));
  SHARDWRIGHT_ASSIGN(auto transaction, store.begin(""));
  if (version.root) SHARDWRIGHT_TRY(write_object(*transaction, nodes.relative, builder.nodes()));
  SHARDWRIGHT_TRY(write_object(*transaction, kOcdbtManifest, manifest));
  Publication publication;
  if (version.root) publication.keys.push_back(nodes.relative);
  publication.keys.emplace_back(kOcdbtManifest);
  SHARDWRIGHT_TRY(transaction->commit(publication));
  if (output.json())
    json_line(output,
              Json{{"type", "summary"}, {"path", path}, {"keys", version.statistics.keys}, {"merged", children}});
  else if (!output.quiet())
    output.line(fmt::format("{} of {}", counted(version.statistics.keys, "key"), counted(children.size(), "database")));
  return kExitOk;
}

}  // namespace

Result<int> run_ocdbt(Invocation& invocation) {
  std::string action = invocation.arguments.text("ACTION"), path = invocation.arguments.text("PATH");
  std::filesystem::path directory(path);
  // The manifest may be named itself.
  if (directory.filename() == kOcdbtManifest) directory = directory.parent_path();
  SHARDWRIGHT_ASSIGN(auto store, open_file_store(directory.empty() ? "." : directory.string()));
  OcdbtOptions options;
  options.max_metadata_bytes = invocation.job.open.max_metadata_bytes;
  if (action == "merge") return merge(invocation.output, *store, path);
  if (action == "check") return check(invocation.output, *store, options, path);
  SHARDWRIGHT_ASSIGN(auto database, OcdbtDatabase::open(*store, "", options));
  SHARDWRIGHT_TRY(action == "ls" ? list_keys(invocation.output, *database) : dump(invocation.output, *database));
  return kExitOk;
}

}  // namespace shardwright::cli
