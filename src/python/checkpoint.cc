#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "python/bindings.h"
#include "python/errors.h"
#include "python/text.h"
#include "shardwright/base/text.h"
#include "shardwright/format/catalog_summary.h"
#include "shardwright/format/format.h"
#include "shardwright/format/index_files.h"

namespace nb = nanobind;

namespace shardwright::python {
namespace {

nb::tuple tuple_of(std::span<const int64_t> values) {
  auto out = nb::steal<nb::tuple>(PyTuple_New(static_cast<Py_ssize_t>(values.size())));
  for (size_t i = 0; i < values.size(); ++i)
    PyTuple_SetItem(out.ptr(), static_cast<Py_ssize_t>(i), nb::int_(values[i]).release().ptr());
  return out;
}

nb::list names_of(const Checkpoint& checkpoint) {
  nb::list out;
  for (TensorId id = 0; id < checkpoint.catalog.size(); ++id) out.append(to_str(checkpoint.catalog.spec(id).name));
  return out;
}

TensorId checked(const Checkpoint& checkpoint, size_t id) {
  if (id >= checkpoint.catalog.size()) throw nb::index_error("no such tensor id");
  return static_cast<TensorId>(id);
}

nb::tuple spec_of(const Checkpoint& checkpoint, size_t id) {
  auto spec = checkpoint.catalog.spec(checked(checkpoint, id));
  return nb::make_tuple(to_str(spec.name), to_str(dtype_row(spec.dtype).numpy_name), tuple_of(spec.shape),
                        spec.nbytes());
}

/// Of many tensors at once: id of the tensor that holds the bytes, and what spec_of says but for the name.
nb::list specs_of(const Checkpoint& checkpoint, const std::vector<size_t>& ids) {
  std::vector<nb::object> names(dtype_table().size());
  nb::list out;
  for (size_t id : ids) {
    auto spec = checkpoint.catalog.spec(checked(checkpoint, id));
    auto& name = names[static_cast<size_t>(spec.dtype)];
    if (!name.is_valid()) name = to_str(dtype_row(spec.dtype).numpy_name);
    out.append(nb::make_tuple(checkpoint.catalog.same_as(static_cast<TensorId>(id)), name, tuple_of(spec.shape),
                              spec.nbytes()));
  }
  return out;
}

nb::list objects_of(const Checkpoint& checkpoint) {
  nb::list out;
  for (const auto& object : checkpoint.catalog.objects()) out.append(nb::make_tuple(to_str(object.key), object.size));
  return out;
}

/// Which objects hold bytes of the tensor, in order of first use.
std::vector<ObjectId> object_ids_of(const Checkpoint& checkpoint, size_t id) {
  std::vector<ObjectId> out;
  for (const Piece& piece : checkpoint.catalog.pieces(checked(checkpoint, id)))
    if (piece.place.site == Place::kExtent && std::ranges::find(out, piece.place.object) == out.end())
      out.push_back(piece.place.object);
  return out;
}

nb::object value_of(const Checkpoint& checkpoint, const nb::str& key) {
  const Value* value = checkpoint.catalog.value(from_str(key));
  if (value == nullptr) return nb::none();
  if (value->type == Value::kJson) return to_str(value->data);
  return nb::bytes(value->data.data(), value->data.size());
}

nb::object extent_of(const Checkpoint& checkpoint, size_t id) {
  const Catalog& catalog = checkpoint.catalog;
  if (id >= catalog.size()) throw nb::index_error("no such tensor id");
  auto flat = catalog.flat(catalog.same_as(static_cast<TensorId>(id)));
  if (!flat || flat->place.site != Place::kExtent) return nb::none();
  const auto& object = catalog.objects()[flat->place.object];
  return nb::make_tuple(to_str(checkpoint.store->describe(object.key)), object.size, flat->place.offset,
                        flat->place.length, to_str(dtype_row(flat->stored).numpy_name));
}

nb::dict info_of(const Checkpoint& checkpoint) {
  const Catalog& catalog = checkpoint.catalog;
  nb::dict dtypes, out;
  for (const auto& row : dtype_contents(catalog))
    dtypes[to_str(dtype_row(row.dtype).name)] = nb::make_tuple(row.tensors, row.nbytes);
  nb::list shards;
  auto contents = shard_contents(catalog);
  for (size_t i = 0; i < contents.size(); ++i)
    shards.append(nb::make_tuple(to_str(catalog.objects()[i].key), contents[i].tensors, contents[i].nbytes));
  out["path"] = to_str(checkpoint.path);
  out["format"] = to_str(checkpoint.format->name);
  out["tensors"] = catalog.size();
  out["parameters"] = parameter_count(catalog);
  out["nbytes"] = catalog.total_bytes();
  out["dtypes"] = dtypes;
  out["shards"] = shards;
  return out;
}

Checkpoint open(const nb::str& path, bool isolate, uint64_t max_metadata_bytes, bool opaque_as_bytes) {
  std::string name = from_str(path);
  OpenOptions options;
  options.isolate = isolate;
  options.opaque_as_bytes = opaque_as_bytes;
  options.max_metadata_bytes = max_metadata_bytes;
  auto opened = [&] {
    nb::gil_scoped_release released;
    return open_checkpoint(name, options);
  }();
  return unwrap(std::move(opened));
}

/// files, entries (name, indices of files), whether the names are groups
nb::tuple read_index(const nb::str& directory, const nb::str& key, uint64_t cap) {
  auto store = unwrap(open_file_store(from_str(directory)));
  auto index = unwrap(read_index_files(*store, from_str(key), cap));
  nb::list entries;
  for (const auto& entry : index.entries) entries.append(nb::make_tuple(to_str(entry.name), nb::cast(entry.files)));
  return nb::make_tuple(strs_of(index.files), entries, index.groups);
}

/// "missing", "cut short", "whole" or "wrong", bytes that are there, bytes that should be (None: unknown), what it is instead.
nb::tuple state_of(const nb::str& directory, const nb::str& key, uint64_t cap) {
  constexpr std::string_view kKinds[] = {"missing", "cut short", "whole", "wrong"};
  std::string folder = from_str(directory), name = from_str(key);
  auto state = [&]() -> Result<ShardState> {
    nb::gil_scoped_release released;
    SHARDWRIGHT_ASSIGN(auto store, open_file_store(folder));
    return shard_state(*store, name, cap);
  }();
  auto known = unwrap(std::move(state));
  nb::object expected =
      known.expected_bytes == kUnknown ? nb::object(nb::none()) : nb::object(nb::int_(known.expected_bytes));
  return nb::make_tuple(to_str(kKinds[known.kind]), known.size_bytes, expected, to_str(known.problem));
}

void bind_class(nb::module_& module) {
  nb::class_<Checkpoint>(module, "Checkpoint", "An opened checkpoint: its metadata is in memory, its files are open.")
      .def_prop_ro("path", [](const Checkpoint& c) { return to_str(c.path); })
      .def_prop_ro(
          "at", [](const Checkpoint& c) { return to_str(c.at); }, "Key of the file; '' for a directory.")
      .def_prop_ro("format", [](const Checkpoint& c) { return to_str(c.format->name); })
      .def_prop_ro(
          "notes", [](const Checkpoint& c) { return strs_of(c.notes); }, nb::sig("def notes(self) -> list[str]"))
      .def_prop_ro(
          "nbytes", [](const Checkpoint& c) { return c.catalog.total_bytes(); }, "Of values, ties once.")
      .def_prop_ro(
          "bytes_read", [](const Checkpoint& c) { return c.store->bytes_read(); }, "By its store, so far.")
      .def("names", names_of, nb::sig("def names(self) -> list[str]"))
      .def(
          "near",
          [](const Checkpoint& c, const nb::str& name) {
            return strs_of(nearest_tensors(c.catalog, from_str(name), 3));
          },
          nb::sig("def near(self, name: str) -> list[str]"))
      .def("spec", spec_of, nb::sig("def spec(self, id: int) -> tuple[str, str, tuple[int, ...], int]"),
           "Name, NumPy's name of the dtype, shape, bytes of the values.")
      .def("specs", specs_of, nb::sig("def specs(self, ids: list[int]) -> list[tuple[int, str, tuple[int, ...], int]]"),
           "Of each: id of the tensor that holds its bytes (its own, but for ties), dtype, shape, bytes.")
      .def(
          "same_as", [](const Checkpoint& c, size_t id) { return c.catalog.same_as(checked(c, id)); },
          "Id of the tensor that holds the bytes of a tie; its own otherwise.")
      .def("objects", objects_of, nb::sig("def objects(self) -> list[tuple[str, int]]"),
           "Files that hold tensors: key, size.")
      .def("object_ids_of", object_ids_of, "Indices in objects() of those that hold the tensor.")
      .def(
          "describe", [](const Checkpoint& c, const nb::str& key) { return to_str(c.store->describe(from_str(key))); },
          "Path of a key.")
      .def(
          "members", [](const Checkpoint& c) { return strs_of(c.catalog.members()); },
          nb::sig("def members(self) -> list[str]"), "Keys of the whole set, entry points first.")
      .def(
          "side_files",
          [](const Checkpoint& c) {
            nb::list out;
            for (const auto& file : c.catalog.side_files()) out.append(to_str(file.name));
            return out;
          },
          nb::sig("def side_files(self) -> list[str]"))
      .def("extent", extent_of, nb::arg("id"),
           nb::sig("def extent(self, id: int) -> tuple[str, int, int, int, str] | None"),
           "Path and bytes of the one file that holds the tensor, raw and in C order: offset, length, stored dtype. "
           "None: it is stored otherwise.")
      .def("info", info_of, nb::sig("def info(self) -> dict[str, typing.Any]"))
      .def("value", value_of, nb::sig("def value(self, key: str) -> str | bytes | None"),
           "A value that is no tensor: JSON text, or bytes. 'metadata', 'keras.names'.")
      .def(
          "value_keys", [](const Checkpoint& c) { return strs_of(c.catalog.value_keys()); },
          nb::sig("def value_keys(self) -> list[str]"));
}

}  // namespace

void bind_checkpoint(nb::module_& module) {
  bind_class(module);
  module.def("open", open, nb::arg("path"), nb::arg("isolate"), nb::arg("max_metadata_bytes"),
             nb::arg("opaque_as_bytes") = false);
  module.def(
      "read_index", read_index, nb::arg("directory"), nb::arg("key"), nb::arg("cap"),
      nb::sig(
          "def read_index(directory: str, key: str, cap: int) -> tuple[list[str], list[tuple[str, list[int]]], bool]"));
  module.def("shard_state", state_of, nb::arg("directory"), nb::arg("key"), nb::arg("cap"),
             nb::sig("def shard_state(directory: str, key: str, cap: int) -> tuple[str, int, int | None, str]"));
  module.def(
      "dtypes",
      [] {
        nb::list rows;
        for (const DTypeRow& row : dtype_table())
          rows.append(nb::make_tuple(to_str(row.name), to_str(row.numpy_name), row.block_elems, row.block_bytes));
        return rows;
      },
      nb::sig("def dtypes() -> list[tuple[str, str, int, int]]"),
      "Rows of the type table: safetensors' name, NumPy's name, elements and bytes of a block.");
  module.def(
      "parse_dtype", [](const std::string& text) { return to_str(dtype_row(unwrap(parse_dtype(text))).numpy_name); },
      "NumPy's name of a type that a user wrote.");
  module.def("parse_size", [](const std::string& text) { return unwrap(parse_size(text)); }, "'5GB' in bytes.");
  module.def(
      "nearest_names",
      [](const nb::str& wanted, const nb::list& names, size_t most) {
        std::vector<std::string> texts;
        for (nb::handle name : names) texts.push_back(from_str(name));
        return strs_of(nearest_names(from_str(wanted), texts, most));
      },
      nb::sig("def nearest_names(wanted: str, names: list[str], most: int) -> list[str]"),
      "Up to `most` of `names` that are near to one that is not there.");
  module.def(
      "formats",
      [] {
        nb::list rows;
        for (const Format* format : format_table())
          rows.append(nb::make_tuple(to_str(format->name), to_str(format->description), to_str(format->extensions),
                                     format->can.write, format->can.sharded));
        return rows;
      },
      nb::sig("def formats() -> list[tuple[str, str, str, bool, bool]]"));
}

}  // namespace shardwright::python
