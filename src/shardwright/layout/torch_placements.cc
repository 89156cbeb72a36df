#include "shardwright/layout/torch_placements.h"

#include <fmt/format.h>

#include <optional>

#include "shardwright/layout/text_cursor.h"

namespace shardwright {
namespace {

struct Placement {
  std::optional<int64_t> dim;  ///< none: replicated
  int64_t split_factor = 1;
};

class PlacementParser {
 public:
  explicit PlacementParser(std::string_view text) : cursor_(text) {}

  Result<std::vector<Placement>> parse() {
    std::string_view close = cursor_.take("(") ? ")" : cursor_.take("[") ? "]" : "";
    if (close.empty()) return wrong();
    std::vector<Placement> out;
    while (!cursor_.take(close)) {
      SHARDWRIGHT_ASSIGN(auto placement, one());
      out.push_back(placement);
      if (cursor_.take(",")) continue;  // Python's tuple of one ends in a comma
      if (!cursor_.take(close)) return wrong();
      break;
    }
    if (!cursor_.done()) return wrong();
    return out;
  }

 private:
  Error wrong() const { return cursor_.error("DTensor placements", "(Shard(dim=0), Replicate())"); }

  Result<Placement> one() {
    auto word = cursor_.take_word();
    if (!word) return wrong();
    if (*word == "R") return Placement{};
    if (*word == "Replicate") {
      if (!cursor_.take("(") || !cursor_.take(")")) return wrong();
      return Placement{};
    }
    if (*word == "Partial" || *word == "P" || *word == "_NormPartial" || *word == "MaskPartial")
      return fail(Code::kUnsupported, "a partial sum is no layout of a stored tensor")
          .with_hint("redistribute the tensor to Shard or Replicate first");
    bool strided = *word == "_StridedShard" || *word == "_S";
    if ((!strided && *word != "Shard" && *word != "S") || !cursor_.take("(")) return wrong();
    (void)cursor_.take("dim=");
    Placement out;
    out.dim = cursor_.take_number();
    if (!out.dim || *out.dim >= static_cast<int64_t>(kMostDimensions)) return wrong();
    if (strided) {
      if (!cursor_.take(",")) return wrong();
      (void)(cursor_.take("sf=") || cursor_.take("split_factor="));
      auto factor = cursor_.take_number();
      if (!factor || *factor < 1) return wrong();
      out.split_factor = *factor;
    }
    if (!cursor_.take(")")) return wrong();
    return out;
  }

  TextCursor cursor_;
};

}  // namespace

std::string placements_text(const DeviceMesh& mesh, const TensorLayout& layout) {
  std::vector<std::string> out(mesh.rank(), "Replicate()");
  for (size_t d = 0; d < layout.dims.size(); ++d) {
    const auto& axes = layout.dims[d];
    for (size_t i = 0; i < axes.size(); ++i) {
      size_t axis = *mesh.axis(axes[i]);
      int64_t factor = 1;
      for (size_t j = 0; j < i; ++j) {
        size_t major = *mesh.axis(axes[j]);
        if (major > axis) factor *= mesh.shape()[major];
      }
      out[axis] =
          factor == 1 ? fmt::format("Shard(dim={})", d) : fmt::format("_StridedShard(dim={}, sf={})", d, factor);
    }
  }
  return fmt::format("({}{})", fmt::join(out, ", "), out.size() == 1 ? "," : "");
}

Result<TensorLayout> parse_placements(std::string_view text, const DeviceMesh& mesh) {
  SHARDWRIGHT_ASSIGN(auto placements, PlacementParser(text).parse());
  if (placements.size() != mesh.rank())
    return fail(Code::kInvalidArgument, "there is one placement per mesh axis")
        .with_found(fmt::format("{} placements", placements.size()))
        .with_expected(fmt::format("{} for {}", mesh.rank(), mesh.text()));
  TensorLayout layout;
  layout.uneven = Uneven::kChunk;
  for (size_t axis = placements.size(); axis-- > 0;) {
    const Placement& placement = placements[axis];
    if (!placement.dim) continue;
    layout.dims.resize(std::max(layout.dims.size(), static_cast<size_t>(*placement.dim) + 1));
    // From the last mesh axis to the first, each goes behind those that its split factor is the product of.
    auto& axes = layout.dims[*placement.dim];
    int64_t product = 1;
    auto at = axes.begin();
    for (; at != axes.end() && product != placement.split_factor; ++at) product *= mesh.shape()[*mesh.axis(*at)];
    if (product != placement.split_factor)
      return fail(Code::kInvalidArgument,
                  fmt::format("no order of the mesh axes gives split factor {}", placement.split_factor))
          .with_found("'" + std::string(text.substr(0, 200)) + "'");
    axes.insert(at, mesh.axis_names()[axis]);
  }
  return layout;
}

}  // namespace shardwright
