#include "shardwright/engine/lane_writer.h"

#include <algorithm>

#include "shardwright/base/checksum.h"
#include "shardwright/engine/read_part.h"

namespace shardwright {

Status LaneWriter::open() {
  std::lock_guard lock(mutex_);
  if (writer_) return {};
  const auto& object = plan_.objects[lane_.object];
  SHARDWRIGHT_ASSIGN(writer_, ends_.into->create(object.key, object.size));
  stored_.resize(lane_.segments.size());
  return {};
}

Status LaneWriter::write(const Task& task, uint64_t ticket, MutableView buffer, const std::stop_token& stop) {
  if (appends()) return append_task(task, ticket, buffer, stop);
  bool wants_crc32 = ends_.draft->wants_crc32();
  const Part& first = task.parts.front();
  if (first.move->mode == Move::kStream) {
    PartChecksum sum;
    SHARDWRIGHT_TRY(stream_part(plan_, lane_, first, *ends_.from, buffer, *writer_, wants_crc32,
                                plan_.options.checksums ? &sum : nullptr));
    keep(first, sum);
    return {};
  }
  std::vector<PartChecksum> checksums;
  SHARDWRIGHT_TRY(write_parts(plan_, lane_, task.parts, buffer, *writer_, wants_crc32, checksums));
  for (size_t i = 0; i < checksums.size(); ++i) keep(task.parts[i], checksums[i]);
  return {};
}

void LaneWriter::keep(const Part& part, const PartChecksum& checksum) {
  if (!plan_.options.checksums) return;
  std::lock_guard lock(mutex_);
  auto& parts = stored_[part.move->segment].parts;
  if (parts.size() <= part.index) parts.resize(part.index + 1);
  parts[part.index] = checksum;
}

Status LaneWriter::wait_turn(uint64_t ticket, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  if (turn_changed_.wait(lock, stop, [&] { return turn_ == ticket; })) return {};
  return fail(Code::kAborted, "stopped");
}

bool LaneWriter::has_turn(uint64_t ticket) {
  std::lock_guard lock(mutex_);
  return turn_ == ticket;
}

Status LaneWriter::append(uint32_t segment, View bytes) {
  WriteOp op{end_, bytes};
  SHARDWRIGHT_TRY(writer_->write({&op, 1}));
  auto& stored = stored_[segment];
  if (stored.offset == kUnknown) stored.offset = end_;
  stored.length += bytes.size();
  if (stored.parts.empty()) stored.parts.emplace_back();  // appended in order: one sum for all
  if (plan_.options.checksums) stored.parts.back().add(bytes, ends_.draft->wants_crc32());
  end_ += bytes.size();
  return {};
}

Status LaneWriter::append_task(const Task& task, uint64_t ticket, MutableView buffer, const std::stop_token& stop) {
  for (const Part& part : task.parts) {
    if (part.move->mode == Move::kEncode) {
      SHARDWRIGHT_TRY(encode(part, ticket, buffer, stop));
      continue;
    }
    SHARDWRIGHT_TRY(wait_turn(ticket, stop));
    bool literal = part.move->mode == Move::kLiteral;
    View bytes = literal ? lane_.segments[part.move->segment].literal : part.values(buffer);
    SHARDWRIGHT_TRY(append(part.move->segment, bytes));
  }
  std::lock_guard lock(mutex_);
  ++turn_;
  turn_changed_.notify_all();
  return {};
}

/// Gathers slab by slab and encodes. Output is appended as it comes once it is our turn; until then it is held, as much as there is room for.
Status LaneWriter::encode(const Part& part, uint64_t ticket, MutableView buffer, const std::stop_token& stop) {
  const auto& segment = lane_.segments[part.move->segment];
  const auto& encoding = plan_.to.encoding(plan_.to.pieces(segment.tensor)[segment.piece].encoding);
  SHARDWRIGHT_ASSIGN(auto encoder, make_encoder(encoding.chain, encoding.decoded_bytes));
  auto room = buffer.subspan(part.reserve_at,
                             std::min(encoded_bound(encoding.chain, encoding.decoded_bytes), plan_.part_limit));
  uint64_t held = 0;
  auto flush = [&]() -> Status {
    SHARDWRIGHT_TRY(wait_turn(ticket, stop));
    SHARDWRIGHT_TRY(append(part.move->segment, View(room).first(held)));
    held = 0;
    return {};
  };
  auto emit = [&](View bytes) -> Status {
    if (has_turn(ticket)) {
      if (held > 0) SHARDWRIGHT_TRY(flush());
      return append(part.move->segment, bytes);
    }
    while (!bytes.empty()) {
      uint64_t take = std::min<uint64_t>(bytes.size(), room.size() - held);
      std::copy_n(bytes.data(), take, room.data() + held);
      held += take;
      bytes = bytes.subspan(take);
      if (held == room.size()) SHARDWRIGHT_TRY(flush());
    }
    return {};
  };
  const Cut& cut = part.geometry->cut;
  for (uint64_t slab = 0; slab < cut.parts(); ++slab) {
    uint64_t at = 0;
    Part region = region_part(plan_, *part.move, part.geometry, part.pieces, cut.range(slab), at);
    region.move = part.move;
    if (is_produced(plan_, region))
      SHARDWRIGHT_TRY(calls_.produce(part.move->from, region.box, buffer.subspan(region.in_at, region.in_bytes)));
    SHARDWRIGHT_TRY(read_parts(plan_, ends_.from, {&region, 1}, buffer));
    SHARDWRIGHT_TRY(encoder->push(region.values(buffer), slab + 1 == cut.parts(), emit));
  }
  return flush();
}

Receipt LaneWriter::receipt_of(size_t index) const {
  const auto& segment = lane_.segments[index];
  const auto& stored = stored_[index];
  Receipt receipt{segment.tensor, segment.piece, {}, 0, 0};
  receipt.place = {Place::kExtent, -1, lane_.object, appends() ? stored.offset : segment.offset,
                   appends() ? stored.length : segment.length};
  for (const auto& part : stored.parts) {
    receipt.crc32c = crc32c_combine(receipt.crc32c, part.crc32c, part.bytes);
    receipt.crc32 = crc32_combine(receipt.crc32, part.crc32, part.bytes);
  }
  return receipt;
}

Status LaneWriter::finish(std::vector<Receipt>& receipts) {
  SHARDWRIGHT_TRY(open());  // an object without payload
  for (size_t i = 0; i < lane_.segments.size(); ++i)
    if (lane_.segments[i].type != Segment::kLate) receipts.push_back(receipt_of(i));
  for (uint32_t i = 0; i < lane_.segments.size(); ++i) {
    const auto& segment = lane_.segments[i];
    if (segment.type != Segment::kLate) continue;
    SHARDWRIGHT_ASSIGN(Bytes bytes, ends_.draft->late(lane_.object, i, receipts));
    if (segment.length != kUnknown && bytes.size() != segment.length)
      return fail(Code::kInternal, "late bytes have another length than promised")
          .at_path(plan_.objects[lane_.object].key);
    if (appends()) {
      SHARDWRIGHT_TRY(append(i, bytes));
      continue;
    }
    WriteOp op{segment.offset, bytes};
    SHARDWRIGHT_TRY(writer_->write({&op, 1}));
  }
  return writer_->finish(appends() ? end_ : plan_.objects[lane_.object].size);
}

}  // namespace shardwright
