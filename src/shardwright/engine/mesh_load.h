/// From a checkpoint straight onto the devices of a mesh: no tensor is ever whole in one place.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shardwright/engine/device.h"
#include "shardwright/engine/jobs.h"
#include "shardwright/layout/layout_map.h"

namespace shardwright {

/// A tensor of the checkpoint and how it lies on the mesh. Floating types are converted where dtype is not the tensor's.
struct MeshTensor {
  TensorId tensor;
  DType dtype;
  ShardGrid grid;
};

/// A position of the mesh that this process holds, and its device, which outlives the load.
struct MeshSeat {
  int64_t position;
  Device* device;
};

/// The box of a tensor that one position holds, in C order, and whole: nothing is on its way to it any more.
struct MeshBox {
  TensorId tensor;
  DType dtype;
  Box box;
  int64_t position;
  std::unique_ptr<DeviceArray> array;  ///< of 0 bytes for a box without elements
};

struct MeshLoad {
  uint64_t boxes = 0, bytes = 0;           ///< handed on, and in them; shared bytes count for every position
  uint64_t needed_bytes = 0;               ///< of the distinct boxes, as stored
  uint64_t gap_bytes = 0, read_bytes = 0;  ///< of the plan: read and dropped; by the store, gaps included
  uint64_t peak_bytes = 0;                 ///< of the budget; arrays are not in it
  double seconds = 0;
};

/// By the rules of a map; names: empty for all tensors. Errors: kNotFound naming what is missing; the first tensor that cannot be laid out (how
/// many more is said).
Result<std::vector<MeshTensor>> lay_out(const LayoutMap& map, const Catalog& catalog,
                                        const std::vector<std::string>& names = {});

/// Reads what the seats hold, every distinct box once, in file order, and hands each box of each seat to `take` on the calling thread as soon as
/// it is complete; what was handed on is the consumer's to keep or to drop. Where the host reaches a device's memory, bytes are read straight
/// into it; else they go through the budget, part by part, into DeviceArray::put(). Replicas and tied tensors of equal boxes are read once, and
/// share memory where the devices can.
/// Memory: the arrays (room for all of them is asked for before the first byte is read; of the host's, what is not filled yet is not resident), and
/// the plan's budget. A mesh of more processes: each calls this with its own seats, and reads what those hold.
/// REQUIRES: grids of one mesh, which has the positions. Errors: kInvalidArgument for a position given twice, a grid of another shape, boxes
/// that cut a block of a packed type; kResourceExhausted of a device or the budget; those of reading; and of `take`.
Result<MeshLoad> load_onto_mesh(const Checkpoint& checkpoint, std::span<const MeshTensor> tensors,
                                std::span<const MeshSeat> seats, const std::function<Status(MeshBox)>& take,
                                const JobOptions& options);

}  // namespace shardwright
