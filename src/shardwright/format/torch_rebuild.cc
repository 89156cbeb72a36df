#include "shardwright/format/torch_rebuild.h"

#include <fmt/format.h>

#include <algorithm>

#include "shardwright/base/text.h"
#include "shardwright/format/torch_types.h"

namespace shardwright {
namespace {

using Outcome = TorchRebuild::Outcome;

constexpr int kMostWrappers = 8;                  // Parameter of Parameter of ...
constexpr uint64_t kMostRepeatedBytes = 1 * GiB;  // of a view that shows elements more than once

constexpr std::string_view kUtils = "torch._utils", kTensorModule = "torch._tensor";
constexpr std::string_view kFromType = "_rebuild_from_type_v2";

constexpr size_t kMostMetadata = 16;  // torch has two marks

std::span<const PickleValue> first_of(std::span<const PickleValue> items, size_t most) {
  return items.first(std::min(items.size(), most));
}

Outcome opaque(std::string what) { return std::optional(std::move(what)); }
Outcome done() { return std::optional<std::string>(); }

Error bad(std::string message) { return fail(Code::kCorrupt, std::move(message)); }

std::string full_name(const Pickle::Global& global) {
  return std::string(global.module) + "." + std::string(global.name);
}

/// Types of tensors that are what their function makes, and nothing more.
bool is_plain_type(const Pickle::Global& type) {
  return (type.module == "torch" && type.name == "Tensor") ||
         (type.module == "torch.nn.parameter" && (type.name == "Parameter" || type.name == "Buffer"));
}

template <class T>
Bytes bytes_of_numbers(std::span<const T> numbers) {
  auto raw = std::as_bytes(numbers);
  return {raw.begin(), raw.end()};
}

/// Packages whose every function does something other than make a value.
constexpr std::string_view kRunning[] = {
    "os",      "posix",  "nt",       "sys",        "subprocess", "shutil",   "importlib",
    "runpy",   "pty",    "socket",   "ctypes",     "pickle",     "_pickle",  "marshal",
    "code",    "codeop", "commands", "webbrowser", "pdb",        "bdb",      "timeit",
    "http",    "urllib", "requests", "profile",    "cProfile",   "operator", "multiprocessing",
    "asyncio", "pkgutil"};
/// Of builtins what makes a value.
constexpr std::string_view kBuiltins[] = {"bool",      "bytearray", "bytes", "complex", "dict",   "float",
                                          "frozenset", "int",       "list",  "object",  "range",  "set",
                                          "slice",     "str",       "tuple", "long",    "unicode"};
constexpr std::pair<std::string_view, std::string_view> kRunningNames[] = {
    {"torch", "load"}, {"torch.hub", "load"}, {"torch.serialization", "load"}, {"numpy", "load"}};

}  // namespace

bool is_torch_rebuild(const Pickle::Global& function) {
  return (function.module == kUtils && function.name.starts_with("_rebuild_")) ||
         (function.module == kTensorModule && function.name.starts_with("_rebuild_"));
}

bool runs_code(const Pickle::Global& global) {
  auto package = global.module.substr(0, global.module.find('.'));
  if (package == "builtins" || package == "__builtin__")
    return std::ranges::find(kBuiltins, global.name) == std::end(kBuiltins);
  if (std::ranges::find(kRunning, package) != std::end(kRunning)) return true;
  return std::ranges::find(kRunningNames, std::pair(global.module, global.name)) != std::end(kRunningNames);
}

Outcome TorchRebuild::run(const std::string& name, Value value) { return this->value(name, value, 0); }

Outcome TorchRebuild::value(const std::string& name, Value value, int depth) {
  if (value.is(Value::kPersistent)) return whole_storage(name, value);
  if (!value.is(Value::kCall)) return bad("no tensor where one should be").at_tensor(name);
  if (depth > kMostWrappers) return bad("a tensor is wrapped too many times").at_tensor(name);
  const auto& call = pickle_.call(value);
  auto function = pickle_.global(call.callable);
  if (!is_torch_rebuild(function)) return opaque(full_name(function));
  return this->call(name, function, pickle_.items(call.arguments), depth);
}

Outcome TorchRebuild::call(const std::string& name, Pickle::Global function, Values arguments, int depth) {
  auto needs = [&](size_t count) -> Status {
    if (arguments.size() >= count) return {};
    return bad(fmt::format("{} is called with too few arguments", function.name)).at_tensor(name);
  };
  auto optional = [&](size_t index) {
    return index < arguments.size() ? std::optional(arguments[index]) : std::nullopt;
  };
  auto called = function.name;
  if (called == "_rebuild_tensor" || called == "_rebuild_tensor_v2") {
    SHARDWRIGHT_TRY(needs(4));
    return strided(name, arguments, std::nullopt, optional(6));
  }
  if (called == "_rebuild_tensor_v3") {
    SHARDWRIGHT_TRY(needs(7));
    return strided(name, arguments, arguments[6], optional(7));
  }
  if (called == "_rebuild_parameter" || called == "_rebuild_parameter_with_state" ||
      called == "_rebuild_device_tensor_from_cpu_tensor") {
    SHARDWRIGHT_TRY(needs(1));
    return value(name, arguments[0], depth + 1);
  }
  if (called == "_rebuild_qtensor") {
    SHARDWRIGHT_TRY(needs(5));
    return quantised(name, arguments, depth);
  }
  if (called == "_rebuild_sparse_tensor") {
    SHARDWRIGHT_TRY(needs(2));
    return sparse(name, arguments, depth);
  }
  if (called == kFromType) {
    SHARDWRIGHT_TRY(needs(3));
    return from_type(name, arguments, depth);
  }
  if (called == "_rebuild_meta_tensor_no_storage") return opaque("a tensor on the meta device: it has no bytes");
  return opaque(full_name(function));
}

Result<std::vector<int64_t>> TorchRebuild::integers(Value value, std::string_view what) const {
  auto wrong = [&] { return bad(fmt::format("{} is no tuple of integers", what)); };
  if (value.is(Value::kCall)) {  // torch.Size((2, 3))
    const auto& call = pickle_.call(value);
    auto arguments = pickle_.items(call.arguments);
    if (pickle_.global(call.callable).name != "Size" || arguments.size() != 1) return wrong();
    value = arguments[0];
  }
  if (!value.is(Value::kTuple) && !value.is(Value::kList)) return wrong();
  std::vector<int64_t> out;
  if (pickle_.items(value).size() > kMostTorchDimensions)
    return fail(Code::kUnsupported, fmt::format("{} has too many dimensions", what))
        .with_found(fmt::format("{}", pickle_.items(value).size()))
        .with_expected(fmt::format("at most {}", kMostTorchDimensions));
  for (const auto& item : pickle_.items(value)) {
    if (!item.is(Value::kInt)) return wrong();
    out.push_back(item.integer());
  }
  return out;
}

/// The elements that shape and strides reach lie within the storage, and are not made many times more by repeating them.
Status TorchRebuild::check_reach(TorchTensor& tensor) const {
  auto wrong = [&](std::string message) {
    return bad(std::move(message))
        .at_tensor(std::string(tensor.name))
        .with_found(fmt::format("shape {}, strides {}, offset {}", shape_text(tensor.shape), shape_text(tensor.strides),
                                tensor.offset));
  };
  if (tensor.shape.size() != tensor.strides.size()) return wrong("shape and strides differ in their dimensions");
  auto negative = [](int64_t value) { return value < 0; };
  if (std::ranges::any_of(tensor.shape, negative) || std::ranges::any_of(tensor.strides, negative))
    return wrong("a negative size or stride");
  const auto& row = dtype_row(tensor.dtype);
  uint64_t held = storages_.storages[tensor.storage].bytes, capacity = held / row.block_bytes;
  if (std::ranges::find(tensor.shape, 0) != tensor.shape.end()) {
    tensor.offset = 0;  // of nothing
    return {};
  }
  std::optional<uint64_t> last = tensor.offset, count = 1;
  for (size_t d = 0; d < tensor.shape.size() && last; ++d) {
    auto extent = static_cast<uint64_t>(tensor.shape[d]);
    auto span = checked_mul(extent - 1, static_cast<uint64_t>(tensor.strides[d]));
    last = span ? checked_add(*last, *span) : std::nullopt;
    count = count ? checked_mul(*count, extent) : count;
  }
  if (!last || *last >= capacity)
    return wrong("tensor reaches beyond its storage").with_expected(fmt::format("at most {} elements", capacity));
  auto bytes = count ? checked_mul(*count, row.block_bytes) : std::nullopt;
  if (bytes && (*bytes <= held || *bytes <= kMostRepeatedBytes)) return {};
  return fail(Code::kUnsupported, "a view repeats the elements of its storage too often to be written out")
      .at_tensor(std::string(tensor.name))
      .with_found(fmt::format("{} of {}", shape_text(tensor.shape), row.name))
      .with_expected(fmt::format("at most {}", format_bytes(std::max(held, kMostRepeatedBytes))));
}

Outcome TorchRebuild::strided(const std::string& name, Values arguments, std::optional<Value> dtype,
                              std::optional<Value> metadata) {
  if (!arguments[0].is(Value::kPersistent)) return bad("tensor has no storage").at_tensor(name);
  const auto& reference = storages_.references[arguments[0].at];
  if (reference.storage == TorchStorages::kOther) return bad("tensor has no storage").at_tensor(name);
  if (!arguments[1].is(Value::kInt) || arguments[1].integer() < 0)
    return bad("offset of a tensor is no number of elements").at_tensor(name);
  if (metadata && metadata->is(Value::kDict))  // {'conj': True}: the values are to be changed on the way
    for (const auto& item : first_of(pickle_.items(*metadata), kMostMetadata))
      if (item.is(Value::kBool) && item.at != 0) return opaque("a tensor to be conjugated or negated when it is used");
  TorchTensor tensor;
  tensor.name = name;
  tensor.storage = reference.storage;
  tensor.offset = arguments[1].at;
  auto type = reference.dtype;
  if (dtype) type = dtype->is(Value::kGlobal) ? torch_dtype(pickle_.global(*dtype).name) : std::nullopt;
  if (!type)
    return opaque(fmt::format("a tensor of {}",
                              dtype && dtype->is(Value::kGlobal) ? pickle_.global(*dtype).name : reference.class_name));
  if (storages_.storages[reference.storage].bytes == kUnknown)
    return opaque(fmt::format("a tensor in a {}", reference.class_name));
  tensor.dtype = *type;
  SHARDWRIGHT_ASSIGN(tensor.shape, integers(arguments[2], "size of a tensor"));
  SHARDWRIGHT_ASSIGN(tensor.strides, integers(arguments[3], "stride of a tensor"));
  SHARDWRIGHT_TRY(check_reach(tensor));
  SHARDWRIGHT_TRY(emit_(tensor));
  return done();
}

Outcome TorchRebuild::whole_storage(const std::string& name, Value persistent) {
  const auto& reference = storages_.references[persistent.at];
  if (reference.storage == TorchStorages::kOther) return opaque("source text of a class");
  if (!reference.dtype) return opaque(fmt::format("a {}", reference.class_name));
  TorchTensor tensor;
  tensor.name = name;
  tensor.dtype = *reference.dtype;
  tensor.shape = {static_cast<int64_t>(reference.elements)};
  tensor.strides = {1};
  tensor.storage = reference.storage;
  SHARDWRIGHT_TRY(emit_(tensor));
  return done();
}

Status TorchRebuild::emit_literal(const std::string& name, DType dtype, std::vector<int64_t> shape, View bytes) {
  TorchTensor tensor;
  tensor.name = name;
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  tensor.literal = bytes;
  return emit_(tensor);
}

Outcome TorchRebuild::quantised(const std::string& name, Values arguments, int depth) {
  auto wrong = [&](std::string message) { return bad(std::move(message)).at_tensor(name); };
  auto parameters = arguments[4].is(Value::kTuple) ? pickle_.items(arguments[4]) : Values();
  if (parameters.size() < 3 || !parameters[0].is(Value::kGlobal)) return wrong("quantised tensor without its scale");
  SHARDWRIGHT_ASSIGN(auto shape, integers(arguments[2], "size of a tensor"));
  SHARDWRIGHT_ASSIGN(auto outcome, strided(name, arguments, std::nullopt, std::nullopt));
  if (outcome) return outcome;
  if (parameters[1].is(Value::kFloat) && parameters[2].is(Value::kInt)) {
    const double scale[] = {parameters[1].real()};
    const int64_t zero[] = {parameters[2].integer()};
    SHARDWRIGHT_TRY(emit_literal(name + ".scale", DType::kF64, {}, bytes_of_numbers<double>(scale)));
    SHARDWRIGHT_TRY(emit_literal(name + ".zero_point", DType::kI64, {}, bytes_of_numbers<int64_t>(zero)));
    return done();
  }
  if (parameters.size() < 4 || !parameters[3].is(Value::kInt)) return wrong("quantised tensor without its axis");
  const int64_t axis[] = {parameters[3].integer()};
  if (axis[0] < 0 || static_cast<uint64_t>(axis[0]) >= shape.size())
    return wrong("axis of a quantised tensor is none of its dimensions");
  // Scale and zero point are one a channel.
  Emit check = [&](const TorchTensor& tensor) -> Status {
    if (tensor.shape == std::vector{shape[static_cast<size_t>(axis[0])]}) return emit_(tensor);
    return wrong("scales of a quantised tensor are not one a channel").with_found(shape_text(tensor.shape));
  };
  TorchRebuild channels(pickle_, storages_, check);
  for (auto [suffix, part] : {std::pair(".scale", parameters[1]), std::pair(".zero_point", parameters[2])}) {
    SHARDWRIGHT_ASSIGN(outcome, channels.value(name + suffix, part, depth + 1));
    if (outcome) return wrong("scales of a quantised tensor cannot be read: " + *outcome);
  }
  SHARDWRIGHT_TRY(emit_literal(name + ".axis", DType::kI64, {}, bytes_of_numbers<int64_t>(axis)));
  return done();
}

Outcome TorchRebuild::sparse(const std::string& name, Values arguments, int depth) {
  auto wrong = [&](std::string message) { return bad(std::move(message)).at_tensor(name); };
  std::string_view layout;
  if (arguments[0].is(Value::kCall)) {  // torch.serialization._get_layout('torch.sparse_coo')
    auto given = pickle_.items(pickle_.call(arguments[0]).arguments);
    if (given.size() == 1 && given[0].is(Value::kText)) layout = pickle_.text(given[0]);
  }
  struct Layout {
    std::string_view name;
    std::vector<std::string> tensors;
  };
  const Layout layouts[] = {{"torch.sparse_coo", {".indices", ".values"}},
                            {"torch.sparse_csr", {".crow_indices", ".col_indices", ".values"}},
                            {"torch.sparse_bsr", {".crow_indices", ".col_indices", ".values"}},
                            {"torch.sparse_csc", {".ccol_indices", ".row_indices", ".values"}},
                            {"torch.sparse_bsc", {".ccol_indices", ".row_indices", ".values"}}};
  auto known = std::ranges::find(layouts, layout, &Layout::name);
  if (known == std::end(layouts)) return opaque(fmt::format("a sparse tensor of layout {}", json_quote(layout)));
  auto parts = arguments[1].is(Value::kTuple) ? pickle_.items(arguments[1]) : Values();
  if (parts.size() <= known->tensors.size()) return wrong("sparse tensor without all of its parts");
  SHARDWRIGHT_ASSIGN(auto shape, integers(parts[known->tensors.size()], "size of a sparse tensor"));
  for (size_t i = 0; i < known->tensors.size(); ++i) {
    SHARDWRIGHT_ASSIGN(auto outcome, value(name + known->tensors[i], parts[i], depth + 1));
    if (outcome) return wrong("part of a sparse tensor cannot be read: " + *outcome);
  }
  SHARDWRIGHT_TRY(emit_literal(name + ".size", DType::kI64, {static_cast<int64_t>(shape.size())},
                               bytes_of_numbers<int64_t>(shape)));
  return done();
}

Outcome TorchRebuild::from_type(const std::string& name, Values arguments, int depth) {
  if (!arguments[0].is(Value::kGlobal) || !arguments[1].is(Value::kGlobal) || !arguments[2].is(Value::kTuple))
    return bad("tensor of a type that is not named").at_tensor(name);
  auto function = pickle_.global(arguments[0]), type = pickle_.global(arguments[1]);
  if (!is_plain_type(type) || !is_torch_rebuild(function)) return opaque(full_name(type));
  if (depth > kMostWrappers) return bad("a tensor is wrapped too many times").at_tensor(name);
  return call(name, function, pickle_.items(arguments[2]), depth + 1);
}

}  // namespace shardwright
