/// The HDF5 file that a set of tensors becomes: where each payload goes, and every other byte of the file.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "shardwright/format/format.h"
#include "shardwright/format/hdf5_recording_driver.h"

namespace shardwright {

/// One dataset to be: stored once under the first path, hard links at the others. A path that is not the tensor's name carries the name as
/// attribute `shardwright_name`: of the dataset for the first path, of the group for a link (always `.../vars/0` then).
struct Hdf5Plan {
  struct Name {
    std::string path, name;
  };
  TensorId tensor = kNoTensor;  ///< in the catalogue; not an alias
  std::vector<Name> names;      ///< at least one
};

/// Labels of `vars` groups ("layers/dense/vars" -> "my dense"), written as attribute `name` where the group is made.
using Hdf5Labels = std::map<std::string, std::string, std::less<>>;

class Hdf5Layout {
 public:
  /// Runs the library against memory: contiguous datasets in the order of `plans`, no times, so equal input gives equal bytes.
  /// labels: those written are taken out. metadata: JSON text for the root attribute; "" for none. empty_groups: labels of groups
  /// without datasets are written too, as Keras does in one file.
  /// Memory: the metadata of the file, about 0.6 KB a dataset and 1.2 KB a group. 40 to 100 microseconds per dataset.
  /// Errors: kUnsupported (shape of more than 32 dimensions, names too long), kInternal (the library refuses).
  static Result<Hdf5Layout> make(const Catalog& want, std::span<const Hdf5Plan> plans, Hdf5Labels& labels,
                                 const std::string& metadata, bool empty_groups = false);

  uint64_t size() const { return recording_.size; }
  /// Literals and payloads in byte order, offsets counted from `base`. Views are owned by this object.
  std::vector<Segment> segments(uint64_t base = 0) const;

 private:
  struct Payload {
    uint64_t offset, length;
    TensorId tensor;
  };
  void append_literals(std::vector<Segment>& out, uint64_t from, uint64_t to, uint64_t base) const;
  Hdf5Recording recording_;
  std::vector<Payload> payloads_;  // by offset
};

}  // namespace shardwright
