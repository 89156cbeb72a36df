/// shardwright ls: tensors, layers or shards of a checkpoint. A million tensors are listed as they are read, without a copy.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "cli/json_output.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "shardwright/base/text.h"

namespace shardwright::cli {
namespace {

std::vector<TensorId> chosen(Invocation& invocation, const Catalog& catalog) {
  const Arguments& arguments = invocation.arguments;
  std::string given = arguments.text("GLOB"), glob = find_glob(catalog, given).value_or(given),
              order = arguments.text("sort");
  std::vector<TensorId> ids;
  for (TensorId tensor = 0; tensor < catalog.size(); ++tensor) {
    if (glob.empty() || glob_match(glob, catalog.spec(tensor).name)) ids.push_back(tensor);
  }
  if (order == "name") {
    std::sort(ids.begin(), ids.end(),
              [&](TensorId a, TensorId b) { return catalog.spec(a).name < catalog.spec(b).name; });
  } else if (order == "size") {
    std::stable_sort(ids.begin(), ids.end(),
                     [&](TensorId a, TensorId b) { return catalog.spec(a).nbytes() > catalog.spec(b).nbytes(); });
  }
  if (arguments.has("reverse")) std::reverse(ids.begin(), ids.end());
  return ids;
}

/// Formatted by hand: a JSON document of a million rows would take seconds and a gigabyte.
void print_json(Output& output, const Catalog& catalog, const std::vector<TensorId>& ids) {
  std::vector<std::string> keys;
  for (const ObjectInfo& object : catalog.objects()) keys.push_back(json_quote(object.key));
  JsonArray array(output);
  std::string& out = output.buffer();
  for (TensorId tensor : ids) {
    if (output.broken()) break;
    Catalog::Spec spec = catalog.spec(tensor);
    Where where = where_is(catalog, tensor);
    array.next_row();
    fmt::format_to(std::back_inserter(out), R"({{"name": {}, "dtype": "{}", "shape": [{}], "nbytes": {}, "shard": )",
                   json_quote(spec.name), dtype_row(spec.dtype).name, fmt::join(spec.shape, ", "), spec.nbytes());
    out += where.shard.empty() ? "null" : json_quote(where.shard);
    if (where.offset)
      fmt::format_to(std::back_inserter(out), R"(, "offset": {}}})", *where.offset);
    else
      out += R"(, "offset": null})";
    output.flush_if_full();
  }
}

void print_tensors(Output& output, const Catalog& catalog, const std::vector<TensorId>& ids, bool more) {
  std::vector<Column> columns = {{"name", false, true}, {"dtype"}, {"shape"}, {"size", true}};
  bool ties = more && catalog.tie_count() > 0;
  if (more) columns.insert(columns.end(), {{"offset", true}, {"shard", false, true}});
  if (ties) columns.push_back({"tied to", false, true});
  print_table(output, columns, ids.size(), [&](size_t row, std::vector<std::string>& cells) {
    TensorId tensor = ids[row], kept = catalog.same_as(tensor);
    Catalog::Spec spec = catalog.spec(tensor);
    cells[0] = spec.name;
    cells[1] = dtype_row(spec.dtype).name;
    cells[2] = shape_text(spec.shape);
    cells[3] = format_bytes(spec.nbytes());
    if (!more) return;
    Where where = where_is(catalog, tensor);
    cells[4] = where.offset ? std::to_string(*where.offset) : "-";
    cells[5] = where.shard.empty() ? "-" : where.shard;
    if (ties) cells[6] = kept == tensor ? "" : catalog.spec(kept).name;
  });
}

void print_total(Output& output, const Catalog& catalog, const std::vector<TensorId>& ids) {
  uint64_t elements = 0, nbytes = 0;
  for (TensorId tensor : ids) {
    if (catalog.same_as(tensor) != tensor) continue;
    elements += catalog.spec(tensor).elements();
    nbytes += catalog.spec(tensor).nbytes();
  }
  output.line(output.styled(
      fmt::format("{}, {}, {}", counted(ids.size(), "tensor"), counted(elements, "parameter"), format_bytes(nbytes)),
      Style::kDim));
}

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// "layers.11.attn" -> "layers.#.attn", "block_3/vars/0" -> "block_#/vars/0": what follows "vars" tells variables of a layer apart.
std::string layer_pattern(std::string_view name) {
  std::string out;
  std::string_view before;
  while (true) {
    size_t end = std::min(name.find_first_of("./"), name.size());
    std::string_view part = name.substr(0, end);
    size_t underscore = part.rfind('_');
    if (is_number(part) && before != "vars") {
      out += '#';
    } else if (underscore != part.npos && underscore > 0 && is_number(part.substr(underscore + 1))) {
      out.append(part.substr(0, underscore + 1)) += '#';
    } else {
      out += part;
    }
    if (end == name.size()) return out;
    out += name[end];
    before = part;
    name.remove_prefix(end + 1);
  }
}

struct Layers {
  std::string name;  ///< the pattern; the tensor's own name when there is only one
  TensorId first;
  uint64_t count = 0, nbytes = 0;
};

std::vector<Layers> collapsed(const Catalog& catalog, const std::vector<TensorId>& ids) {
  std::map<std::string, size_t> known;
  std::vector<Layers> groups;
  for (TensorId tensor : ids) {
    Catalog::Spec spec = catalog.spec(tensor);
    std::string pattern = layer_pattern(spec.name);
    std::string key = fmt::format("{}\n{}\n{}", pattern, dtype_row(spec.dtype).name, shape_text(spec.shape));
    auto [at, is_new] = known.try_emplace(std::move(key), groups.size());
    if (is_new) groups.push_back({std::string(spec.name), tensor});
    Layers& group = groups[at->second];
    if (++group.count == 2) group.name = pattern;
    group.nbytes += spec.nbytes();
  }
  return groups;
}

void print_collapsed(Output& output, const Catalog& catalog, const std::vector<TensorId>& ids) {
  std::vector<Layers> groups = collapsed(catalog, ids);
  if (output.json()) {
    JsonArray array(output);
    for (const Layers& group : groups) {
      Catalog::Spec spec = catalog.spec(group.first);
      array.add(Json{{"name", group.name},
                     {"count", group.count},
                     {"dtype", dtype_row(spec.dtype).name},
                     {"shape", shape_json(spec.shape)},
                     {"nbytes", group.nbytes}});
    }
    return;
  }
  const std::vector<Column> columns = {{"name", false, true}, {"count", true}, {"dtype"}, {"shape"}, {"size", true}};
  print_table(output, columns, groups.size(), [&](size_t row, std::vector<std::string>& cells) {
    const Layers& group = groups[row];
    Catalog::Spec spec = catalog.spec(group.first);
    cells = {group.name, std::to_string(group.count), std::string(dtype_row(spec.dtype).name), shape_text(spec.shape),
             format_bytes(group.nbytes)};
  });
}

void print_shards(Output& output, const Catalog& catalog) {
  std::vector<ShardContent> shards = shard_contents(catalog);
  if (output.json()) {
    JsonArray array(output);
    for (size_t i = 0; i < shards.size(); ++i) {
      array.add(Json{{"file", catalog.objects()[i].key}, {"tensors", shards[i].tensors}, {"nbytes", shards[i].nbytes}});
    }
    return;
  }
  const std::vector<Column> columns = {{"file", false, true}, {"tensors", true}, {"size", true}};
  print_table(output, columns, shards.size(), [&](size_t row, std::vector<std::string>& cells) {
    cells = {catalog.objects()[row].key, format_count(shards[row].tensors), format_bytes(shards[row].nbytes)};
  });
  if (!output.quiet())
    output.line(output.styled(
        fmt::format("{}, {}", counted(shards.size(), "file"), format_bytes(catalog.total_bytes())), Style::kDim));
}

}  // namespace

Result<int> run_ls(Invocation& invocation) {
  SHARDWRIGHT_ASSIGN(Checkpoint checkpoint, open_argument(invocation, "PATH"));
  const Catalog& catalog = checkpoint.catalog;
  Output& output = invocation.output;
  if (invocation.arguments.has("shards")) {
    print_shards(output, catalog);
    return 0;
  }
  std::vector<TensorId> ids = chosen(invocation, catalog);
  if (ids.empty() && invocation.arguments.has("GLOB"))
    output.warning("no tensor matches '" + invocation.arguments.text("GLOB") + "'");
  if (invocation.arguments.has("collapse")) {
    print_collapsed(output, catalog, ids);
  } else if (output.json()) {
    print_json(output, catalog, ids);
  } else if (output.quiet()) {
    bool raw = output.width() == 0;
    for (TensorId tensor : ids)
      output.line(raw ? std::string(catalog.spec(tensor).name) : printable(catalog.spec(tensor).name));
  } else {
    print_tensors(output, catalog, ids, invocation.arguments.has("long"));
  }
  if (!output.json() && !output.quiet()) print_total(output, catalog, ids);
  return 0;
}

}  // namespace shardwright::cli
