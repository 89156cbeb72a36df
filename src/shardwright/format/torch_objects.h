/// What a pickle of torch.save says: tensors by name, the storages that hold their elements, and what is neither. No I/O.
///
/// The tree of dictionaries, lists and tuples becomes names: keys and indexes joined by '.'. A tensor that is the whole file is called "tensor".
/// A quantised tensor w is its integers, with w.scale, w.zero_point and, by channel, w.axis beside it; a sparse one is its parts (s.indices,
/// s.values, s.size, or s.crow_indices, ...). Whatever needs code of its own to be made is opaque: named, never made.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "shardwright/base/json.h"
#include "shardwright/format/pickle.h"
#include "shardwright/tensor/dtype.h"

namespace shardwright {

/// One storage of the file, by its key there.
struct TorchStorage {
  std::string_view key;
  uint64_t bytes = kUnknown;  ///< as every reference to it says; kUnknown: of a class whose size is not known
  uint64_t elements = 0;      ///< as the first says
};

/// Storages in the order in which the pickle first names them, and what each of its persistent ids refers to.
struct TorchStorages {
  static constexpr uint32_t kOther = ~0u;  ///< not a storage: the source text of a class
  struct Reference {
    uint32_t storage = kOther;
    std::string_view class_name;
    std::optional<DType> dtype;
    uint64_t elements = 0;
  };
  std::vector<TorchStorage> storages;
  std::vector<Reference> references;  ///< one per pickle.persistents()

  /// numbered: keys must be decimal numbers, as names of members of a zip are.
  /// Errors: kCorrupt: ids that are none of torch's, sizes that contradict one another; kUnsupported: views of storages (before 0.4).
  static Result<TorchStorages> find(const Pickle& pickle, bool numbered);
};

struct TorchTensor {
  std::string_view name;
  DType dtype = DType::kU8;
  std::vector<int64_t> shape, strides;  ///< elements, as torch counts them
  uint32_t storage = 0;                 ///< in TorchStorages::storages
  uint64_t offset = 0;                  ///< elements of dtype
  View literal{};                       ///< not empty: the value itself; no storage, contiguous
};

struct TorchOther {
  std::map<std::string, std::string> opaque;  ///< name -> what it is: "torch.nn.modules.linear.Linear"
  std::map<std::string, Json> values;         ///< name -> number, text, null, or an array of them
};

/// Calls `tensor` for each, in the tree's order; views in it die on return. Its errors end the walk.
/// Every tensor's strides have been held against its storage: shape and strides are not negative and reach no element beyond it.
/// Errors: kCorrupt: a tensor that contradicts its storage, names of what would run code elsewhere (os.system), a tree that is too deep, or
/// too large because it repeats itself; kUnsupported: views that repeat elements so that they would come to more than 1 GiB and the storage.
Result<TorchOther> walk_torch_objects(const Pickle& pickle, const TorchStorages& storages,
                                      const std::function<Status(const TorchTensor&)>& tensor);

}  // namespace shardwright
