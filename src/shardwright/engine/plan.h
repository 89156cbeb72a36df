/// A plan: which bytes go where, as data. Pure: printed, counted and tested without running.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shardwright/format/catalog.h"
#include "shardwright/format/format.h"

namespace shardwright {

struct PlanOptions {
  uint64_t memory_bytes = 256 * MiB;  ///< hard budget of execute()
  uint64_t part_bytes = 8 * MiB;      ///< aim for one task; lowered when the budget asks for it
  int threads =
      0;  ///< workers; 0 = as many as pay (2 to 4). Chunks side by side (Move::kStream) have a thread each beside them
  bool checksums = false;  ///< receipts carry CRC-32C
};

/// What fills one segment of a file, or one tensor in memory: cut into parts when its turn comes (see cut.h).
struct Move {
  enum Mode : uint8_t {
    kLiteral,  ///< bytes of the draft
    kRegion,   ///< slabs of the target, each gathered from every source piece it cuts
    kStream,  ///< one encoded source piece, decoded once in slabs and scattered: for chunks that do not fit a part. Or several side by side,
              ///< which are whole rows together: for those who want C order
    kEncode,  ///< one encoded target piece, gathered in slabs and encoded, appended in segment order
  };
  TensorId from = kNoTensor;  ///< in the source catalogue
  TensorId to = kNoTensor;    ///< in the target catalogue
  uint32_t segment = 0;  ///< files: index in Lane::segments; else in Lane::regions, kWholeTensor: all of the tensor
  uint32_t source_piece = 0;  ///< kStream
  Mode mode = kLiteral;
  uint32_t source_pieces = 1;  ///< kStream: so many, in PieceIndex's order
};

/// A box of a target in memory, or of one that is called, that is filled by one reading. piece: the target piece that is this box, where the
/// region is one stretch on both sides: then it is read straight there.
struct Region {
  Box box;
  std::optional<uint32_t> piece{};
};

/// Moves in order. A lane is one target object (files), or everything (memory, calls): it has one writer at a time where there are
/// several lanes, and its appends are in order.
struct Lane {
  ObjectId object = 0;
  std::vector<Move> moves;
  std::vector<Segment> segments;  ///< of the object; empty for memory and calls
  std::vector<Region> regions;    ///< memory and calls: those that are less than their tensor
};

class Plan {
 public:
  struct Summary {
    uint64_t tensors = 0, objects = 0, parts = 0;
    uint64_t read_bytes = 0;     ///< source bytes wanted, re-reads included
    uint64_t gap_bytes = 0;      ///< source bytes between those, read and dropped
    uint64_t written_bytes = 0;  ///< target bytes, literals included; late and sealed ones not
    uint64_t work_bytes = 0;     ///< of source values, for progress
    uint64_t need_bytes = 0;     ///< most that one part needs; must fit the budget
    double reread = 1.0;         ///< read_bytes / distinct source bytes
    double excess =
        1.0;  ///< distinct source bytes / what wanted elements take of them: more where an encoded chunk is cut
  };
  Summary summary;

  Catalog from, to;
  PlanOptions options;
  std::vector<Lane> lanes;
  std::vector<ObjectInfo> objects;  ///< of the draft; empty for memory and calls
  int workers = 2;
  uint64_t part_limit = 8 * MiB;         ///< most bytes that a part is cut to, in and out together
  std::vector<uint64_t> decode_windows;  ///< per source encoding, bytes a decoder holds
};

/// Plan for writing a draft. origin[i]: source tensor of target tensor i; empty: the same ids. Values are converted where dtypes differ (the caller decided);
/// shapes must be equal. Errors: kUnsupported (no conversion, codec that must hold more than the budget), kResourceExhausted with the
/// number it needs.
Result<Plan> plan_write(const Catalog& from, const Draft& draft, std::span<const TensorId> origin,
                        const PlanOptions& options);
/// Bytes between two wanted runs of a file that are rather read and dropped than stepped over: what stores merge unless told otherwise.
inline constexpr uint64_t kGapBytes = 64 * KiB;

/// Plan for loading: source order, one read for all boxes a part feeds. Tensors of `to` whose pieces are kMemory are filled there; kCall
/// pieces go to Calls::consume box by box; any other tensor (no pieces, or those of files) is consumed whole, slab by slab. Pieces that are
/// only some of a tensor are filled by reading what lies in them, and gaps of at most kGapBytes between neighbours (Summary::gap_bytes).
Result<Plan> plan_load(const Catalog& from, const Catalog& to, std::span<const TensorId> origin,
                       const PlanOptions& options);

}  // namespace shardwright
