/// Drafts for tests of the engine: the two forms a format can have, without any format's rules.
#pragma once

#include <fmt/format.h>

#include "shardwright/base/checksum.h"
#include "shardwright/format/format.h"

namespace shardwright::toy {

/// Closed form: objects "0", "1", ... hold tensors i, i + objects, ...: "HEAD", then per tensor 3 zero bytes and the payload, then a late CRC-32C of
/// all payloads, as text. seal() makes "index" with the number of receipts.
class ClosedDraft final : public Draft {
 public:
  ClosedDraft(Catalog want, size_t objects) : want_(std::move(want)) {
    for (size_t i = 0; i < objects; ++i) {
      std::vector<Segment> segments{{Segment::kLiteral, kNoTensor, kWholeTensor, 0, 4, view_of("HEAD")}};
      uint64_t at = 4;
      for (TensorId id = static_cast<TensorId>(i); id < want_.size(); id += static_cast<TensorId>(objects)) {
        if (want_.same_as(id) != id) continue;
        at += 3;
        segments.push_back({Segment::kPayload, id, kWholeTensor, at, want_.spec(id).nbytes()});
        offsets[id] = {i, at};
        at += want_.spec(id).nbytes();
      }
      segments.push_back({Segment::kLate, kNoTensor, kWholeTensor, at, 8});
      objects_.push_back({std::to_string(i), at + 8});
      segments_.push_back(std::move(segments));
    }
  }
  const Catalog& target() const override { return want_; }
  std::span<const ObjectInfo> objects() const override { return objects_; }
  std::vector<Segment> segments(ObjectId object) const override { return segments_[object]; }
  Result<Bytes> late(ObjectId, size_t, std::span<const Receipt> receipts) override {
    uint32_t crc = 0;
    for (const auto& receipt : receipts)
      if (receipt.tensor != kNoTensor) crc = crc32c_combine(crc, receipt.crc32c, receipt.place.length);
    return bytes_of(fmt::format("{:08x}", crc));
  }
  Result<std::vector<std::pair<std::string, Bytes>>> seal(std::span<const Receipt> receipts) override {
    return std::vector<std::pair<std::string, Bytes>>{{"index", bytes_of(std::to_string(receipts.size()))}};
  }
  std::map<TensorId, std::pair<size_t, uint64_t>> offsets;

 private:
  Catalog want_;
  std::vector<ObjectInfo> objects_;
  std::vector<std::vector<Segment>> segments_;
};

/// Append form: one object "data" with every tensor cut into two zlib chunks along dimension 0, and a late list of their places.
class AppendDraft final : public Draft {
 public:
  static Result<std::unique_ptr<AppendDraft>> create(const Catalog& want) {
    auto out = std::make_unique<AppendDraft>();
    CatalogBuilder builder;
    builder.add_object({"data", kUnknown});
    for (TensorId id = 0; id < want.size(); ++id) {
      auto spec = want.spec(id);
      SHARDWRIGHT_TRY(builder.add_tensor(spec.name, spec.dtype, spec.shape));
      Box whole = Box::whole(spec.shape);
      std::vector<Box> boxes{whole};
      if (whole.rank() > 0 && whole.extent[0] > 1) {
        int64_t half = whole.extent[0] / 2;
        boxes.push_back(whole);
        boxes[0].extent[0] = half;
        boxes[1].start[0] = half;
        boxes[1].extent[0] -= half;
      }
      for (uint32_t i = 0; i < boxes.size(); ++i) {
        auto encoding = builder.add_encoding(
            {spec.dtype, false, {{"zlib", 1}}, *bytes_of_elements(spec.dtype, boxes[i].elements())});
        SHARDWRIGHT_TRY(builder.add_piece({boxes[i], {Place::kExtent, -1, 0, 0, kUnknown}, encoding, {}}));
        out->segments_.push_back({Segment::kPayload, id, i});
      }
    }
    out->segments_.push_back({Segment::kLate});
    SHARDWRIGHT_ASSIGN(out->target_, builder.build(/*partial=*/true));
    return out;
  }
  const Catalog& target() const override { return target_; }
  std::span<const ObjectInfo> objects() const override { return target_.objects(); }
  std::vector<Segment> segments(ObjectId) const override { return segments_; }
  Result<Bytes> late(ObjectId, size_t, std::span<const Receipt> receipts) override {
    for (const auto& receipt : receipts) places.push_back(receipt);
    return bytes_of("END.");
  }
  Result<std::vector<std::pair<std::string, Bytes>>> seal(std::span<const Receipt>) override {
    return std::vector<std::pair<std::string, Bytes>>{};
  }
  std::vector<Receipt> places;

 private:
  Catalog target_;
  std::vector<Segment> segments_;
};

}  // namespace shardwright::toy
