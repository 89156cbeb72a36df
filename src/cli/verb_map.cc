/// shardwright map: where every tensor goes on a mesh, before any byte is read.
#include <fmt/format.h>

#include <algorithm>

#include "cli/json_output.h"
#include "cli/layout_arguments.h"
#include "cli/map_svg.h"
#include "cli/table.h"
#include "cli/user_file.h"
#include "cli/verbs.h"
#include "shardwright/base/text.h"
#include "shardwright/engine/saved_layout.h"
#include "shardwright/layout/gspmd.h"
#include "shardwright/layout/layout_report.h"
#include "shardwright/layout/partition_spec.h"
#include "shardwright/layout/shardy.h"
#include "shardwright/layout/torch_placements.h"

namespace shardwright::cli {
namespace {

constexpr size_t kMostNames = 8, kMostDevices = 32;

/// What is laid out, and what came of it. The checkpoint outlives it.
struct Mapped {
  LayoutMap map;
  std::vector<TensorToLay> tensors;
  LayoutReport report;

  TensorLayout layout(size_t tensor) const { return map.layout_of(report.rows[tensor].rule); }
};

/// As told; else as the checkpoint itself says that it was.
Result<LayoutMap> layout_for(const Invocation& invocation, const Checkpoint& checkpoint) {
  const Arguments& arguments = invocation.arguments;
  if (arguments.has("mesh") || arguments.has("layout")) return read_layout(arguments);
  std::vector<std::string> remarks;
  SHARDWRIGHT_ASSIGN(auto saved, saved_layout(checkpoint.catalog, remarks));
  if (!saved)
    return fail(Code::kInvalidArgument, "there is no mesh, and the checkpoint notes none")
        .with_hint("--mesh data=2,model=4, or --layout FILE");
  for (const std::string& remark : remarks) invocation.output.warning(remark);
  return std::move(*saved);
}

Result<Mapped> map_checkpoint(const Invocation& invocation, const Checkpoint& checkpoint) {
  SHARDWRIGHT_ASSIGN(LayoutMap map, layout_for(invocation, checkpoint));
  const Catalog& catalog = checkpoint.catalog;
  std::string glob = invocation.arguments.text("GLOB");
  if (!glob.empty()) glob = find_glob(catalog, glob).value_or(glob);
  Mapped mapped{std::move(map), {}, {}};
  for (TensorId id = 0; id < catalog.size(); ++id) {
    if (!glob.empty() && !glob_match(glob, catalog.spec(id).name)) continue;
    mapped.tensors.push_back(tensor_to_lay(catalog, id));
  }
  if (mapped.tensors.empty() && !glob.empty()) {
    auto near = nearest_tensors(catalog, glob);
    return fail(Code::kNotFound, "no tensor matches '" + glob + "'")
        .with_hint(near.empty() ? "" : "nearest name: " + near[0]);
  }
  mapped.report = report_layout(mapped.map, mapped.tensors);
  if (!glob.empty()) mapped.report.unused_rules.clear();  // the tensors they are for may not be among the chosen
  return mapped;
}

Json boxes_json(const Mapped& mapped, const ShardGrid& grid) {
  Json boxes = Json::array();
  for (int64_t i = 0; i < mapped.map.mesh().size(); ++i) {
    Box box = grid.box_of(i);
    boxes.push_back({{"start", box.start}, {"extent", box.extent}});
  }
  return boxes;
}

Json tensor_json(const Mapped& mapped, size_t tensor, bool boxes) {
  const auto& row = mapped.report.rows[tensor];
  const TensorToLay& spec = mapped.tensors[tensor];
  size_t rank = spec.shape.size();
  Json out = {
      {"name", std::string(spec.name)}, {"dtype", dtype_row(spec.dtype).name}, {"shape", shape_json(spec.shape)}};
  if (!row.grid) return out;
  TensorLayout layout = mapped.layout(tensor);
  layout.dims.resize(rank);
  out["rule"] = row.rule ? Json(mapped.map.rules()[*row.rule].pattern) : Json();
  out["partition_spec"] = partition_spec_json(layout);
  out["shard_shape"] = row.grid->shard_shape();
  out["shard_nbytes"] = row.shard_bytes;
  out["even"] = row.grid->even();
  out["replicas"] = row.grid->replicas();
  out["gspmd"] = gspmd_text(mapped.map.mesh(), layout, rank);
  out["shardy"] = shardy_text(layout, rank);
  out["placements"] = placements_text(mapped.map.mesh(), layout);
  if (boxes) out["boxes"] = boxes_json(mapped, *row.grid);
  return out;
}

Json mesh_json(const DeviceMesh& mesh) {
  return {{"axis_names", Json(std::vector<std::string>(mesh.axis_names().begin(), mesh.axis_names().end()))},
          {"shape", shape_json(mesh.shape())},
          {"devices", Json(std::vector<std::string>(mesh.devices().begin(), mesh.devices().end()))},
          {"shardy", shardy_mesh_text(mesh)}};
}

Json problems_json(const Mapped& mapped) {
  Json out = Json::array();
  for (const Error& error : mapped.report.problems)
    out.push_back({{"tensor", error.tensor},
                   {"message", error.message},
                   {"found", json_or_null(error.found)},
                   {"expected", json_or_null(error.expected)},
                   {"context", error.context}});
  return out;
}

const char* match_name(LayoutMap::Match match) {
  switch (match) {
    case LayoutMap::Match::kSearch: return "search";
    case LayoutMap::Match::kFullMatch: return "fullmatch";
    case LayoutMap::Match::kExact: return "exact";
  }
  return "";
}

/// One object, the tensors written as they are made: there may be very many.
void print_json(Output& output, const Checkpoint& checkpoint, const Mapped& mapped, bool boxes) {
  const LayoutReport& report = mapped.report;
  const DeviceMesh& mesh = mapped.map.mesh();
  output.write(fmt::format("{{\"path\": {}, \"mesh\": {}, \"match\": \"{}\",\n\"tensors\": ",
                           json_quote(checkpoint.path), json_text(mesh_json(mesh)), match_name(mapped.map.match())));
  {
    JsonArray rows(output);
    for (size_t i = 0; i < mapped.tensors.size() && !output.broken(); ++i) rows.add(tensor_json(mapped, i, boxes));
  }
  Json devices = Json::array(), unmatched = Json::array(), unused = Json::array();
  for (size_t i = 0; i < report.device_bytes.size(); ++i)
    devices.push_back({{"device", mesh.devices()[i]}, {"nbytes", report.device_bytes[i]}});
  for (uint32_t i : report.unmatched)
    unmatched.push_back({{"name", std::string(mapped.tensors[i].name)},
                         {"nbytes", report.rows[i].shard_bytes},
                         {"large", report.rows[i].shard_bytes >= LayoutReport::kLargeBytes}});
  for (uint32_t rule : report.unused_rules) unused.push_back(mapped.map.rules()[rule].pattern);
  output.line(fmt::format(",\"devices\": {},\n\"unmatched\": {},\n\"unused_rules\": {},\n\"problems\": {}}}",
                          json_text(devices), json_text(unmatched), json_text(unused),
                          json_text(problems_json(mapped))));
}

void print_tensors(Output& output, const Mapped& mapped) {
  const std::vector<Column> columns = {
      {"name", false, true}, {"dtype"}, {"shape"}, {"layout"}, {"shard shape"}, {"per device", true},
      {"rule", false, true}};
  print_table(output, columns, mapped.tensors.size(), [&](size_t i, std::vector<std::string>& cells) {
    const TensorToLay& spec = mapped.tensors[i];
    const auto& row = mapped.report.rows[i];
    cells = {
        std::string(spec.name), std::string(dtype_row(spec.dtype).name), shape_text(spec.shape), "?", "?", "?", ""};
    if (!row.grid) return;
    cells[3] = mapped.layout(i).text(spec.shape.size());
    cells[4] = shape_text(row.grid->shard_shape()) + (row.grid->even() ? "" : " at most");
    cells[5] = format_bytes(row.shard_bytes);
    cells[6] = row.rule ? mapped.map.rules()[*row.rule].pattern : "-";
  });
}

void print_boxes(Output& output, const Mapped& mapped) {
  const DeviceMesh& mesh = mapped.map.mesh();
  for (size_t i = 0; i < mapped.tensors.size() && !output.broken(); ++i) {
    const auto& row = mapped.report.rows[i];
    if (!row.grid) continue;
    output.line("");
    output.line(output.styled(mapped.tensors[i].name, Style::kBold));
    print_table(output, std::vector<Column>{{""}, {""}}, static_cast<size_t>(mesh.size()),
                [&](size_t p, std::vector<std::string>& cells) {
                  cells = {"  " + mesh.devices()[p], row.grid->box_of(static_cast<int64_t>(p)).text()};
                });
  }
}

void print_devices(Output& output, const Mapped& mapped, bool all) {
  const DeviceMesh& mesh = mapped.map.mesh();
  const auto& bytes = mapped.report.device_bytes;
  auto [least, most] = std::minmax_element(bytes.begin(), bytes.end());
  output.line("");
  if (!all && (*least == *most || bytes.size() > kMostDevices)) {
    output.line(*least == *most ? fmt::format("{} on each of {}", format_bytes(*most), counted(bytes.size(), "device"))
                                : fmt::format("{} to {} on each of {} (-v lists them)", format_bytes(*least),
                                              format_bytes(*most), counted(bytes.size(), "device")));
    return;
  }
  std::vector<Column> columns = {{"device"}};
  for (const auto& axis : mesh.axis_names()) columns.push_back({axis, true});
  columns.push_back({"size", true});
  print_table(output, columns, bytes.size(), [&](size_t i, std::vector<std::string>& cells) {
    cells = {mesh.devices()[i]};
    for (size_t axis = 0; axis < mesh.rank(); ++axis)
      cells.push_back(std::to_string(mesh.coordinate(static_cast<int64_t>(i), axis)));
    cells.push_back(format_bytes(bytes[i]));
  });
}

std::string some_names(const std::vector<std::string>& names, bool all) {
  size_t shown = all || names.size() <= kMostNames + 1 ? names.size() : kMostNames;
  std::string out =
      fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  return shown == names.size() ? out : out + fmt::format(" and {} more (-v lists them)", names.size() - shown);
}

void print_remarks(Output& output, const Mapped& mapped, bool all) {
  const LayoutReport& report = mapped.report;
  std::vector<std::string> names;
  for (uint32_t i : report.unmatched) names.emplace_back(mapped.tensors[i].name);
  if (!names.empty())
    output.line(fmt::format("{} without a rule, whole on every device: {}", counted(names.size(), "tensor"),
                            some_names(names, all)));
  names.clear();
  for (uint32_t i : report.large)
    names.push_back(fmt::format("{} ({})", mapped.tensors[i].name, format_bytes(report.rows[i].shard_bytes)));
  if (!names.empty())
    output.line(output.styled(fmt::format("large among them: {}", some_names(names, all)), Style::kYellow));
  names.clear();
  for (uint32_t rule : report.unused_rules) names.push_back("'" + mapped.map.rules()[rule].pattern + "'");
  if (!names.empty())
    output.line(output.styled(
        fmt::format("{} without a tensor: {}", counted(names.size(), "rule"), some_names(names, all)), Style::kYellow));
  for (const Error& error : report.problems) {
    output.line(output.styled(error.text(), Style::kRed));
    for (const std::string& line : error.context) output.line("  " + line);
  }
}

/// The tensor that shows most: in most parts, the largest of those.
Status draw(const Mapped& mapped, const std::string& file) {
  size_t best = mapped.tensors.size();
  auto rank = [&](size_t i) {
    const auto& grid = *mapped.report.rows[i].grid;
    return std::pair(-grid.replicas(), mapped.report.rows[i].shard_bytes);
  };
  for (size_t i = 0; i < mapped.tensors.size(); ++i) {
    if (!mapped.report.rows[i].grid) continue;
    if (best == mapped.tensors.size() || rank(i) > rank(best)) best = i;
  }
  if (best == mapped.tensors.size())
    return fail(Code::kInvalidArgument, "there is no tensor to draw").within("for --svg");
  Status written = write_text_file(file, layout_svg(mapped.map, mapped.tensors, mapped.report, best));
  if (!written.ok()) return std::move(written.error()).within("for --svg");
  return {};
}

}  // namespace

Result<int> run_map(Invocation& invocation) {
  SHARDWRIGHT_ASSIGN(Checkpoint checkpoint, open_argument(invocation, "PATH"));
  SHARDWRIGHT_ASSIGN(Mapped mapped, map_checkpoint(invocation, checkpoint));
  Output& output = invocation.output;
  bool boxes = invocation.arguments.has("long");
  if (output.json()) {
    print_json(output, checkpoint, mapped, boxes);
  } else {
    print_tensors(output, mapped);
    if (boxes) print_boxes(output, mapped);
    if (!output.quiet()) {
      print_devices(output, mapped, output.verbose());
      print_remarks(output, mapped, output.verbose());
    }
  }
  if (std::string file = invocation.arguments.text("svg"); !file.empty()) SHARDWRIGHT_TRY(draw(mapped, file));
  return mapped.report.problems.empty() ? 0 : 1;
}

}  // namespace shardwright::cli
