#include "shardwright/format/hub_set.h"
#include "shardwright/format/torch_draft.h"
#include "shardwright/format/torch_fill.h"

namespace shardwright {
namespace {

Confidence sniff(Store& store, std::string_view at) {
  if (is_hub_index_name(at, kTorchHub)) return Confidence::kCertain;
  if (!at.empty()) return sniff_torch_file(store, at);
  // Other files may be called .bin too: a directory is torch's by the standard names only, or an index.
  auto set = find_hub_set(store, at, kTorchHub);
  bool standard = set.ok() && (!set->index.empty() || set->single == kTorchHub.file());
  return standard ? Confidence::kMagic : Confidence::kNo;
}

Result<Catalog> open_file(Store& store, const std::string& key, bool directory, const OpenOptions& options) {
  TorchFill fill(store, options);
  fill.builder.set_members({key}, 1);
  if (auto status = fill.add(key); !status.ok()) {
    if (status.error().code != Code::kCorrupt && status.error().code != Code::kUnsupported)
      return std::move(status.error());
    SHARDWRIGHT_TRY(options.report(std::move(status.error())));
  }
  SHARDWRIGHT_TRY(fill.finish());
  return build_hub_file(fill, store, key, directory);
}

Result<Catalog> open(Store& store, std::string_view at, const OpenOptions& options) {
  TorchFill fill(store, options);
  return open_hub(store, at, kTorchHub, fill, open_file, options);
}

std::vector<std::string> members(Store& store, std::string_view at) { return hub_set_members(store, at, kTorchHub); }

Result<std::pair<std::string, Bytes>> rebuild_index(Store& store, std::string_view at, const OpenOptions& options) {
  auto list = [&](std::span<const std::string> keys,
                  const std::function<void(size_t, std::string_view)>& seen) -> Result<uint64_t> {
    TorchFill fill(store, options);
    auto done = [](size_t, Status status) { return status; };
    SHARDWRIGHT_TRY(
        fill.add_files(keys, [&](size_t file, std::string_view name, TensorId) { seen(file, name); }, done));
    SHARDWRIGHT_TRY(fill.finish());
    SHARDWRIGHT_ASSIGN(Catalog catalog, fill.builder.build());
    return catalog.total_bytes();
  };
  return rebuild_hub_index(store, at, kTorchHub, list);
}

Status check_sums(Store& store, std::string_view at, const OpenOptions& options) {
  for (const auto& key : members(store, at))
    if (!is_hub_index_name(key, kTorchHub)) SHARDWRIGHT_TRY(check_torch_sums(store, key, options));
  return {};
}

}  // namespace

const Format kTorch = {
    .name = "torch",
    .description = "PyTorch files: one of torch.save, or shards with an index; pickles are read, never run",
    .extensions = "*.pt, *.pth, *.bin, *.bin.index.json, directory with pytorch_model.bin[.index.json]",
    .can = {.write = true, .sharded = true, .ties = true, .metadata = false, .subbyte = true},
    .sniff = sniff,
    .open = open,
    .members = members,
    .draft = draft_torch,
    .rebuild_index = rebuild_index,
    .check_sums = check_sums,
};

}  // namespace shardwright
