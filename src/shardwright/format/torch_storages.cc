#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "shardwright/base/text.h"
#include "shardwright/format/torch_objects.h"
#include "shardwright/format/torch_types.h"

namespace shardwright {
namespace {

using Value = PickleValue;

Error bad(std::string message) { return fail(Code::kCorrupt, std::move(message)); }

constexpr size_t kMaxKeyBytes = 100;  // numbers: of a record, or an address

bool is_number(std::string_view key) {
  return !key.empty() && std::ranges::all_of(key, [](char c) { return c >= '0' && c <= '9'; });
}

bool is_storage_module(std::string_view module) {
  return module == "torch" || module == "torch.cuda" || module == "torch.storage";
}

/// ('storage', class, key, location, elements[, view]) or ('module', class, file, source).
struct Id {
  std::string_view kind, key, class_name;
  const TorchStorageClass* known = nullptr;
  uint64_t elements = 0;
};

Result<Id> parse_id(const Pickle& pickle, Value value) {
  constexpr std::string_view kShape = "('storage', class, key, location, elements)";
  auto wrong = [&] { return bad("persistent id is not one of torch's").with_expected(std::string(kShape)); };
  Id id;
  if (!value.is(Value::kTuple)) return wrong();
  auto parts = pickle.items(value);
  if (parts.empty() || !parts[0].is(Value::kText)) return wrong();
  id.kind = pickle.text(parts[0]);
  if (id.kind == "module") return id;
  if (id.kind != "storage" || parts.size() < 5 || parts.size() > 6) return wrong();
  if (!parts[1].is(Value::kGlobal) || !parts[2].is(Value::kText) || !parts[4].is(Value::kInt)) return wrong();
  if (parts.size() == 6 && !parts[5].is(Value::kNone))
    return fail(Code::kUnsupported, "storage is a view of another, as releases before 0.4 wrote them")
        .with_hint("load it in torch and save it again");
  auto global = pickle.global(parts[1]);
  if (!is_storage_module(global.module)) return wrong();
  id.key = pickle.text(parts[2]);
  if (id.key.size() > kMaxKeyBytes)
    return bad("key of a storage is too long").with_found(json_quote(id.key.substr(0, kMaxKeyBytes)));
  id.class_name = global.name;
  id.known = torch_storage_class(global.name);
  if (parts[4].integer() < 0)
    return bad("storage of a negative size").with_found(fmt::format("{}", parts[4].integer()));
  id.elements = static_cast<uint64_t>(parts[4].integer());
  return id;
}

}  // namespace

Result<TorchStorages> TorchStorages::find(const Pickle& pickle, bool numbered) {
  TorchStorages out;
  std::unordered_map<std::string_view, uint32_t> known;
  for (const auto& value : pickle.persistents()) {
    auto& reference = out.references.emplace_back();
    SHARDWRIGHT_ASSIGN(Id id, parse_id(pickle, value));
    if (id.kind == "module") continue;
    if (numbered && !is_number(id.key)) return bad("key of a storage is no number").with_found(json_quote(id.key));
    auto bytes = id.known == nullptr ? std::optional(kUnknown) : checked_mul(id.elements, id.known->element_bytes);
    if (!bytes || (*bytes > INT64_MAX && *bytes != kUnknown))
      return bad(fmt::format("storage {} has an impossible size", json_quote(id.key)))
          .with_found(fmt::format("{} elements", id.elements));
    auto [at, fresh] = known.try_emplace(id.key, out.storages.size());
    if (fresh) out.storages.push_back({id.key, *bytes, id.elements});
    auto& storage = out.storages[at->second];
    if (storage.bytes == kUnknown) storage.bytes = *bytes;
    if (*bytes != kUnknown && storage.bytes != *bytes)
      return bad(fmt::format("two sizes are given for storage {}", json_quote(id.key)))
          .with_found(fmt::format("{} bytes", *bytes))
          .with_expected(fmt::format("{} bytes", storage.bytes));
    reference = {at->second, id.class_name, id.known == nullptr ? std::nullopt : std::optional(id.known->dtype),
                 id.elements};
  }
  return out;
}

}  // namespace shardwright
