#include "shardwright/layout/layout_report.h"

#include <fmt/format.h>

namespace shardwright {
namespace {

bool is_output_rule(std::string_view pattern) {
  if (pattern.ends_with('$')) pattern.remove_suffix(1);
  return pattern.ends_with("/output");
}

/// Adds a tensor's shards to every device's bytes. Returns those of the largest.
Result<uint64_t> count_bytes(const ShardGrid& grid, const TensorToLay& tensor, std::vector<uint64_t>& device_bytes,
                             uint64_t& every_device) {
  SHARDWRIGHT_ASSIGN(uint64_t largest, bytes_of_box(tensor.dtype, tensor.shape, grid.box_of(0)));
  if (grid.even()) {
    if (!tensor.tied) every_device += largest;
    return largest;
  }
  std::vector<uint64_t> bytes(device_bytes.size());
  for (size_t i = 0; i < bytes.size(); ++i) {
    SHARDWRIGHT_ASSIGN(bytes[i], bytes_of_box(tensor.dtype, tensor.shape, grid.box_of(static_cast<int64_t>(i))));
  }
  for (size_t i = 0; i < bytes.size() && !tensor.tied; ++i) device_bytes[i] += bytes[i];
  return largest;
}

}  // namespace

Result<uint64_t> bytes_of_box(DType dtype, std::span<const int64_t> shape, const Box& box) {
  auto bytes = bytes_of_elements(dtype, box.elements());
  int64_t block = dtype_row(dtype).block_elems;
  bool whole = bytes.has_value();
  // Elements that follow each other in the tensor: the box's innermost dimensions that are whole, and the first that is not.
  int64_t run = 1;
  for (size_t d = shape.size(); d-- > 0 && block > 1 && !box.empty();) {
    bool cut = box.extent[d] != shape[d];
    if (cut) whole = whole && box.start[d] * run % block == 0 && box.extent[d] * run % block == 0;
    run *= box.extent[d];
    if (cut) break;
  }
  if (whole) return *bytes;
  return fail(Code::kInvalidArgument, fmt::format("a shard would begin or end within a block of {} elements of {}",
                                                  block, dtype_row(dtype).name))
      .with_found(box.text());
}

Status problem_of(LayoutReport& report) {
  if (report.problems.empty()) return {};
  Error error = std::move(report.problems.front());
  if (size_t more = report.problems.size() - 1; more > 0)
    error.context.push_back(fmt::format("and {} more tensors cannot be laid out; 'map' lists them", more));
  return error;
}

LayoutReport report_layout(const LayoutMap& map, std::span<const TensorToLay> tensors) {
  LayoutReport report;
  LayoutFinder finder(map);
  uint64_t every_device = 0;
  report.device_bytes.resize(static_cast<size_t>(map.mesh().size()));
  report.rows.reserve(tensors.size());
  for (uint32_t i = 0; i < tensors.size(); ++i) {
    const TensorToLay& tensor = tensors[i];
    auto& row = report.rows.emplace_back();
    auto laid = finder.lay_out(tensor.name, tensor.shape);
    if (!laid.ok()) {
      report.problems.push_back(std::move(laid.error()));
      continue;
    }
    auto bytes = count_bytes(laid->grid, tensor, report.device_bytes, every_device);
    if (!bytes.ok()) {
      report.problems.push_back(std::move(bytes.error()).at_tensor(std::string(tensor.name)));
      continue;
    }
    row = {laid->rule, std::move(laid->grid), *bytes};
    if (row.rule) continue;
    report.unmatched.push_back(i);
    if (row.shard_bytes >= LayoutReport::kLargeBytes) report.large.push_back(i);
  }
  for (uint64_t& bytes : report.device_bytes) bytes += every_device;
  for (uint32_t rule = 0; rule < map.rules().size(); ++rule)
    if (!finder.used(rule) && !is_output_rule(map.rules()[rule].pattern)) report.unused_rules.push_back(rule);
  return report;
}

}  // namespace shardwright
