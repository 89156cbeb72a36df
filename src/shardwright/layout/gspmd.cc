#include "shardwright/layout/gspmd.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "shardwright/layout/text_cursor.h"

namespace shardwright {
namespace {

/// <=[reshape]T(perm): 0, 1, 2, ... in the shape `reshape`, transposed, and read in row-major order.
struct Iota {
  std::vector<int64_t> reshape;
  std::vector<size_t> perm;
};

/// As XLA prints it: dimensions of size 1 dropped, neighbours that stay neighbours merged.
Iota canonical(const DeviceMesh& mesh, std::span<const size_t> perm) {
  std::vector<std::vector<size_t>> groups;
  size_t last = 0;
  for (size_t axis : perm) {
    if (mesh.shape()[axis] == 1) continue;
    auto skipped = mesh.shape().subspan(last + 1, axis > last ? axis - last - 1 : 0);
    bool next =
        !groups.empty() && axis > last && std::all_of(skipped.begin(), skipped.end(), [](int64_t n) { return n == 1; });
    if (!next) groups.emplace_back();
    groups.back().push_back(axis);
    last = axis;
  }
  std::vector<size_t> order(groups.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return groups[a][0] < groups[b][0]; });
  Iota out;
  out.perm.resize(groups.size());
  for (size_t i = 0; i < order.size(); ++i) {
    int64_t size = 1;
    for (size_t axis : groups[order[i]]) size *= mesh.shape()[axis];
    out.reshape.push_back(size);
    out.perm[order[i]] = i;
  }
  return out;
}

/// Which tile, in row-major order, each position holds.
struct Tiles {
  std::vector<int64_t> dims;  ///< of the tensor
  int64_t replicas = 1;       ///< positions with the same tile: the last, unsharded tile dimension
  std::vector<int64_t> tile_of;
};

class GspmdParser {
 public:
  GspmdParser(std::string_view text, const DeviceMesh& mesh) : cursor_(text), mesh_(mesh) {}

  Result<Tiles> parse() {
    Tiles tiles;
    tiles.replicas = mesh_.size();
    tiles.tile_of.assign(mesh_.size(), 0);
    if (!cursor_.take("{")) return wrong();
    for (std::string_view other : {"manual", "unknown", "{", "mesh", "unreduced"})
      if (cursor_.take(other))
        return fail(Code::kUnsupported, "this kind of sharding says no place for every part: " + std::string(other));
    if (cursor_.take("replicated")) {
      if (!cursor_.take("}") || !cursor_.done()) return wrong();
      return tiles;
    }
    if (cursor_.take("maximal device=")) {
      auto device = cursor_.take_number();
      if (!device || !cursor_.take("}") || !cursor_.done()) return wrong();
      if (mesh_.size() > 1)
        return fail(Code::kUnsupported, "a tensor on one device of several is no layout over the mesh");
      if (*device != 0) return wrong();
      return tiles;
    }
    if (!cursor_.take("devices=")) return wrong();
    SHARDWRIGHT_ASSIGN(tiles.dims, numbers("[", "]"));
    if (product(tiles.dims) != mesh_.size())
      return fail(Code::kInvalidArgument, "the tiles are not as many as the devices")
          .with_found(fmt::format("[{}]", fmt::join(tiles.dims, ",")))
          .with_expected(fmt::format("{} tiles", mesh_.size()));
    SHARDWRIGHT_ASSIGN(auto order, devices());
    if (replicated_last()) {
      if (tiles.dims.empty()) return wrong();
      tiles.replicas = tiles.dims.back();
      tiles.dims.pop_back();
    } else {
      tiles.replicas = 1;
    }
    if (!cursor_.take("}") || !cursor_.done()) return wrong();
    for (size_t i = 0; i < order.size(); ++i) tiles.tile_of[order[i]] = static_cast<int64_t>(i) / tiles.replicas;
    return tiles;
  }

 private:
  Error wrong() const { return cursor_.error("a GSPMD sharding", "{devices=[2,4]<=[8]} or {replicated}"); }

  Result<std::vector<int64_t>> numbers(std::string_view open, std::string_view close) {
    std::vector<int64_t> out;
    if (!cursor_.take(open)) return wrong();
    while (true) {
      auto number = cursor_.take_number();
      if (!number || out.size() >= kMostDimensions) return wrong();
      out.push_back(*number);
      if (cursor_.take(close)) return out;
      if (!cursor_.take(",")) return wrong();
    }
  }

  /// 0 when it does not stay within the largest mesh.
  static int64_t product(std::span<const int64_t> sizes) {
    int64_t all = 1;
    for (int64_t size : sizes) {
      if (size < 1 || size > DeviceMesh::kMaxDevices / all) return 0;
      all *= size;
    }
    return all;
  }

  /// Positions in tile order: a permutation of all of them.
  Result<std::vector<int64_t>> devices() {
    if (cursor_.take("<=")) return iota();
    std::vector<int64_t> order;
    std::vector<bool> seen(mesh_.size());
    do {
      auto device = cursor_.take_number();
      if (!device || *device >= mesh_.size() || seen[*device]) return wrong();
      seen[*device] = true;
      order.push_back(*device);
    } while (cursor_.take(","));
    if (static_cast<int64_t>(order.size()) != mesh_.size()) return wrong();
    return order;
  }

  Result<std::vector<int64_t>> iota() {
    SHARDWRIGHT_ASSIGN(auto reshape, numbers("[", "]"));
    if (product(reshape) != mesh_.size()) return wrong();
    std::vector<int64_t> perm(reshape.size());
    std::iota(perm.begin(), perm.end(), int64_t{0});
    if (reshape.size() > 1) {
      if (!cursor_.take("T")) return wrong();
      SHARDWRIGHT_ASSIGN(auto given, numbers("(", ")"));
      auto sorted = given;
      std::sort(sorted.begin(), sorted.end());
      if (sorted != perm) return wrong();
      perm = std::move(given);
    }
    std::vector<int64_t> strides(reshape.size(), 1);
    for (size_t i = reshape.size(); i-- > 1;) strides[i - 1] = strides[i] * reshape[i];
    std::vector<int64_t> order(mesh_.size(), 0);
    for (int64_t i = 0; i < mesh_.size(); ++i) {
      int64_t rest = i;
      for (size_t j = perm.size(); j-- > 0;) {
        order[i] += rest % reshape[perm[j]] * strides[perm[j]];
        rest /= reshape[perm[j]];
      }
    }
    return order;
  }

  bool replicated_last() {
    return cursor_.take("last_tile_dim_replicate") || cursor_.take("last_tile_dims={replicated}");
  }

  TextCursor cursor_;
  const DeviceMesh& mesh_;
};

/// Row-major coordinates of a tile.
std::vector<int64_t> coordinates(std::span<const int64_t> dims, int64_t tile) {
  std::vector<int64_t> out(dims.size());
  for (size_t d = dims.size(); d-- > 0;) {
    out[d] = tile % dims[d];
    tile /= dims[d];
  }
  return out;
}

/// An axis that splits dimension d moves its second position (all other coordinates 0) by as many tiles as the more minor axes of d make;
/// sorting by that gives the order. The layout found so is then held against every position.
TensorLayout guess_layout(const Tiles& tiles, const DeviceMesh& mesh) {
  struct Step {
    int64_t tiles;
    size_t axis;
  };
  std::vector<std::vector<Step>> steps(tiles.dims.size());
  for (size_t axis = 0; axis < mesh.rank(); ++axis) {
    if (mesh.shape()[axis] == 1) continue;
    auto moved = coordinates(tiles.dims, tiles.tile_of[mesh.stride(axis)]);
    for (size_t d = 0; d < moved.size(); ++d) {
      if (moved[d] == 0) continue;
      steps[d].push_back({moved[d], axis});
      break;
    }
  }
  TensorLayout layout;
  for (auto& of_dimension : steps) {
    std::sort(of_dimension.begin(), of_dimension.end(), [](const Step& a, const Step& b) { return a.tiles > b.tiles; });
    auto& axes = layout.dims.emplace_back();
    for (const Step& step : of_dimension) axes.push_back(mesh.axis_names()[step.axis]);
  }
  return layout;
}

}  // namespace

std::string gspmd_text(const DeviceMesh& mesh, const TensorLayout& layout, size_t rank) {
  std::vector<size_t> perm;
  std::vector<int64_t> dims(rank, 1);
  std::vector<bool> used(mesh.rank());
  for (size_t d = 0; d < layout.dims.size(); ++d) {
    for (const auto& name : layout.dims[d]) {
      size_t axis = *mesh.axis(name);
      used[axis] = true;
      perm.push_back(axis);
      dims[d] *= mesh.shape()[axis];
    }
  }
  if (std::all_of(dims.begin(), dims.end(), [](int64_t n) { return n == 1; })) return "{replicated}";
  int64_t rest = 1;
  for (size_t axis = 0; axis < mesh.rank(); ++axis) {
    if (used[axis]) continue;
    perm.push_back(axis);
    rest *= mesh.shape()[axis];
  }
  if (rest > 1) dims.push_back(rest);
  Iota iota = canonical(mesh, perm);
  std::string text = fmt::format("{{devices=[{}]<=[{}]", fmt::join(dims, ","), fmt::join(iota.reshape, ","));
  if (iota.reshape.size() > 1) text += fmt::format("T({})", fmt::join(iota.perm, ","));
  return text + (rest > 1 ? " last_tile_dim_replicate}" : "}");
}

Result<TensorLayout> parse_gspmd(std::string_view text, const DeviceMesh& mesh) {
  SHARDWRIGHT_ASSIGN(Tiles tiles, GspmdParser(text, mesh).parse());
  TensorLayout layout = guess_layout(tiles, mesh);
  // A tensor of one element per tile: its boxes are the tiles.
  auto grid = ShardGrid::create(mesh, layout, tiles.dims);
  bool same = grid.ok();
  for (int64_t position = 0; same && position < mesh.size(); ++position) {
    Box box = grid->box_of(position);
    same = box.elements() == 1 && box.start == coordinates(tiles.dims, tiles.tile_of[position]);
  }
  if (!same)
    return fail(Code::kInvalidArgument, "no layout over this mesh gives these tiles")
        .with_found("'" + std::string(text.substr(0, 200)) + "' over " + mesh.text())
        .with_hint("the mesh's axes must be those that the sharding was made with, or finer");
  return layout;
}

}  // namespace shardwright
