/// Memory of devices, as far as loading needs it: of the host here, of accelerators behind the same interface.
#pragma once

#include <memory>
#include <string>

#include "shardwright/base/memory_budget.h"
#include "shardwright/base/result.h"

namespace shardwright {

/// Bytes on one device, given back when this is destroyed. One thread at a time.
class DeviceArray {
 public:
  virtual ~DeviceArray() = default;
  virtual uint64_t size() const = 0;
  /// The bytes, where the host reaches them: the engine then reads straight into them. Empty where it does not: values come through put().
  virtual MutableView host() = 0;
  /// Copies values that lie in the engine's budget to [offset, offset + values.size()); they may be gone when this returns, so a device with
  /// pinned staging takes them over into that. Ranges are disjoint, in any order.
  virtual Status put(uint64_t offset, View values) = 0;
  /// Waits until everything put is there. Called once, before the array is handed on.
  virtual Status finish() = 0;
};

/// Where arrays are made, which may live longer than their device. Thread-safe.
class Device {
 public:
  virtual ~Device() = default;
  virtual const std::string& name() const = 0;
  /// Not initialised. Errors: kResourceExhausted, with what there is.
  virtual Result<std::unique_ptr<DeviceArray>> allocate(uint64_t bytes) = 0;
  /// Another array over the same bytes, for this device, where it can use those of `other` as they are; null where it needs its own.
  virtual std::unique_ptr<DeviceArray> share(DeviceArray& other) = 0;
};

/// The host's memory as a device: as many as wanted, each with an account and an arena of its own (pages of 2 MiB that the arrays of one device
/// share; each goes back to the system by itself). Devices share replicas: the bytes are there once, and count on every account that has an array of them.
class HostDevice final : public Device {
 public:
  explicit HostDevice(std::string name, uint64_t limit_bytes = kUnknown);
  const std::string& name() const override { return name_; }
  Result<std::unique_ptr<DeviceArray>> allocate(uint64_t bytes) override;
  std::unique_ptr<DeviceArray> share(DeviceArray& other) override;
  uint64_t held_bytes() const;  ///< now
  uint64_t peak_bytes() const;  ///< most at once so far

 private:
  struct Account;
  class Entry;
  class Array;
  std::string name_;
  std::shared_ptr<Account> account_;
};

}  // namespace shardwright
