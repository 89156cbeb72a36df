#include "shardwright/engine/box_hashes.h"

#include <algorithm>
#include <new>

#include "shardwright/base/checksum.h"
#include "shardwright/base/threads.h"

namespace shardwright {
namespace {

constexpr uint64_t kBufferBytes = 4 * MiB;

std::string hash_piece(const Catalog& held, const Piece& piece) {
  if (piece.place.site != Place::kMemory) return "";
  const DTypeRow& row = dtype_row(held.encoding(piece.encoding).stored);
  const auto* from = reinterpret_cast<const std::byte*>(piece.place.offset);
  uint64_t elements = piece.box.elements(), width = row.block_bytes;
  Strided layout = layout_of(piece);
  ContentHash hash;
  if (elements == 0 || layout.is_c_order()) {
    hash.update({from, bytes_of_elements(held.encoding(piece.encoding).stored, elements).value_or(0)});
    return hash.finish().hex();
  }
  if (row.block_elems != 1) return "";
  uint64_t most = kBufferBytes / width;
  Bytes buffer(std::min(elements, most) * width);
  for (uint64_t first = 0; first < elements; first += most) {
    uint64_t at = 0;
    for (const Box& box : boxes_of_range(piece.box, first, std::min(most, elements - first))) {
      copy_strided(box, layout, from, {box, c_strides(box.extent)}, buffer.data() + at, width);
      at += box.elements() * width;
    }
    hash.update(View(buffer).first(at));
  }
  return hash.finish().hex();
}

}  // namespace

std::vector<std::string> hash_boxes(const Catalog& held, std::span<const std::pair<TensorId, Box>> boxes) {
  std::vector<std::string> hashes(boxes.size());
  on_threads(boxes.size(), 0, [&](size_t i) {
    const auto& [id, box] = boxes[i];
    try {
      for (const Piece& piece : held.pieces(id))
        if (piece.box == box || (box.empty() && piece.box.empty())) {
          hashes[i] = hash_piece(held, piece);
          break;
        }
    } catch (const std::bad_alloc&) {  // nobody knows: then it is written
    }
  });
  return hashes;
}

}  // namespace shardwright
