#include <nanobind/ndarray.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "python/bindings.h"
#include "python/given.h"
#include "python/job_options.h"
#include "python/long_work.h"
#include "python/ranks.h"
#include "python/text.h"
#include "shardwright/base/arena.h"

namespace nb = nanobind;

namespace shardwright::python {
namespace {

using Extents = std::vector<int64_t>;
/// A box of a tensor in memory of the caller: start, extent, address of its first element, strides in elements, big-endian.
using MemoryPiece = std::tuple<Extents, Extents, uint64_t, Extents, bool>;
/// A whole tensor in a file: its absolute path, the file's bytes and version, offset of the first element and bytes from there to the last, the stored
/// dtype, strides in elements (none: C order).
using FilePiece = std::tuple<std::string, uint64_t, std::string, uint64_t, uint64_t, std::string, Extents>;
/// What is to be read: tensor id, dtype wanted, where to.
using Wanted = std::tuple<size_t, std::string, std::vector<MemoryPiece>>;

Status add_pieces(CatalogBuilder& builder, DType dtype, const std::vector<MemoryPiece>& pieces) {
  for (const auto& [start, extent, address, strides, big_endian] : pieces) {
    Box box{start, extent};
    Place place{Place::kMemory, -1, 0, address, bytes_of_elements(dtype, box.elements()).value_or(kUnknown)};
    SHARDWRIGHT_TRY(builder.add_piece({box, place, builder.add_encoding({dtype, big_endian}), strides}));
  }
  return {};
}

Status add_file_piece(CatalogBuilder& builder, std::map<std::string, ObjectId>& files, const Extents& shape,
                      const FilePiece& piece) {
  const auto& [path, file_bytes, version, offset, length, stored, strides] = piece;
  auto [at, fresh] = files.try_emplace(path, 0);
  if (fresh) at->second = builder.add_object({path, file_bytes, version});
  SHARDWRIGHT_ASSIGN(DType dtype, parse_dtype(stored));
  Place place{Place::kExtent, -1, at->second, offset, length};
  return builder.add_piece({Box::whole(shape), place, builder.add_encoding({dtype}), strides});
}

/// The caller's memory as a target.
Result<Catalog> target_of(const Catalog& from, const std::vector<Wanted>& wanted) {
  CatalogBuilder builder;
  for (const auto& [id, dtype, pieces] : wanted) {
    if (id >= from.size()) return fail(Code::kInvalidArgument, "no such tensor id");
    auto spec = from.spec(static_cast<TensorId>(id));
    SHARDWRIGHT_ASSIGN(DType as, parse_dtype(dtype));
    SHARDWRIGHT_TRY(builder.add_tensor(spec.name, as, spec.shape));
    SHARDWRIGHT_TRY(add_pieces(builder, as, pieces));
  }
  return builder.build(/*partial=*/true);
}

/// Reading so much takes no time in which anybody could lose patience.
constexpr uint64_t kSmallBytes = 1 * MiB;

/// A single box in C order, of the tensor's own type: what slicing asks for.
std::optional<std::pair<Box, MutableView>> plain_box(const Catalog& from, const std::vector<Wanted>& wanted) {
  if (wanted.size() != 1 || std::get<2>(wanted[0]).size() != 1 || std::get<0>(wanted[0]) >= from.size()) return {};
  auto spec = from.spec(static_cast<TensorId>(std::get<0>(wanted[0])));
  const auto& [start, extent, address, strides, big_endian] = std::get<2>(wanted[0])[0];
  Box box{start, extent};
  auto bytes = bytes_of_elements(spec.dtype, box.elements());
  bool plain = bytes && std::get<1>(wanted[0]) == dtype_row(spec.dtype).numpy_name &&
               dtype_row(spec.dtype).block_elems == 1 && Strided{box, strides}.is_c_order();
  if (!plain) return {};
  return std::pair(box, MutableView(reinterpret_cast<std::byte*>(address), *bytes));
}

Status load_into(const Checkpoint& checkpoint, const Catalog& target, const std::vector<TensorId>& origin,
                 const JobOptions& options) {
  SHARDWRIGHT_ASSIGN(auto plan, plan_load(checkpoint.catalog, target, origin, options.plan));
  Calls calls;
  calls.keep_going = [&](uint64_t done, uint64_t total) { return options.progress("read", done, total); };
  SHARDWRIGHT_TRY(execute(plan, {checkpoint.store.get(), nullptr, nullptr}, calls));
  return {};
}

void read(const Checkpoint& checkpoint, const std::vector<Wanted>& wanted, uint64_t memory_bytes, int threads,
          nb::object progress) {
  LongWork work(std::move(progress), memory_bytes, threads);
  auto plain = plain_box(checkpoint.catalog, wanted);
  if (plain && plain->second.size() <= kSmallBytes)
    return work.run([&](const JobOptions& options) {
      auto tensor = static_cast<TensorId>(std::get<0>(wanted[0]));
      return read_box(checkpoint, tensor, plain->first, plain->second, options.plan);
    });
  work.run([&](const JobOptions& options) -> Status {
    SHARDWRIGHT_ASSIGN(auto target, target_of(checkpoint.catalog, wanted));
    std::vector<TensorId> origin;
    for (const auto& want : wanted) origin.push_back(static_cast<TensorId>(std::get<0>(want)));
    return load_into(checkpoint, target, origin, options);
  });
}

/// Many whole tensors, each to an address of its own.
void read_whole(const Checkpoint& checkpoint, const std::vector<size_t>& ids, const std::vector<uint64_t>& addresses,
                uint64_t memory_bytes, int threads, nb::object progress) {
  LongWork work(std::move(progress), memory_bytes, threads);
  work.run([&](const JobOptions& options) -> Status {
    const Catalog& from = checkpoint.catalog;
    CatalogBuilder builder;
    std::vector<TensorId> origin;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] >= from.size() || i >= addresses.size()) return fail(Code::kInvalidArgument, "no such tensor id");
      origin.push_back(static_cast<TensorId>(ids[i]));
      auto spec = from.spec(origin.back());
      SHARDWRIGHT_TRY(builder.add_tensor(spec.name, spec.dtype, spec.shape));
      SHARDWRIGHT_TRY(builder.add_flat({Place::kMemory, -1, 0, addresses[i], spec.nbytes()}, spec.dtype));
    }
    SHARDWRIGHT_ASSIGN(auto target, builder.build(/*partial=*/true));
    return load_into(checkpoint, target, origin, options);
  });
}

}  // namespace

Result<Catalog> source_of(const nb::list& given, const std::vector<std::pair<size_t, size_t>>& ties,
                          const std::vector<std::pair<std::string, std::string>>& values,
                          const std::vector<std::pair<std::string, std::string>>& side_files, bool partial) {
  CatalogBuilder builder;
  std::map<std::string, ObjectId> files;
  for (const auto& [name, path] : side_files) builder.add_side_file({name, path});
  nb::object dtype_name;
  DType dtype = DType::kU8;
  for (nb::handle row : given) {
    if (!row[1].is(dtype_name)) {  // mostly the same as before
      dtype_name = row[1];
      SHARDWRIGHT_ASSIGN(dtype, parse_dtype(nb::cast<std::string>(dtype_name)));
    }
    std::string text = from_str(nb::object(row[0]));
    auto shape = nb::cast<Extents>(row[2]);
    nb::object where = row[3];
    auto elements = element_count(shape);
    auto bytes = elements ? bytes_of_elements(dtype, *elements) : std::nullopt;
    if (!elements || *elements > std::numeric_limits<int64_t>::max() / 8)
      return fail(Code::kInvalidArgument, "no memory has so many elements")
          .at_tensor(text)
          .with_found(shape_text(shape));
    if (!bytes)
      return fail(Code::kInvalidArgument,
                  "its number of elements does not fit whole bytes of " + std::string(dtype_row(dtype).numpy_name))
          .at_tensor(text)
          .with_found(shape_text(shape));
    SHARDWRIGHT_TRY(builder.add_tensor(text, dtype, shape));
    if (nb::isinstance<nb::list>(where)) {
      SHARDWRIGHT_TRY(add_pieces(builder, dtype, nb::cast<std::vector<MemoryPiece>>(where)));
      continue;
    }
    if (nb::isinstance<nb::tuple>(where)) {
      SHARDWRIGHT_TRY(add_file_piece(builder, files, shape, nb::cast<FilePiece>(where)));
      continue;
    }
    Place place{where.is_none() ? Place::kCall : Place::kMemory, -1, 0, 0, *bytes};
    if (!where.is_none()) place.offset = nb::cast<uint64_t>(where);
    SHARDWRIGHT_TRY(builder.add_flat(place, dtype));
  }
  for (const auto& [alias, kept] : ties) builder.tie(static_cast<TensorId>(alias), static_cast<TensorId>(kept));
  for (const auto& [key, json] : values) builder.set_value(key, {Value::kJson, json});
  return builder.build(partial);
}

namespace {

/// produce(id, start, extent, into): fills the bytes `into` with a box of tensor `id`, C order, little-endian.
nb::dict write(const nb::list& given, const std::vector<std::pair<size_t, size_t>>& ties,
               const std::vector<std::pair<std::string, std::string>>& values, const nb::dict& request_fields,
               nb::object produce, uint64_t memory_bytes, int threads, nb::object progress, Ranks* ranks,
               const std::vector<std::pair<std::string, std::string>>& side_files) {
  CopyRequest request = copy_request_of(request_fields);
  // Needs the GIL: names are Python's.
  Result<Catalog> source = source_of(given, ties, values, side_files, /*partial=*/ranks != nullptr);
  if (ranks == nullptr && !source.ok()) throw Raised(std::move(source.error()));
  LongWork work(std::move(progress), memory_bytes, threads);
  Calls calls;
  if (!produce.is_none())
    calls.produce = [&](TensorId id, const Box& box, MutableView into) {
      return work.call([&] {
        auto view = nb::steal(PyMemoryView_FromMemory(reinterpret_cast<char*>(into.data()),
                                                      static_cast<Py_ssize_t>(into.size()), PyBUF_WRITE));
        produce(id, box.start, box.extent, view);
      });
    };
  if (ranks == nullptr)
    return summary_of(
        work.run([&](const JobOptions& options) { return save_tensors(*source, calls, request, options); }));
  return summary_of(ranks->run(work, [&](JobOptions options, Comm& comm) -> Result<CopySummary> {
    options.wait = ranks->wait();
    SHARDWRIGHT_TRY(agree(comm, source.ok() ? Status() : source.error(), deadline_in(options.wait)));
    return save_tensors(*source, calls, request, options, comm);
  }));
}

/// In place of write(), by a rank that cannot: the others learn why, and the ranks stay usable.
void refuse_write(Ranks& ranks, const nb::str& why) {
  Status mine = fail(Code::kInvalidArgument, "a rank cannot take part in the save").with_found(from_str(why));
  LongWork work(nb::none(), 0, 0);
  (void)ranks.run(work, [&](const JobOptions&, Comm& comm) -> Result<bool> {
    return agree(comm, mine, deadline_in(ranks.wait())).ok();
  });
}

using ByteArray = nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>;

/// Fresh memory for results, in pages of 2 MiB where it is large: page faults, not copying, are what loading costs.
ByteArray arena(uint64_t bytes) {
  auto* slab = new Slab(Slab::allocate(bytes));
  nb::capsule owner(slab, [](void* held) noexcept { delete static_cast<Slab*>(held); });
  size_t shape[] = {bytes};
  return ByteArray(slab->data(), 1, shape, owner);
}

/// Bytes of an arena: they go back to the system with the array.
ByteArray take(Arena& arena, uint64_t bytes) {
  auto* part = new ArenaPart(arena.allocate(bytes));
  nb::capsule owner(part, [](void* held) noexcept { delete static_cast<ArenaPart*>(held); });
  size_t shape[] = {bytes};
  return ByteArray(part->span().data(), 1, shape, owner);
}

using Exported = nb::ndarray<nb::array_api>;

/// The same bytes under a type that NumPy cannot export by DLPack (bfloat16, float8).
Exported export_bytes(const ByteArray& bytes, const std::vector<size_t>& shape, int code, int bits) {
  nb::dlpack::dtype type{static_cast<uint8_t>(code), static_cast<uint8_t>(bits), 1};
  return Exported(bytes.data(), shape.size(), shape.data(), nb::find(bytes), nullptr, type);
}

}  // namespace

void bind_transfer(nb::module_& module) {
  module.def(
      "read", read, nb::arg("checkpoint"), nb::arg("wanted"), nb::arg("memory_bytes"), nb::arg("threads"),
      nb::arg("progress").none(),
      nb::sig("def read(checkpoint: Checkpoint, wanted: list[typing.Any], memory_bytes: int, threads: int, "
              "progress: object) -> None"),
      "Reads boxes of tensors into memory of the caller, which lives and is written by nobody else until this "
      "returns.\n\nwanted: (tensor id, dtype, [(start, extent, address, strides in elements, False)]); boxes of one "
      "tensor do not overlap. Floating types are converted where the dtype differs.");
  module.def("read_whole", read_whole, nb::arg("checkpoint"), nb::arg("ids"), nb::arg("addresses"),
             nb::arg("memory_bytes"), nb::arg("threads"), nb::arg("progress").none(),
             nb::sig("def read_whole(checkpoint: Checkpoint, ids: list[int], addresses: list[int], memory_bytes: int, "
                     "threads: int, progress: object) -> None"),
             "Reads whole tensors, each to an address with room for its values, in its own dtype.");
  module.def("write", write, nb::arg("tensors"), nb::arg("ties"), nb::arg("values"), nb::arg("request"),
             nb::arg("produce").none(), nb::arg("memory_bytes"), nb::arg("threads"), nb::arg("progress").none(),
             nb::arg("ranks").none() = nb::none(),
             nb::arg("side_files") = std::vector<std::pair<std::string, std::string>>(),
             nb::sig("def write(tensors: list[typing.Any], ties: list[tuple[int, int]], values: list[tuple[str, str]], "
                     "request: dict[str, object], produce: object, memory_bytes: int, threads: int, progress: object, "
                     "ranks: Ranks | None = None, side_files: list[tuple[str, str]] = ...) -> dict[str, typing.Any]"),
             "Writes a checkpoint from memory of the caller, from files, and from produce(id, start, extent, into); "
             "with ranks, all of them one checkpoint, each what it holds.");
  module.def("file_version", file_version, nb::arg("path"),
             "What tells two states of a file apart beside its size; '' when it cannot be looked at.");
  module.def("refuse_write", refuse_write, nb::arg("ranks"), nb::arg("why"));
  module.def("arena", arena, nb::arg("bytes"), "Fresh bytes, aligned to 2 MiB where there are at least so many.");
  nb::class_<Arena>(module, "Arena", "Fresh memory for arrays side by side in pages of 2 MiB; each is freed by itself.")
      .def(nb::init<>())
      .def("take", take, nb::arg("bytes"), "Bytes at a 64-byte boundary.");
  module.def("export_bytes", export_bytes, nb::arg("bytes"), nb::arg("shape"), nb::arg("code"), nb::arg("bits"),
             "An object with __dlpack__ over these bytes.");
}

}  // namespace shardwright::python
