#include "shardwright/layout/partition_spec.h"

namespace shardwright {
namespace {

Error bad(const Json& found, const std::string& where) {
  return fail(Code::kInvalidArgument, "no mesh axes in " + where)
      .with_found(json_text(found).substr(0, 200))
      .with_expected(R"(one entry per dimension: an axis "model", several ["data", "model"], or null)");
}

}  // namespace

Json partition_spec_json(const TensorLayout& layout) {
  Json spec = Json::array();
  for (const auto& axes : layout.dims) {
    if (axes.empty())
      spec.push_back(nullptr);
    else if (axes.size() == 1)
      spec.push_back(axes[0]);
    else
      spec.push_back(Json(axes));
  }
  return spec;
}

Result<TensorLayout> parse_partition_spec(const Json& spec) {
  if (!spec.is_array() || spec.size() > kMostDimensions) return bad(spec, "a partition spec");
  TensorLayout layout;
  for (const Json& entry : spec) {
    std::string where = "dimension " + std::to_string(layout.dims.size()) + " of a partition spec";
    auto& axes = layout.dims.emplace_back();
    if (entry.is_string()) {
      if (entry != "") axes.push_back(entry.get<std::string>());
    } else if (entry.is_array()) {
      for (const Json& axis : entry) {
        if (!axis.is_string() || axis == "") return bad(entry, where);
        axes.push_back(axis.get<std::string>());
      }
    } else if (!entry.is_null()) {
      return bad(entry, where);
    }
  }
  return layout;
}

}  // namespace shardwright
