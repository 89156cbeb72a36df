#include "shardwright/format/hub_index.h"

#include <algorithm>
#include <map>

#include "shardwright/base/text.h"
#include "shardwright/format/hub_index_full_parser.h"
#include "shardwright/format/json_scan.h"

namespace shardwright {
namespace {

using detail::JsonScan;

constexpr uint64_t kMaxMetadata = 32 * MiB;

/// What both parsers feed: interns file names, checks them, remembers where the metadata is.
class Collector {
 public:
  Collector(std::string_view text, HubIndex& out, const HubIndexEntry& entry, const HubKind& kind)
      : text_(text), out_(out), entry_(entry), kind_(kind) {}

  Status add(std::string_view name, std::string_view file) {
    if (out_.files.empty() || file != out_.files[last_]) {  // neighbours mostly share a file
      auto known = ids_.find(file);
      if (known == ids_.end()) {
        SHARDWRIGHT_TRY(check(name, file));
        known = ids_.emplace(std::string(file), static_cast<uint32_t>(out_.files.size())).first;
        out_.files.emplace_back(file);
      }
      last_ = known->second;
    }
    ++out_.entries;
    out_.name_bytes += name.size();
    return entry_(name, last_);
  }

  Status finish(std::string_view metadata) {
    if (metadata.empty()) return {};
    uint64_t offset = static_cast<uint64_t>(metadata.data() - text_.data());
    if (metadata.size() > kMaxMetadata)
      return fail(Code::kUnsupported, "metadata is too large")
          .at_offset(offset)
          .with_found(format_bytes(metadata.size()))
          .with_expected("at most " + format_bytes(kMaxMetadata));
    auto json = parse_json(metadata);
    if (!json.ok()) {
      json.error().message = "metadata: " + json.error().message;
      json.error().offset = offset + (json.error().offset == kNoOffset ? 0 : json.error().offset);
      return std::move(json.error());
    }
    out_.metadata = std::move(*json);
    return {};
  }

 private:
  Status check(std::string_view name, std::string_view file) const {
    auto bad = [&](std::string what, std::string expected) {
      return fail(Code::kCorrupt, std::move(what))
          .at_tensor(std::string(name))
          .with_found(json_quote(file.substr(0, 200)))
          .with_expected(std::move(expected));
    };
    if (!is_safe_relative_path(file))
      return bad("index names a file outside its directory", "a relative path without '..'");
    if (!file.ends_with(kind_.ending))
      return bad("index names a file that is no " + std::string(kind_.format) + " file",
                 "a name that ends in " + std::string(kind_.ending));
    return {};
  }

  std::string_view text_;
  HubIndex& out_;
  const HubIndexEntry& entry_;
  const HubKind& kind_;
  std::map<std::string, uint32_t, std::less<>> ids_;
  uint32_t last_ = 0;
};

struct FastResult {
  bool plain = false;  ///< false: the full parser decides
  Status status{};
};

FastResult scan_map(JsonScan& scan, Collector* into) {
  if (!scan.symbol('{')) return {};
  if (scan.symbol('}')) return {true};
  do {
    std::string_view name, file;
    if (!scan.string(name) || !scan.symbol(':') || !scan.string(file)) return {};
    if (into == nullptr) continue;
    if (auto status = into->add(name, file); !status.ok()) return {true, std::move(status)};
  } while (scan.symbol(','));
  return {scan.symbol('}')};
}

/// {"metadata": {...}, "weight_map": {...}} in either order, metadata optional. Without a collector it only tells whether the text is plain.
FastResult scan_index(std::string_view text, Collector* into, std::string_view* metadata) {
  JsonScan scan(text);
  bool map_seen = false;
  if (!scan.symbol('{')) return {};
  do {
    std::string_view key;
    if (!scan.string(key) || !scan.symbol(':')) return {};
    if (key == "weight_map" && !map_seen) {
      map_seen = true;
      auto map = scan_map(scan, into);
      if (!map.plain || !map.status.ok()) return map;
    } else if (key == "metadata" && metadata->empty()) {
      if (!scan.raw_object(*metadata)) return {};
    } else {
      return {};
    }
  } while (scan.symbol(','));
  return {map_seen && scan.symbol('}') && scan.at_end()};
}

/// Two passes: the first says whether there is a weight_map or the text is the map itself, the second feeds the entries.
Status parse_full(std::string_view text, Collector& into, HubIndex& out, std::string_view* metadata) {
  HubIndexFullParser look(text, false, [](std::string_view, std::string_view) { return Status(); });
  SHARDWRIGHT_TRY(look.run());
  bool bare = !look.has_map();
  if (bare && !look.all_strings())
    return fail(Code::kCorrupt, "index has no weight_map").with_expected(R"({"metadata": {...}, "weight_map": {...}})");
  out.odd_metadata = !bare && look.odd_metadata();
  if (!bare) *metadata = look.metadata();
  return HubIndexFullParser(text, bare,
                            [&](std::string_view name, std::string_view file) { return into.add(name, file); })
      .run();
}

/// As Python's json.dumps with ensure_ascii.
std::string ascii_string(std::string_view text) {
  auto plain = [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; };
  if (std::all_of(text.begin(), text.end(), plain)) return '"' + std::string(text) + '"';
  return Json(text).dump(-1, ' ', true, Json::error_handler_t::replace);
}

}  // namespace

Result<HubIndex> parse_hub_index_with(HubIndexParser parser, std::string_view text, const HubIndexEntry& entry,
                                      const HubKind& kind) {
  if (!detail::is_ascii(text) && !is_utf8(text)) return fail(Code::kCorrupt, "index is not UTF-8").at_offset(0);
  HubIndex out;
  Collector into(text, out, entry, kind);
  std::string_view metadata;
  if (parser == HubIndexParser::kFast) {
    auto fast = scan_index(text, &into, &metadata);
    if (!fast.plain) return fail(Code::kCorrupt, "index is not in the plain form");
    SHARDWRIGHT_TRY(std::move(fast.status));
  } else {
    SHARDWRIGHT_TRY(parse_full(text, into, out, &metadata));
  }
  SHARDWRIGHT_TRY(into.finish(metadata));
  return out;
}

Result<HubIndex> parse_hub_index(std::string_view text, const HubIndexEntry& entry, const HubKind& kind) {
  std::string_view ignored;
  bool plain = scan_index(text, nullptr, &ignored).plain;  // a pass of its own: no entry may reach the caller twice
  return parse_hub_index_with(plain ? HubIndexParser::kFast : HubIndexParser::kFull, text, entry, kind);
}

HubIndexWriter::HubIndexWriter(const Json& metadata) {
  // Dumped inside an object, so that nlohmann indents it as Python does; then the closing brace makes room for the map.
  Json whole = Json::object();
  whole["metadata"] = metadata;
  out_ = whole.dump(2, ' ', true, Json::error_handler_t::replace);
  out_.resize(out_.size() - 2);
  out_ += ",\n  \"weight_map\": {";
}

void HubIndexWriter::add(std::string_view name, std::string_view file) {
  out_ += first_ ? "\n    " : ",\n    ";
  first_ = false;
  out_ += ascii_string(name) + ": " + ascii_string(file);
}

Bytes HubIndexWriter::finish() {
  out_ += first_ ? "}\n}" : "\n  }\n}";
  return bytes_of(out_);
}

}  // namespace shardwright
