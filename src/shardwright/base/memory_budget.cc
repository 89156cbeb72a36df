#include "shardwright/base/memory_budget.h"

#include <sys/mman.h>
#include <unistd.h>

#include <fcntl.h>
#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

namespace shardwright {
namespace {

constexpr uint64_t kHugePage = 2 * MiB;
constexpr uint64_t kPage = 4 * KiB;
/// From here on a slab is a mapping of its own: it goes back to the system when freed, and is worth keeping.
constexpr uint64_t kMappedFrom = MiB;

/// `bytes` (a multiple of kPage) at a multiple of kHugePage; the surplus on both sides is unmapped again.
std::byte* map_aligned(uint64_t bytes) {
  std::optional<uint64_t> wide = checked_add(bytes, kHugePage);
  if (!wide) throw std::bad_alloc();
  void* raw = mmap(nullptr, *wide, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) throw std::bad_alloc();
  auto address = reinterpret_cast<uintptr_t>(raw);
  uint64_t before = round_up(address, kHugePage) - address;
  auto* data = static_cast<std::byte*>(raw) + before;
  if (before > 0) munmap(raw, before);
  if (kHugePage > before) munmap(data + bytes, kHugePage - before);
  madvise(data, bytes, MADV_HUGEPAGE);  // advice: without huge pages it is only slower
  return data;
}

}  // namespace

Slab Slab::allocate(uint64_t bytes) {
  Slab slab;
  if (bytes == 0) return slab;
  if (bytes >= kMappedFrom) {
    if (bytes > ~0ull - kPage) throw std::bad_alloc();
    slab.data_ = map_aligned(round_up(bytes, kPage));  // first: where it throws nothing is unmapped
    slab.mapped_ = round_up(bytes, kPage);
  } else {
    slab.data_ = static_cast<std::byte*>(std::malloc(bytes));
    if (slab.data_ == nullptr) throw std::bad_alloc();
  }
  slab.size_ = bytes;
  return slab;
}

Slab::Slab(Slab&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      mapped_(std::exchange(other.mapped_, 0)) {}

Slab& Slab::operator=(Slab&& other) noexcept {
  Slab taken(std::move(other));
  std::swap(data_, taken.data_);
  std::swap(size_, taken.size_);
  std::swap(mapped_, taken.mapped_);
  return *this;
}

Slab::~Slab() {
  if (mapped_ > 0) {
    munmap(data_, mapped_);
  } else {
    std::free(data_);
  }
}

MemoryBudget::Grant::Grant(Grant&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)),
      slab_(std::move(other.slab_)),
      bytes_(std::exchange(other.bytes_, 0)) {}

MemoryBudget::Grant& MemoryBudget::Grant::operator=(Grant&& other) noexcept {
  Grant taken(std::move(other));
  std::swap(budget_, taken.budget_);
  std::swap(slab_, taken.slab_);
  std::swap(bytes_, taken.bytes_);
  return *this;
}

MemoryBudget::Grant::~Grant() {
  if (budget_ != nullptr) budget_->release(std::move(slab_));
}

MemoryBudget::Grant MemoryBudget::acquire(uint64_t bytes, const std::stop_token& stop) {
  Grant grant;
  std::vector<Slab> dropped;
  {
    std::unique_lock lock(mutex_);
    const uint64_t ticket = next_ticket_++;
    waiting_.push_back(ticket);
    bool granted = changed_.wait(lock, stop, [&] { return waiting_.front() == ticket && bytes <= limit_ - used_; });
    waiting_.erase(std::find(waiting_.begin(), waiting_.end(), ticket));
    changed_.notify_all();  // the next in line may have room too, or has become the first
    if (!granted || stop.stop_requested()) return grant;
    grant.slab_ = take_idle(bytes);
    used_ += std::max(bytes, grant.slab_.size());
    dropped = drop_idle();
    peak_ = std::max(peak_, used_ + idle_bytes_);
  }
  // Unmapping takes milliseconds: not under the lock, but before the new memory is there.
  dropped.clear();
  if (grant.slab_.size() == 0) grant.slab_ = Slab::allocate(bytes);
  grant.budget_ = this;
  grant.bytes_ = bytes;
  return grant;
}

Slab MemoryBudget::take_idle(uint64_t bytes) {
  // A slab counts whole: one that is much too large would starve the others.
  const uint64_t most = bytes + bytes / 4;
  auto best = idle_.end();
  for (auto slab = idle_.begin(); slab != idle_.end(); ++slab)
    if (slab->size() >= bytes && slab->size() <= most && (best == idle_.end() || slab->size() <= best->size()))
      best = slab;
  if (best == idle_.end()) return {};
  Slab taken = std::move(*best);
  idle_.erase(best);
  idle_bytes_ -= taken.size();
  return taken;
}

std::vector<Slab> MemoryBudget::drop_idle() {
  std::vector<Slab> dropped;
  while (idle_bytes_ > limit_ - used_) {
    idle_bytes_ -= idle_.front().size();
    dropped.push_back(std::move(idle_.front()));  // released longest ago
    idle_.erase(idle_.begin());
  }
  return dropped;
}

uint64_t MemoryBudget::peak() const {
  std::lock_guard lock(mutex_);
  return peak_;
}

void MemoryBudget::release(Slab slab) {
  const uint64_t size = slab.size();
  const bool keep = size >= kMappedFrom;
  if (!keep) slab = Slab();  // freed before it is given back; malloc keeps small ones well enough
  std::lock_guard lock(mutex_);
  used_ -= size;
  if (keep) {
    idle_bytes_ += size;
    idle_.push_back(std::move(slab));
  }
  changed_.notify_all();
}

uint64_t resident_anonymous_bytes() {
  int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  char text[8192];
  size_t size = 0;
  for (ssize_t got = 1; got > 0 && size < sizeof text; size += static_cast<size_t>(std::max<ssize_t>(got, 0)))
    got = read(file, text + size, sizeof text - size);
  close(file);
  std::string_view status(text, size);
  size_t at = status.find("\nRssAnon:");
  if (at == std::string_view::npos) return 0;
  uint64_t kib = 0;
  for (char c : status.substr(at + 9)) {
    if (c == '\n') break;
    if (c >= '0' && c <= '9') kib = kib * 10 + static_cast<uint64_t>(c - '0');
  }
  return kib * KiB;
}

}  // namespace shardwright
