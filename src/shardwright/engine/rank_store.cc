#include "shardwright/engine/rank_store.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "shardwright/engine/task.h"

// A question: the number of ranges (0: go on), then for each {tensor, piece, offset, length}; the answer: their bytes, one after the other.
namespace shardwright {
namespace {

struct Question {
  TensorId tensor;
  uint32_t piece;
  uint64_t offset, length;
};

size_t number_of(std::string_view key) {
  size_t number = 0;
  std::from_chars(key.data(), key.data() + key.size(), number);
  return number;
}

/// Bytes [offset, offset + into.size()) of a piece's elements in C order.
Status copy_range(const Catalog& catalog, const Piece& piece, uint64_t offset, MutableView into) {
  auto* from = reinterpret_cast<const std::byte*>(piece.place.offset);
  DType stored = catalog.encoding(piece.encoding).stored;
  Strided layout = layout_of(piece);
  uint64_t size = dtype_row(stored).block_bytes;
  if (layout.is_c_order()) {
    std::copy_n(from + offset, into.size(), into.data());
    return {};
  }
  if (dtype_row(stored).block_elems != 1 || offset % size != 0 || into.size() % size != 0)
    return fail(Code::kUnsupported, "packed elements that do not follow one another cannot be sent");
  uint64_t at = 0;
  for (const Box& box : boxes_of_range(piece.box, offset / size, into.size() / size)) {
    copy_strided(box, layout, from, {box, c_strides(box.extent)}, into.data() + at, size);
    at += box.elements() * size;
  }
  return {};
}

}  // namespace

Result<Catalog> RankStore::readable(const Catalog& merged, const Catalog& mine) {
  CatalogBuilder builder;
  for (TensorId id = 0; id < merged.size(); ++id) {
    auto spec = merged.spec(id);
    SHARDWRIGHT_ASSIGN(auto added, builder.add_tensor(spec.name, spec.dtype, spec.shape));
    if (merged.same_as(id) != id) {
      builder.tie(added, merged.same_as(id));
      continue;
    }
    std::set<Box> seen;
    auto own = mine.find(spec.name);
    for (Piece piece : own ? mine.pieces(*own) : std::vector<Piece>{}) {
      if (spec.elements() == 0) piece = {Box::whole(spec.shape), piece.place, piece.encoding, {}};
      if (!seen.insert(piece.box).second) continue;
      piece.encoding = builder.add_encoding(mine.encoding(piece.encoding));
      SHARDWRIGHT_TRY(builder.add_piece(piece));
    }
    std::map<int, uint32_t> counts;
    for (const Piece& piece : merged.pieces(id)) {
      uint32_t number = counts[piece.place.rank]++;
      if (!seen.insert(piece.box).second) continue;
      if (piece.place.site != Place::kMemory)
        return fail(Code::kUnsupported, "what another process makes while it is written cannot go into this format")
            .at_tensor(std::string(spec.name));
      const Encoding& encoding = merged.encoding(piece.encoding);
      uint64_t bytes = bytes_in(encoding.stored, piece.box.elements());
      auto object = builder.add_object({std::to_string(held_.size()), bytes});
      held_.push_back({piece.place.rank, id, number, bytes});
      SHARDWRIGHT_TRY(
          builder.add_piece({piece.box, {Place::kExtent, -1, object, 0, bytes}, builder.add_encoding(encoding), {}}));
    }
  }
  return builder.build();
}

Result<std::optional<uint64_t>> RankStore::size(std::string_view key) {
  size_t number = number_of(key);
  return number < held_.size() ? std::optional(held_[number].bytes) : std::nullopt;
}

Status RankStore::read(std::span<const ReadOp> ops) {
  std::lock_guard one_at_a_time(mutex_);
  std::map<int, std::vector<const ReadOp*>> by_rank;
  for (const ReadOp& op : ops)
    if (!op.into.empty()) by_rank[held_[number_of(op.key)].rank].push_back(&op);
  for (const auto& [rank, wanted] : by_rank) SHARDWRIGHT_TRY(ask(rank, wanted));
  return {};
}

Status RankStore::ask(int rank, std::span<const ReadOp* const> ops) {
  Bytes count, questions;
  append_le<uint64_t>(count, ops.size());
  uint64_t bytes = 0;
  for (const ReadOp* op : ops) {
    const Held& held = held_[number_of(op->key)];
    append_le(questions, Question{held.tensor, held.piece, op->offset, op->into.size()});
    bytes += op->into.size();
  }
  Bytes answer(ops.size() == 1 ? 0 : bytes);
  MutableView into = ops.size() == 1 ? ops[0]->into : MutableView(answer);
  Comm::Part send_count{rank, count}, send_questions{rank, questions}, receive{rank, into};
  SHARDWRIGHT_TRY(comm_.exchange({&send_count, 1}, {}, deadline_in(wait_)));
  SHARDWRIGHT_TRY(comm_.exchange({&send_questions, 1}, {}, deadline_in(wait_)));
  SHARDWRIGHT_TRY(comm_.exchange({}, {&receive, 1}, deadline_in(wait_)));
  bytes_read_ += bytes;
  uint64_t at = 0;
  if (ops.size() > 1)
    for (const ReadOp* op : ops) {
      std::copy_n(answer.data() + at, op->into.size(), op->into.data());
      at += op->into.size();
    }
  return {};
}

Status RankStore::dismiss() {
  Bytes nothing(sizeof(uint64_t));
  std::vector<Comm::Part> parts;
  for (int rank = 1; rank < comm_.size(); ++rank) parts.push_back({rank, nothing});
  return comm_.exchange(parts, {}, deadline_in(wait_));
}

Status serve(Comm& comm, const Catalog& merged, const Catalog& mine, std::chrono::milliseconds wait) {
  while (true) {
    Bytes count(sizeof(uint64_t));
    Comm::Part ask{0, count};
    SHARDWRIGHT_TRY(comm.exchange({}, {&ask, 1}, deadline_in(wait)));
    auto ranges = load_le<uint64_t>(count);
    if (ranges == 0) return {};
    Bytes questions(ranges * sizeof(Question));
    Comm::Part list{0, questions};
    SHARDWRIGHT_TRY(comm.exchange({}, {&list, 1}, deadline_in(wait)));
    Bytes answer;
    Status status;
    for (uint64_t i = 0; i < ranges && status.ok(); ++i) {
      auto question = load_le<Question>(View(questions).subspan(i * sizeof(Question)));
      auto piece = mine.pieces(mine.find(merged.spec(question.tensor).name).value_or(0))[question.piece];
      uint64_t at = answer.size();
      answer.resize(at + question.length);
      status = copy_range(mine, piece, question.offset, MutableView(answer).subspan(at));
    }
    if (!status.ok()) {
      comm.abandon(status.error());
      return status;
    }
    Comm::Part out{0, answer};
    SHARDWRIGHT_TRY(comm.exchange({&out, 1}, {}, deadline_in(wait)));
  }
}

}  // namespace shardwright
