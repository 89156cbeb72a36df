#include "shardwright/format/torch_legacy.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "shardwright/base/text.h"

namespace shardwright {
namespace {

using namespace std::string_view_literals;
using Value = PickleValue;

/// 0x1950a86a20f9469cfc6c, as its pickle begins and as its bytes.
constexpr auto kMagic = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"sv,
               kMagicPickle = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"sv;
constexpr int64_t kProtocol = 1001;
constexpr uint64_t kFirstRead = 256 * KiB, kReadFactor = 8;
constexpr uint64_t kCountBytes = 8;  // before each storage

bool is_tar(std::string_view head) { return head.size() >= 262 && head.substr(257, 5) == "ustar"; }
bool is_pickle(std::string_view head) { return head.size() >= 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5; }

struct Head {
  Pickle object, keys;
  uint64_t bytes = 0;  ///< of all five
};

/// kUnsupported: not torch's. kCorrupt: may be cut off.
Result<Head> parse_head(View bytes) {
  Head out;
  auto next = [&]() -> Result<Pickle> {
    auto pickle = Pickle::parse(bytes.subspan(out.bytes));
    if (pickle.ok())
      out.bytes += pickle->bytes_used();
    else if (pickle.error().offset != kNoOffset)
      pickle.error().offset += out.bytes;
    return pickle;
  };
  SHARDWRIGHT_ASSIGN(auto magic, next());
  if (!magic.root().is(Value::kBigInt) || magic.text(magic.root()) != kMagic)
    return fail(Code::kUnsupported, "a pickle, but not one of torch.save");
  SHARDWRIGHT_ASSIGN(auto version, next());
  if (!version.root().is(Value::kInt) || version.root().integer() != kProtocol)
    return fail(Code::kUnsupported, "a file of torch.save of another version")
        .with_expected(fmt::format("{}", kProtocol));
  SHARDWRIGHT_ASSIGN(auto system, next());
  if (system.root().is(Value::kDict)) {
    auto items = system.items(system.root());
    for (size_t i = 0; i + 1 < items.size(); i += 2)
      if (items[i].is(Value::kText) && system.text(items[i]) == "little_endian" &&
          !(items[i + 1].is(Value::kBool) && items[i + 1].at == 1))
        return fail(Code::kUnsupported, "storages are big-endian, in a file from before torch 1.6");
  }
  SHARDWRIGHT_ASSIGN(out.object, next());
  SHARDWRIGHT_ASSIGN(out.keys, next());
  return out;
}

/// Enough of the file's beginning for the pickles: more and more of it, until they are whole.
Result<Head> read_head(Store& store, const std::string& key, uint64_t size, uint64_t cap, Bytes& bytes) {
  for (uint64_t length = kFirstRead;; length *= kReadFactor) {
    uint64_t most = std::min(size, cap);
    bytes.resize(std::min(length, most));
    ReadOp op{key, 0, bytes};
    SHARDWRIGHT_TRY(store.read({&op, 1}));
    auto head = parse_head(bytes);
    if (head.ok() || head.error().code != Code::kCorrupt || bytes.size() == most) return head;
  }
}

/// Storages follow one another in the order of the keys; their sizes are those of the pickle.
Status place_storages(Store& store, const std::string& key, const Head& head, TorchFile& file) {
  auto corrupt = [&](std::string message) {
    return fail(Code::kCorrupt, std::move(message)).at_path(store.describe(key));
  };
  const auto& storages = file.storages.storages;
  auto root = head.keys.root();
  if (!root.is(Value::kList) || head.keys.items(root).size() != storages.size())
    return corrupt("list of storages is not that of the pickle").with_expected(fmt::format("{}", storages.size()));
  std::unordered_map<std::string_view, size_t> known;
  for (size_t i = 0; i < storages.size(); ++i) known.emplace(storages[i].key, i);
  file.places.resize(storages.size());
  Bytes counts(storages.size() * kCountBytes);
  std::vector<ReadOp> ops;
  std::vector<size_t> order;
  uint64_t at = head.bytes;
  for (const auto& item : head.keys.items(root)) {
    auto found = item.is(Value::kText) ? known.find(head.keys.text(item)) : known.end();
    if (found == known.end()) return corrupt("list of storages names one twice, or one that no tensor has");
    size_t index = found->second;
    known.erase(found);
    const auto& storage = storages[index];
    if (storage.bytes == kUnknown)
      return fail(Code::kUnsupported, "a storage whose size is not known").at_path(store.describe(key));
    ops.push_back({key, at, MutableView(counts).subspan(order.size() * kCountBytes, kCountBytes)});
    order.push_back(index);
    auto end = checked_add(at + kCountBytes, storage.bytes);
    if (!end || *end > file.size)
      return corrupt(fmt::format("file ends inside storage {}", json_quote(storage.key)))
          .with_found(fmt::format("{} bytes", file.size))
          .with_hint("the file may be truncated");
    file.places[index] = {at + kCountBytes, storage.bytes, storage.bytes, false};
    at = *end;
  }
  if (!ops.empty()) SHARDWRIGHT_TRY(store.read(ops));
  for (size_t i = 0; i < order.size(); ++i) {
    const auto& storage = storages[order[i]];
    if (auto count = load_le<uint64_t>(View(counts).subspan(i * kCountBytes)); count != storage.elements)
      return corrupt(fmt::format("storage {} is not as long as the pickle says", json_quote(storage.key)))
          .at_offset(ops[i].offset)
          .with_found(fmt::format("{} elements", count))
          .with_expected(fmt::format("{}", storage.elements));
  }
  return {};
}

}  // namespace

bool is_torch_legacy(std::string_view head) { return head.starts_with(kMagicPickle); }
bool may_be_torch_legacy(std::string_view head) { return is_tar(head) || is_pickle(head); }

Result<TorchFile> read_torch_legacy(Store& store, const std::string& key, const OpenOptions& options) {
  auto path = store.describe(key);
  auto located = [&](Error error) {
    if (error.path.empty()) error.path = path;
    return error;
  };
  SHARDWRIGHT_ASSIGN(auto size, store.size(key));
  TorchFile file;
  file.size = size.value_or(0);
  auto cap = std::min(options.max_metadata_bytes, kMaxTorchPickle);
  auto head = read_head(store, key, file.size, cap, file.bytes);
  if (is_tar(text_of(file.bytes)))
    return fail(Code::kUnsupported, "a tar archive, as torch wrote before 0.1.10")
        .at_path(path)
        .with_hint("load it in torch and save it again");
  if (!head.ok()) return located(std::move(head.error()));
  file.pickle = std::move(head->object);
  auto storages = TorchStorages::find(file.pickle, /*numbered=*/false);
  if (!storages.ok()) return located(std::move(storages.error()));
  file.storages = std::move(*storages);
  SHARDWRIGHT_TRY(place_storages(store, key, *head, file));
  return file;
}

}  // namespace shardwright
