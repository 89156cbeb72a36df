#include <fmt/format.h>

#include <filesystem>

#include "shardwright/codec/codec.h"
#include "shardwright/engine/manifest.h"
#include "shardwright/engine/memory_watch.h"

namespace shardwright {
namespace {

/// The manifest that is asked for: beside the checkpoint, or another file.
Result<std::optional<Manifest>> manifest_of(const Checkpoint& checkpoint, const std::string& against) {
  auto entry = manifest_entry(checkpoint);
  if (against.empty()) return read_manifest(*checkpoint.store, kManifestName, entry);
  std::filesystem::path path(against);
  auto parent = path.parent_path();
  SHARDWRIGHT_ASSIGN(auto store, open_file_store(parent.empty() ? "." : parent.string()));
  SHARDWRIGHT_ASSIGN(auto manifest, read_manifest(*store, path.filename().string(), entry));
  if (!manifest)
    return fail(Code::kNotFound, "no manifest of this checkpoint there")
        .at_path(against)
        .with_expected("an entry for '" + entry + "'");
  return manifest;
}

using Found = std::function<void(const Error&)>;

void compare_content(const Checkpoint& checkpoint, const Manifest& now, const Manifest& then, const Found& found) {
  for (const auto& [name, row] : then.content) {
    auto at = now.content.find(name);
    if (at == now.content.end()) {
      if (!checkpoint.catalog.find(name))
        found(fail(Code::kCorrupt, "the manifest has a tensor that the checkpoint lacks")
                  .at_path(checkpoint.path)
                  .at_tensor(name));
      continue;
    }
    if (at->second.dtype != row.dtype || at->second.shape != row.shape) {
      found(fail(Code::kCorrupt, "dtype or shape differ from the manifest")
                .at_path(checkpoint.path)
                .at_tensor(name)
                .with_found(fmt::format("{} {}", dtype_row(at->second.dtype).name, shape_text(at->second.shape)))
                .with_expected(fmt::format("{} {}", dtype_row(row.dtype).name, shape_text(row.shape))));
    } else if (at->second.hash != row.hash) {
      found(fail(Code::kCorrupt, "values differ from the manifest")
                .at_path(checkpoint.path)
                .at_tensor(name)
                .with_found("content hash " + at->second.hash)
                .with_expected(row.hash));
    }
  }
  if (then.content.empty()) return;  // of a step: it has sums of what is stored, taken while it was written
  for (const auto& [name, row] : now.content)
    if (!then.content.contains(name))
      found(fail(Code::kCorrupt, "the manifest lacks this tensor").at_path(checkpoint.path).at_tensor(name));
}

/// Stored ranges say where damage lies; only those still laid out as they were can be compared.
void compare_stored(const Checkpoint& checkpoint, const Manifest& now, const Manifest& then, const Found& found) {
  std::map<std::tuple<std::string, uint64_t, uint64_t>, uint32_t> sums;
  for (const auto& sum : then.stored) sums[{sum.file, sum.offset, sum.length}] = sum.crc32c;
  for (const auto& sum : now.stored) {
    auto at = sums.find({sum.file, sum.offset, sum.length});
    if (at != sums.end() && at->second != sum.crc32c)
      found(fail(Code::kCorrupt, fmt::format("{} stored bytes changed", sum.length))
                .at_path(checkpoint.store->describe(sum.file))
                .at_offset(sum.offset)
                .with_found(fmt::format("CRC-32C {:08x}", sum.crc32c))
                .with_expected(fmt::format("{:08x}", at->second)));
  }
}

/// Tensors whose values nobody here could decode.
void check_codecs(const Checkpoint& checkpoint, const Found& found) {
  const Catalog& catalog = checkpoint.catalog;
  for (TensorId id = 0; id < catalog.size(); ++id) {
    if (catalog.flat(id) || catalog.piece_count(id) == 0 || catalog.same_as(id) != id) continue;
    for (const Piece& piece : catalog.pieces(id)) {
      const Encoding& encoding = catalog.encoding(piece.encoding);
      auto decoder = make_decoder(encoding.chain, encoding.decoded_bytes);
      if (decoder.ok()) continue;
      found(std::move(decoder.error()).at_path(checkpoint.path).at_tensor(std::string(catalog.spec(id).name)));
      break;
    }
  }
}

/// What keeps a path from being looked at is an error, not a finding.
bool is_finding(const Error& error) { return error.code == Code::kCorrupt || error.code == Code::kUnsupported; }

Result<VerifySummary> verify(const VerifyRequest& request, const JobOptions& options, const Found& found) {
  VerifySummary summary;
  auto tell = [&](const Error& error) {
    ++summary.findings;
    found(error);
  };
  std::vector<Error> findings;
  OpenOptions open = options.open;
  open.findings = &findings;
  auto checkpoint = open_checkpoint(request.path, open);
  for (const auto& finding : findings) tell(finding);
  if (!checkpoint.ok()) {
    std::error_code unknown;  // a path that cannot be looked at is not there
    bool missing = checkpoint.error().code == Code::kNotFound && !std::filesystem::exists(request.path, unknown);
    if (missing || (!is_finding(checkpoint.error()) && checkpoint.error().code != Code::kNotFound))
      return std::move(checkpoint.error());
    tell(checkpoint.error());
    return summary;
  }
  summary.tensors = checkpoint->catalog.size();
  bool bytes = request.full || !request.against.empty();
  if (!bytes) {
    check_codecs(*checkpoint, tell);
    return summary;
  }
  auto manifest = manifest_of(*checkpoint, request.against);
  if (!manifest.ok()) {
    if (!is_finding(manifest.error())) return std::move(manifest.error());
    tell(manifest.error());
  }
  bool compare = manifest.ok() && manifest->has_value();
  std::vector<Error> failed;
  SHARDWRIGHT_ASSIGN(auto now, survey(*checkpoint, /*stored=*/compare, options, &failed));
  for (const auto& error : failed) tell(error);
  if (checkpoint->format->check_sums != nullptr) {
    findings.clear();
    SHARDWRIGHT_TRY(checkpoint->format->check_sums(*checkpoint->store, checkpoint->at, open));
    for (const auto& finding : findings) tell(finding);
  }
  summary.bytes_checked = checkpoint->store->bytes_read();
  summary.manifest = compare;
  if (compare) {
    compare_stored(*checkpoint, now, **manifest, tell);
    compare_content(*checkpoint, now, **manifest, tell);
  }
  return summary;
}

}  // namespace

Result<VerifySummary> verify_checkpoint(const VerifyRequest& request, const JobOptions& options, const Found& found) {
  MemoryWatch watch;
  JobOptions watched = options;
  watched.progress = [&](std::string_view phase, uint64_t done, uint64_t total) {
    watch.sample();
    return !options.progress || options.progress(phase, done, total);
  };
  auto summary = verify(request, watched, found);
  watch.sample();
  if (summary.ok()) summary->peak_memory_bytes = watch.peak();
  return summary;
}

Result<std::vector<TensorHash>> hash_checkpoint(const std::string& path, bool write, const JobOptions& options) {
  SHARDWRIGHT_ASSIGN(auto checkpoint, open_checkpoint(path, options.open));
  SHARDWRIGHT_ASSIGN(auto hashes, survey(checkpoint, /*stored=*/write, options));
  if (write) SHARDWRIGHT_TRY(write_manifest(checkpoint, hashes, options));
  std::vector<TensorHash> out;
  for (TensorId id = 0; id < checkpoint.catalog.size(); ++id) {
    auto at = hashes.content.find(std::string(checkpoint.catalog.spec(id).name));
    if (at != hashes.content.end()) out.push_back(at->second);
  }
  return out;
}

}  // namespace shardwright
