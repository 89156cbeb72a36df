#include "shardwright/base/arena.h"

#include <sys/mman.h>

#include <utility>

namespace shardwright {
namespace {

constexpr uint64_t kBlock = 64 * MiB, kStep = 64, kPage = 4 * KiB;

}  // namespace

ArenaPart::ArenaPart(ArenaPart&& other) noexcept
    : block_(std::move(other.block_)), bytes_(std::exchange(other.bytes_, {})) {}

ArenaPart& ArenaPart::operator=(ArenaPart&& other) noexcept {
  ArenaPart taken(std::move(other));
  std::swap(block_, taken.block_);
  std::swap(bytes_, taken.bytes_);
  return *this;
}

ArenaPart::~ArenaPart() {
  if (!block_ || block_.use_count() == 1) return;  // the last one: the block itself goes
  auto first = reinterpret_cast<uintptr_t>(bytes_.data());
  uint64_t begin = round_up(first, kPage), end = (first + bytes_.size()) / kPage * kPage;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

ArenaPart Arena::allocate(uint64_t bytes) {
  if (bytes == 0) return {};
  if (bytes >= kBlock / 2) {
    auto own = std::make_shared<Slab>(Slab::allocate(bytes));
    MutableView all = own->span();
    return {std::move(own), all};
  }
  uint64_t at = round_up(used_, kStep);
  if (!block_ || at + bytes > block_->size()) {
    block_ = std::make_shared<Slab>(Slab::allocate(kBlock));
    at = 0;
  }
  used_ = at + bytes;
  return {block_, block_->span().subspan(at, bytes)};
}

}  // namespace shardwright
