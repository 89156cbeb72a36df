#include "shardwright/format/index_files.h"

#include "shardwright/format/hdf5_superblock.h"
#include "shardwright/format/hub_index.h"
#include "shardwright/format/keras_index.h"
#include "shardwright/format/safetensors_file.h"
#include "shardwright/format/torch_file.h"

namespace shardwright {
namespace {

Result<IndexFiles> parse(const std::string& key, std::string_view text) {
  IndexFiles out;
  if (key.ends_with(".weights.json")) {
    SHARDWRIGHT_ASSIGN(auto index, parse_keras_index(text));
    out.groups = true;
    out.files = std::move(index.files);
    for (auto& entry : index.entries) out.entries.push_back({std::move(entry.group), std::move(entry.files)});
    return out;
  }
  SHARDWRIGHT_ASSIGN(auto index, parse_hub_index(
                                     text,
                                     [&](std::string_view name, uint32_t file) -> Status {
                                       out.entries.push_back({std::string(name), {file}});
                                       return {};
                                     },
                                     key.ends_with(kTorchHub.index_ending) ? kTorchHub : kSafetensorsHub));
  out.files = std::move(index.files);
  return out;
}

/// What the header says is missing is missing; anything else that is wrong with it means that this is another file.
ShardState judged(ShardState state, const Result<uint64_t>& expected) {
  if (!expected.ok()) {
    state.kind = ShardState::kWrong;
    state.problem = expected.error().text();
    return state;
  }
  state.expected_bytes = *expected;
  state.kind = *expected == kUnknown || state.size_bytes < *expected ? ShardState::kCutShort : ShardState::kWhole;
  return state;
}

/// kUnknown: the file ends within its header.
Result<uint64_t> safetensors_bytes(Store& store, const std::string& key, uint64_t size, uint64_t header_cap) {
  if (size < 8) return kUnknown;
  Bytes head(8);
  ReadOp op{key, 0, head};
  SHARDWRIGHT_TRY(store.read({&op, 1}));
  auto length = load_le<uint64_t>(head);
  if (length <= kMaxSafetensorsHeader && size - 8 < length) return kUnknown;
  SHARDWRIGHT_ASSIGN(auto file, read_safetensors_file(store, key, header_cap));
  SHARDWRIGHT_ASSIGN(uint64_t data, file.header.visit([](const SafetensorsEntry&) { return Status(); },
                                                      [](Error error) { return Status(std::move(error)); }));
  return file.data_begin() + data;
}

/// A file of torch.save does not begin with its length: it is whole when it can be read, and else cut short when it begins like one.
Result<uint64_t> torch_bytes(Store& store, const std::string& key, uint64_t size, uint64_t pickle_cap) {
  OpenOptions options;
  options.max_metadata_bytes = pickle_cap;
  if (size == 0) return kUnknown;
  auto file = read_torch_file(store, key, options);
  if (file.ok()) return size;
  if (file.error().code == Code::kCorrupt && sniff_torch_file(store, key) >= Confidence::kMagic) return kUnknown;
  return std::move(file.error());
}

Result<uint64_t> hdf5_bytes(Store& store, const std::string& key, uint64_t size) {
  if (size < 64) return kUnknown;
  SHARDWRIGHT_ASSIGN(auto region, hdf5_region(store, key));
  SHARDWRIGHT_ASSIGN(auto superblock, find_hdf5_superblock(region));
  if (!superblock) return fail(Code::kCorrupt, "not an HDF5 file");
  return superblock->end;
}

}  // namespace

Result<IndexFiles> read_index_files(Store& store, const std::string& key, uint64_t cap) {
  SHARDWRIGHT_ASSIGN(auto bytes, read_object(store, key, cap));
  auto parsed = parse(key, text_of(bytes));
  if (!parsed.ok() && parsed.error().path.empty()) parsed.error().path = store.describe(key);
  return parsed;
}

Result<ShardState> shard_state(Store& store, const std::string& key, uint64_t header_cap) {
  SHARDWRIGHT_ASSIGN(auto size, store.size(key));
  ShardState state;
  if (!size) return state;
  state.size_bytes = *size;
  auto expected = key.ends_with(".safetensors")     ? safetensors_bytes(store, key, *size, header_cap)
                  : key.ends_with(kTorchHub.ending) ? torch_bytes(store, key, *size, header_cap)
                                                    : hdf5_bytes(store, key, *size);
  bool of_content =
      expected.ok() || expected.error().code == Code::kCorrupt || expected.error().code == Code::kUnsupported;
  if (!of_content) return std::move(expected.error());
  return judged(std::move(state), expected);
}

}  // namespace shardwright
