#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "shardwright/base/arena.h"
#include "shardwright/base/text.h"
#include "shardwright/engine/device.h"

namespace shardwright {

struct HostDevice::Account {
  std::mutex mutex;
  uint64_t limit = kUnknown, held = 0, peak = 0;
  Arena arena;
};

/// Bytes on an account, for as long as an array of the device has them.
class HostDevice::Entry {
 public:
  Entry(std::shared_ptr<Account> account, uint64_t bytes) : account_(std::move(account)), bytes_(bytes) {}
  Entry(const Entry&) = delete;
  ~Entry() {
    std::lock_guard lock(account_->mutex);
    account_->held -= bytes_;
  }
  /// Null when the account has no room.
  static std::shared_ptr<Entry> make(const std::shared_ptr<Account>& account, uint64_t bytes) {
    std::lock_guard lock(account->mutex);
    if (bytes > account->limit - account->held) return nullptr;
    account->held += bytes;
    account->peak = std::max(account->peak, account->held);
    return std::make_shared<Entry>(account, bytes);
  }
  const Account* account() const { return account_.get(); }

 private:
  std::shared_ptr<Account> account_;
  uint64_t bytes_;
};

class HostDevice::Array final : public DeviceArray {
 public:
  Array(std::shared_ptr<ArenaPart> bytes, std::shared_ptr<Entry> entry)
      : entry_(std::move(entry)), bytes_(std::move(bytes)) {}
  uint64_t size() const override { return bytes_->span().size(); }
  MutableView host() override { return bytes_->span(); }
  Status put(uint64_t offset, View values) override {
    std::ranges::copy(values, bytes_->span().subspan(offset).begin());
    return {};
  }
  Status finish() override { return {}; }
  const std::shared_ptr<ArenaPart>& bytes() const { return bytes_; }
  const std::shared_ptr<Entry>& entry() const { return entry_; }

 private:
  std::shared_ptr<Entry> entry_;
  std::shared_ptr<ArenaPart> bytes_;  // freed before the account is told
};

HostDevice::HostDevice(std::string name, uint64_t limit_bytes)
    : name_(std::move(name)), account_(std::make_shared<Account>()) {
  account_->limit = limit_bytes;
}

Result<std::unique_ptr<DeviceArray>> HostDevice::allocate(uint64_t bytes) {
  auto entry = Entry::make(account_, bytes);
  if (!entry)
    return fail(Code::kResourceExhausted, "device '" + name_ + "' has no room for the array")
        .with_found(fmt::format("{} of {} held", format_bytes(held_bytes()), format_bytes(account_->limit)))
        .with_expected(format_bytes(bytes) + " more");
  std::lock_guard lock(account_->mutex);
  return std::make_unique<Array>(std::make_shared<ArenaPart>(account_->arena.allocate(bytes)), std::move(entry));
}

std::unique_ptr<DeviceArray> HostDevice::share(DeviceArray& other) {
  auto* array = dynamic_cast<Array*>(&other);
  if (array == nullptr) return nullptr;
  // The same bytes twice on one device (tied tensors) count once.
  auto entry = array->entry()->account() == account_.get() ? array->entry() : Entry::make(account_, other.size());
  return entry ? std::make_unique<Array>(array->bytes(), std::move(entry)) : nullptr;
}

uint64_t HostDevice::held_bytes() const {
  std::lock_guard lock(account_->mutex);
  return account_->held;
}

uint64_t HostDevice::peak_bytes() const {
  std::lock_guard lock(account_->mutex);
  return account_->peak;
}

}  // namespace shardwright
