/// What each rank writes of a checkpoint that all write together: every box once, whatever the replication.
#pragma once

#include <span>
#include <vector>

#include "shardwright/comm/comm.h"
#include "shardwright/engine/select.h"
#include "shardwright/format/format.h"

namespace shardwright {

/// Catalogues of all ranks, each with what that rank holds, as one: tensors in the order of rank 0, then what other ranks add; pieces with
/// their rank, whose addresses mean nothing elsewhere. Values are those of the lowest rank that has them, side files those of rank 0.
/// Errors: kInvalidArgument for a tensor that two ranks have with different dtypes or shapes, and whose pieces leave a hole or overlap in part.
Result<Catalog> merge_catalogs(std::span<const Catalog> by_rank);

/// A box of a tensor, and the rank that writes it.
using OwnedBox = WriteOptions::Held;
/// Per tensor: every distinct box once; none for aliases. The writer is, of the ranks that hold the box, the one with the least to write so
/// far, then the lowest. Pure: the same on every rank.
std::vector<std::vector<OwnedBox>> assign_writers(const Catalog& merged, int ranks);
/// The same per tensor that was selected of `merged`: what WriteOptions::held takes.
std::vector<std::vector<OwnedBox>> held_of(const Catalog& merged, const Selected& selected, int ranks);

/// Some objects of a draft: those that one rank writes by itself, or all that are not there already.
class PartDraft : public Draft {
 public:
  /// draft outlives this. objects: of it, in order.
  PartDraft(Draft& draft, std::vector<ObjectId> objects);
  const Catalog& target() const override { return draft_.target(); }
  std::span<const ObjectInfo> objects() const override { return objects_; }
  std::vector<Segment> segments(ObjectId object) const override { return draft_.segments(numbers_[object]); }
  Result<Bytes> late(ObjectId object, size_t segment, std::span<const Receipt> receipts) override {
    return draft_.late(numbers_[object], segment, receipts);
  }
  /// Is made of the whole draft.
  Result<std::vector<std::pair<std::string, Bytes>>> seal(std::span<const Receipt>) override {
    return std::vector<std::pair<std::string, Bytes>>();
  }
  bool wants_crc32() const override { return draft_.wants_crc32(); }
  std::optional<int32_t> rank_of(ObjectId object) const override { return draft_.rank_of(numbers_[object]); }
  /// Number in the draft of one of objects().
  ObjectId number(ObjectId object) const { return numbers_[object]; }

 private:
  Draft& draft_;
  std::vector<ObjectInfo> objects_;
  std::vector<ObjectId> numbers_;
};

/// Receipts for other ranks.
Bytes bytes_of_receipts(std::span<const Receipt> receipts);
/// Of all ranks, in the order of objects. Errors: kInternal for what cannot be read, or names no object.
Result<std::vector<Receipt>> receipts_of_all(std::span<const Bytes> all, size_t objects);

/// Where a closed draft puts each tensor: all that ranks need to write into its objects.
struct Outline {
  struct Payload {
    ObjectId object = 0;
    TensorId tensor = 0;  ///< of the draft's target
    uint64_t offset = 0;
  };
  std::vector<ObjectInfo> objects;
  std::vector<Payload> payloads;
  bool wants_crc32 = false;
  Bytes to_bytes() const;
  static Result<Outline> from_bytes(View bytes);
};
/// nullopt for drafts in append form, and of encoded pieces.
std::optional<Outline> outline_of(const Draft& draft);
/// Of each tensor of `want` as a whole, by the receipts of all boxes of it, which all ranks together have written; crc32 where it is wanted.
struct PayloadSum {
  uint32_t crc32c = 0, crc32 = 0;
};
std::vector<PayloadSum> sums_of_payloads(const Catalog& want, const Outline& outline,
                                         std::span<const Receipt> receipts);

/// One rank's share as a draft: those objects in which the rank has something to write, with a strided piece for each of its boxes.
class ShareDraft : public Draft {
 public:
  /// boxes: of this rank, per tensor of `want`. Errors: kUnsupported for a part of a tensor of a packed type; kInternal for an outline of another draft.
  static Result<ShareDraft> create(const Catalog& want, const Outline& outline,
                                   std::span<const std::vector<Box>> boxes);

  const Catalog& target() const override { return target_; }
  std::span<const ObjectInfo> objects() const override { return objects_; }
  std::vector<Segment> segments(ObjectId object) const override { return segments_[object]; }
  Result<Bytes> late(ObjectId, size_t, std::span<const Receipt>) override {
    return fail(Code::kInternal, "a share has no late segments");
  }
  Result<std::vector<std::pair<std::string, Bytes>>> seal(std::span<const Receipt>) override {
    return std::vector<std::pair<std::string, Bytes>>();
  }
  bool wants_crc32() const override { return wants_crc32_; }
  /// Number in the outline of one of objects().
  ObjectId outline_object(ObjectId object) const { return numbers_[object]; }

 private:
  Catalog target_;
  std::vector<ObjectInfo> objects_;
  std::vector<ObjectId> numbers_;
  std::vector<std::vector<Segment>> segments_;
  bool wants_crc32_ = false;
};

}  // namespace shardwright
