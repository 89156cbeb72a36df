/// The functions by which torch's pickles make tensors, read and not called. Private to torch_objects.cc.
#pragma once

#include "shardwright/format/torch_objects.h"

namespace shardwright {

/// True when a call of it is torch's way to make a tensor, of whatever kind.
bool is_torch_rebuild(const Pickle::Global& function);

/// True for what runs code of the file's choosing when a pickle is loaded: os.system, builtins.eval, ... No such file holds only tensors.
bool runs_code(const Pickle::Global& global);

/// Gives the tensors that a call of a rebuild function makes, under `name` and names below it.
/// Returns why it is opaque instead: "a tensor of ComplexDoubleStorage"; nullopt when it was not.
class TorchRebuild {
 public:
  using Emit = std::function<Status(const TorchTensor&)>;
  TorchRebuild(const Pickle& pickle, const TorchStorages& storages, const Emit& emit)
      : pickle_(pickle), storages_(storages), emit_(emit) {}
  using Outcome = Result<std::optional<std::string>>;
  Outcome run(const std::string& name, PickleValue value);
  /// A storage that stands for itself: all its elements in one dimension.
  Outcome whole_storage(const std::string& name, PickleValue persistent);

 private:
  using Value = PickleValue;
  using Values = std::span<const PickleValue>;
  Outcome call(const std::string& name, Pickle::Global function, Values arguments, int depth);
  Outcome value(const std::string& name, Value value, int depth);
  Outcome strided(const std::string& name, Values arguments, std::optional<Value> dtype, std::optional<Value> metadata);
  Outcome quantised(const std::string& name, Values arguments, int depth);
  Outcome sparse(const std::string& name, Values arguments, int depth);
  Outcome from_type(const std::string& name, Values arguments, int depth);
  Status check_reach(TorchTensor& tensor) const;
  Result<std::vector<int64_t>> integers(Value value, std::string_view what) const;
  Status emit_literal(const std::string& name, DType dtype, std::vector<int64_t> shape, View bytes);

  const Pickle& pickle_;
  const TorchStorages& storages_;
  const Emit& emit_;
};

}  // namespace shardwright
