#include "shardwright/engine/write_scattered.h"

#include "shardwright/base/checksum.h"

namespace shardwright {
namespace {

constexpr size_t kBatch = 1024;  // as many as one system call takes

/// Checksums over runs and the zeros between them, whose lengths mostly repeat.
class GapChecksum {
 public:
  GapChecksum(PartChecksum& sum, uint64_t end, bool wants_crc32) : sum_(sum), end_(end), wants_crc32_(wants_crc32) {}
  void add(uint64_t offset, View run) {
    if (offset > end_) skip(offset - end_);
    sum_.add(run, wants_crc32_);
    end_ = offset + run.size();
  }

 private:
  void skip(uint64_t gap) {
    if (gap != gap_) {
      gap_ = gap;
      zeros_ = Crc32cZeros(gap);
      if (wants_crc32_) crc32_of_gap_ = crc32_of_zeros(gap);
    }
    sum_.crc32c = zeros_.after(sum_.crc32c);
    if (wants_crc32_) sum_.crc32 = crc32_combine(sum_.crc32, crc32_of_gap_, gap);
    sum_.bytes += gap;
  }

  PartChecksum& sum_;
  uint64_t end_, gap_ = 0;
  const bool wants_crc32_;
  Crc32cZeros zeros_{0};
  uint32_t crc32_of_gap_ = 0;
};

}  // namespace

Status write_scattered(const Part& part, uint64_t segment_offset, View values, Writer& writer, bool wants_crc32,
                       PartChecksum* checksum) {
  if (part.range.count == 0) return {};
  const Geometry& g = *part.geometry;
  auto bytes = [&](int64_t elements) { return bytes_in(g.out, static_cast<uint64_t>(elements)); };
  uint64_t before = 0;  // where the part before has ended
  if (part.range.first > 0) {
    Box last = boxes_of_range(g.box, part.range.first - 1, 1).front();
    before = bytes(g.scattered->offset_of(last.start) + 1);
  }
  PartChecksum none;
  GapChecksum sums(checksum != nullptr ? *checksum : none, before, wants_crc32);
  Status status;
  std::vector<WriteOp> ops;
  auto flush = [&] {
    if (status.ok() && !ops.empty()) status = writer.write(ops);
    ops.clear();
  };
  for_each_run(part.box, {part.box, c_strides(part.box.extent)}, *g.scattered,
               [&](int64_t from, int64_t to, int64_t elements) {
                 View run = values.subspan(bytes(from), bytes(elements));
                 if (checksum != nullptr) sums.add(bytes(to), run);
                 ops.push_back({segment_offset + bytes(to), run});
                 if (ops.size() == kBatch) flush();
               });
  flush();
  return status;
}

}  // namespace shardwright
