#include "shardwright/layout/shardy.h"

#include <fmt/format.h>

#include <algorithm>

#include "shardwright/layout/text_cursor.h"

namespace shardwright {
namespace {

class ShardyParser {
 public:
  explicit ShardyParser(std::string_view text) : cursor_(text) {}

  Result<DeviceMesh> mesh() {
    if (!cursor_.take("#sdy.mesh<")) return wrong_mesh();
    SHARDWRIGHT_ASSIGN(auto mesh, mesh_body());
    if (!cursor_.done()) return wrong_mesh();
    return mesh;
  }

  Result<TensorLayout> sharding(const DeviceMesh& mesh) {
    if (!cursor_.take("#sdy.sharding<")) return wrong();
    SHARDWRIGHT_TRY(mesh_reference(mesh));
    TensorLayout layout;
    if (!cursor_.take(",") || !cursor_.take("[")) return wrong();
    if (!cursor_.take("]")) {
      do {
        if (layout.dims.size() >= kMostDimensions) return wrong();
        SHARDWRIGHT_ASSIGN(auto axes, axis_set(/*may_be_open=*/true));
        layout.dims.push_back(std::move(axes));
      } while (cursor_.take(","));
      if (!cursor_.take("]")) return wrong();
    }
    // Axes said to be replicated must split nothing: one more dimension shows it.
    TensorLayout all = layout;
    while (cursor_.take(",")) {
      if (cursor_.take("unreduced")) return fail(Code::kUnsupported, "a partial sum is no layout of a stored tensor");
      if (!cursor_.take("replicated") || !cursor_.take("=")) return wrong();
      SHARDWRIGHT_ASSIGN(auto axes, axis_set(/*may_be_open=*/false));
      all.dims.push_back(std::move(axes));
    }
    if (!cursor_.take(">") || !cursor_.done()) return wrong();
    SHARDWRIGHT_TRY(check_layout(mesh, all));
    return layout;
  }

 private:
  Error wrong() const { return cursor_.error("a Shardy sharding", R"(#sdy.sharding<@mesh, [{"a", "b"}, {}]>)"); }
  Error wrong_mesh() const { return cursor_.error("a Shardy mesh", R"(#sdy.mesh<["a"=2, "b"=4]>)"); }

  /// `["a"=2], device_ids=[1, 0]>`
  Result<DeviceMesh> mesh_body() {
    std::vector<int64_t> shape;
    std::vector<std::string> names, devices;
    if (!cursor_.take("[")) return wrong_mesh();
    do {
      auto name = cursor_.take_quoted();
      if (!name || !cursor_.take("=")) return wrong_mesh();
      auto size = cursor_.take_number();
      if (!size || shape.size() >= kMostDimensions) return wrong_mesh();
      names.push_back(std::move(*name));
      shape.push_back(*size);
    } while (cursor_.take(","));
    if (!cursor_.take("]")) return wrong_mesh();
    if (cursor_.take(",")) {
      if (!cursor_.take("device_ids") || !cursor_.take("=") || !cursor_.take("[")) return wrong_mesh();
      do {
        auto id = cursor_.take_number();
        if (!id || static_cast<int64_t>(devices.size()) >= DeviceMesh::kMaxDevices) return wrong_mesh();
        devices.push_back(std::to_string(*id));
      } while (cursor_.take(","));
      if (!cursor_.take("]")) return wrong_mesh();
    }
    if (!cursor_.take(">")) return wrong_mesh();
    return DeviceMesh::create(std::move(shape), std::move(names), std::move(devices));
  }

  /// `@mesh`, or a mesh inlined that must be the given one.
  Status mesh_reference(const DeviceMesh& mesh) {
    if (cursor_.take("@")) {
      if (cursor_.take_quoted() || cursor_.take_word()) return {};
      return wrong();
    }
    if (!cursor_.take("mesh<")) return wrong();
    SHARDWRIGHT_ASSIGN(auto inlined, mesh_body());
    if (std::ranges::equal(inlined.shape(), mesh.shape()) &&
        std::ranges::equal(inlined.axis_names(), mesh.axis_names()))
      return {};
    return fail(Code::kInvalidArgument, "the sharding is over another mesh")
        .with_found(inlined.text())
        .with_expected(mesh.text());
  }

  /// `{"a", "b"}`, `{"a", ?}`.
  Result<std::vector<std::string>> axis_set(bool may_be_open) {
    std::vector<std::string> axes;
    if (!cursor_.take("{")) return wrong();
    if (!cursor_.take("}")) {
      do {
        if (may_be_open && cursor_.take("?")) break;
        auto name = cursor_.take_quoted();
        if (!name) return wrong();
        if (cursor_.take(":"))
          return fail(Code::kUnsupported, "parts of a mesh axis are not supported: '" + *name + "'");
        axes.push_back(std::move(*name));
      } while (cursor_.take(","));
      if (!cursor_.take("}")) return wrong();
    }
    if (cursor_.take("p")) return fail(Code::kUnsupported, "priorities of dimensions are not supported");
    return axes;
  }

  TextCursor cursor_;
};

}  // namespace

std::string shardy_mesh_text(const DeviceMesh& mesh) {
  std::string axes, ids;
  for (size_t i = 0; i < mesh.rank(); ++i)
    axes += fmt::format(R"({}"{}"={})", i == 0 ? "" : ", ", mesh.axis_names()[i], mesh.shape()[i]);
  if (auto numbers = mesh.device_ids()) {
    bool in_order = true;
    for (size_t i = 0; i < numbers->size(); ++i) in_order = in_order && (*numbers)[i] == static_cast<int64_t>(i);
    if (!in_order) ids = fmt::format(", device_ids=[{}]", fmt::join(*numbers, ", "));
  }
  return fmt::format("#sdy.mesh<[{}]{}>", axes, ids);
}

Result<DeviceMesh> parse_shardy_mesh(std::string_view text) { return ShardyParser(text).mesh(); }

std::string shardy_text(const TensorLayout& layout, size_t rank, std::string_view mesh_name) {
  std::string dims;
  for (size_t d = 0; d < rank; ++d) {
    std::string axes;
    if (d < layout.dims.size())
      for (const auto& name : layout.dims[d]) axes += fmt::format(R"({}"{}")", axes.empty() ? "" : ", ", name);
    dims += fmt::format("{}{{{}}}", d == 0 ? "" : ", ", axes);
  }
  return fmt::format("#sdy.sharding<@{}, [{}]>", mesh_name, dims);
}

Result<TensorLayout> parse_shardy(std::string_view text, const DeviceMesh& mesh) {
  return ShardyParser(text).sharding(mesh);
}

}  // namespace shardwright
