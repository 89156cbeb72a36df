/// Tasks: what one worker does at once, cut from a plan's moves in order.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "shardwright/engine/cut.h"
#include "shardwright/engine/plan.h"

namespace shardwright {

/// Bytes of elements that are known to be whole blocks: parts are cut so.
inline uint64_t bytes_in(DType dtype, uint64_t elements) { return bytes_of_elements(dtype, elements).value_or(0); }

/// copy_strided() of any type; packed ones run by run, whose ends are whole bytes. Strides in elements.
void copy_values(DType dtype, const Box& part, const Strided& from_layout, const std::byte* from,
                 const Strided& to_layout, std::byte* to);

/// The pieces of one source tensor, sorted so that those which a region cuts are found without looking at all.
class PieceIndex {
 public:
  PieceIndex(const Catalog& catalog, TensorId tensor);
  /// Pieces that share elements with `region`, in C order of their starts. Replicas of one box: the first only.
  std::vector<const Piece*> cutting(const Box& region) const;
  const std::vector<Piece>& all() const { return pieces_; }

 private:
  std::vector<Piece> pieces_;  // by start
  int64_t longest_ = 0;        // largest extent of dimension 0
};

/// How a move is cut: what its parts look like.
struct Geometry {
  Box box;            ///< the target piece, or the tensor; part ranges count in its C order
  bool line = false;  ///< both sides are flat: cut as one line of elements, without boxes
  std::optional<Catalog::Flat> from,
      to;              ///< set where that side is one raw stretch in C order (`to`: in memory)
  uint32_t piece = 0;  ///< of the target, where `to` is set
  /// Set where the target piece is scattered over its object: how its box lies there, from the segment's first byte.
  std::optional<Strided> scattered;
  DType in, out;
  Cut cut;
  uint64_t slab_elements = 0;  ///< kStream: elements held at once
  uint64_t task_bytes = 0;     ///< most that a task with parts of it takes in
};

/// What a part needs of one source piece that is not read straight into place.
struct Source {
  const Piece* piece;
  Box overlap;
  uint64_t scratch_at = 0, scratch_bytes = 0;  ///< in the task's buffer
};

struct Part {
  const Move* move;
  std::shared_ptr<const Geometry> geometry;
  std::shared_ptr<const PieceIndex> pieces;  ///< null for literals and flat sources
  Range range;                               ///< elements of geometry->box
  Box box;                                   ///< the same as a box; not set for literals and lines
  std::vector<Source> sources;
  uint64_t reserve_at = 0;             ///< kEncode: room for encoded output in the task's buffer
  uint64_t index = 0;                  ///< which part of its move
  uint64_t in_at = 0, in_bytes = 0;    ///< values as stored, in the task's buffer
  uint64_t out_at = 0, out_bytes = 0;  ///< values as wanted; the same place as `in` when nothing is converted
  bool direct = false;                 ///< read straight into the caller's memory
  View lent{};  ///< files: the values as wanted, where the source's memory has them so; they take no room then
  /// In the task's buffer, or lent.
  View values(View buffer) const { return lent.empty() ? buffer.subspan(out_at, out_bytes) : lent; }
};

struct Task {
  size_t lane = 0;
  uint64_t sequence = 0;  ///< order of picking
  std::vector<Part> parts;
  uint64_t need_bytes = 0;  ///< to be granted, whole
  uint64_t work_bytes = 0;  ///< for progress
};

/// What a kStream part decodes: a chunk, or the rows that several are together.
Box streamed_box(const Part& part);

/// Whether a producer makes the values of a part.
bool is_produced(const Plan& plan, const Part& part);

/// False when the source is one stretch: no boxes are needed to read it.
bool needs_pieces(const Plan& plan, const Lane& lane, const Move& move);

/// Geometry of a move under the plan's limits. Cheap: O(rank) for flat moves, O(pieces) to decide how encoded chunks are cut.
Geometry move_geometry(const Plan& plan, const Lane& lane, const Move& move, const PieceIndex* pieces);

/// Budget of a kEncode task beyond its slabs: the encoder's window, and room for its output (up to a part; a larger output is appended
/// while it comes, when its turn has come).
uint64_t encode_reserve(const Plan& plan, const Segment& segment);

/// The part of a kRegion move that holds `range`; takes its room in the task's buffer from `at` on.
Part region_part(const Plan& plan, const Move& move, std::shared_ptr<const Geometry> geometry,
                 std::shared_ptr<const PieceIndex> pieces, Range range, uint64_t& at);

/// Walks one lane's moves and cuts tasks of about plan.part_limit bytes; small neighbours share one task. Not thread-safe.
class TaskCutter {
 public:
  TaskCutter(const Plan& plan, size_t lane) : plan_(plan), lane_(lane) {}
  std::optional<Task> next();
  bool done() const;

 private:
  bool start_move();
  Part cut_part(uint64_t& at) const;
  Part stream_part(uint64_t& at) const;

  const Plan& plan_;
  const size_t lane_;
  size_t move_ = 0;
  uint64_t part_ = 0;
  std::shared_ptr<const Geometry> geometry_;
  std::shared_ptr<const PieceIndex> pieces_;
};

}  // namespace shardwright
