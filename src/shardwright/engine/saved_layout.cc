#include "shardwright/engine/saved_layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "shardwright/base/json.h"
#include "shardwright/base/text.h"
#include "shardwright/format/orbax_draft.h"
#include "shardwright/layout/orbax_sharding.h"

namespace shardwright {
namespace {

/// All entries that name a mesh, under the catalogue's names.
Result<std::vector<OrbaxSharding>> noted_shardings(const Json& items, std::vector<std::string>& remarks) {
  std::vector<OrbaxSharding> out;
  if (!items.is_object()) return out;
  for (const auto& [item, kept] : items.items()) {
    const Json& entries = json_member(kept, "sharding");
    if (!entries.is_object()) continue;
    for (const auto& [key, text] : entries.items()) {
      auto name = from_base64url(key);
      if (!name || !text.is_string()) {
        remarks.push_back("an entry of _sharding is not one: " + json_quote(key.substr(0, 100)));
        continue;
      }
      std::string whole = item.empty() ? *name : item + "/" + *name;
      auto sharding = parse_orbax_sharding(whole, text.get_ref<const std::string&>());
      if (!sharding.ok())
        remarks.push_back(sharding.error().text());
      else if (sharding->mesh)
        out.push_back(std::move(*sharding));
    }
  }
  return out;
}

}  // namespace

TensorToLay tensor_to_lay(const Catalog& catalog, TensorId id) {
  auto spec = catalog.spec(id);
  return {spec.name, spec.dtype, spec.shape, catalog.same_as(id) != id};
}

Result<std::optional<LayoutMap>> saved_layout(const Catalog& catalog, std::vector<std::string>& remarks) {
  const Value* value = catalog.value(kOrbaxValue);
  if (value == nullptr) return std::optional<LayoutMap>();
  SHARDWRIGHT_ASSIGN(Json kept, parse_json(value->data));
  SHARDWRIGHT_ASSIGN(auto shardings, noted_shardings(json_member(kept, "items"), remarks));
  std::vector<std::pair<const DeviceMesh*, size_t>> meshes;  // a handful
  for (const auto& sharding : shardings) {
    auto same = [&](const auto& known) { return *known.first == *sharding.mesh; };
    auto known = std::ranges::find_if(meshes, same);
    if (known == meshes.end()) known = meshes.insert(known, {&*sharding.mesh, 0});
    ++known->second;
  }
  if (meshes.empty()) return std::optional<LayoutMap>();
  auto most = std::ranges::max_element(meshes, {}, [](const auto& mesh) { return mesh.second; });
  LayoutMap map(*most->first, LayoutMap::Match::kExact);
  for (auto& sharding : shardings)
    if (*sharding.mesh == map.mesh()) SHARDWRIGHT_TRY(map.set(sharding.name, std::move(sharding.layout)));
  if (meshes.size() > 1)
    remarks.push_back(fmt::format("saved on {} meshes; {} of {} arrays were on {}", meshes.size(), most->second,
                                  shardings.size(), map.mesh().text()));
  return std::optional(std::move(map));
}

Result<std::vector<WriteOptions::Sharding>> shardings_by(const LayoutMap& map, const Catalog& tensors) {
  std::vector<WriteOptions::Sharding> out;
  LayoutFinder finder(map);
  for (TensorId id = 0; id < tensors.size(); ++id) {
    auto spec = tensors.spec(id);
    SHARDWRIGHT_ASSIGN(auto laid, finder.lay_out(spec.name, spec.shape));
    if (!laid.grid.even())
      return fail(Code::kInvalidArgument, "shards of different shapes cannot be noted")
          .at_tensor(std::string(spec.name));
    OrbaxSharding note{std::string(spec.name), map.mesh(), map.layout_of(laid.rule), ""};
    SHARDWRIGHT_ASSIGN(auto text, orbax_sharding_text(note));
    out.push_back({std::move(text), laid.grid.shard_shape()});
  }
  return out;
}

}  // namespace shardwright
