#include <atomic>
#include <map>
#include <memory>
#include <mutex>

#include "shardwright/store/key.h"
#include "shardwright/store/store.h"

namespace shardwright {
namespace {

using detail::check_directory;
using detail::check_key;
using detail::check_prefix;

using Object = std::shared_ptr<const Bytes>;

std::string join_path(std::string_view under, std::string_view key) {
  return under.empty() ? std::string(key) : std::string(under) + "/" + std::string(key);
}

std::string describe_key(std::string_view key) { return "memory:" + std::string(key); }

/// What a store and its transactions share: transactions may outlive the call that made them, and are joined by name.
struct Shared {
  std::mutex mutex;
  std::map<std::string, Object, std::less<>> objects;
  /// The object as first seen through this store. An equal pointer is an equal version.
  std::map<std::string, Object, std::less<>> pins;
  struct Staged {
    std::string under;
    std::map<std::string, std::shared_ptr<Bytes>, std::less<>> objects;
    std::map<std::string, bool, std::less<>> finished;
  };
  std::map<std::string, std::shared_ptr<Staged>, std::less<>> staged;  // by token
  uint64_t next_token = 0;
};

class MemoryWriter : public Writer {
 public:
  MemoryWriter(std::shared_ptr<Shared> shared, std::shared_ptr<Shared::Staged> staged, std::string key, uint64_t size)
      : shared_(std::move(shared)),
        staged_(std::move(staged)),
        key_(std::move(key)),
        size_(size),
        bytes_(staged_->objects[key_]) {}

  Status write(std::span<const WriteOp> ops) override {
    std::lock_guard lock(shared_->mutex);  // append form may move the bytes
    if (finished_) return fail(Code::kInternal, "write after finish").at_path(describe_key(key_));
    for (const WriteOp& op : ops) {
      auto end = checked_add(op.offset, op.bytes.size());
      if (!end || (size_ != kUnknown && *end > size_)) {
        return fail(Code::kInternal, "write beyond the end of the object")
            .at_path(describe_key(key_))
            .at_offset(op.offset);
      }
      if (op.bytes.empty()) continue;
      if (bytes_->size() < *end) bytes_->resize(*end);
      std::memcpy(bytes_->data() + op.offset, op.bytes.data(), op.bytes.size());
    }
    return {};
  }

  Status finish(uint64_t size_bytes) override {
    std::lock_guard lock(shared_->mutex);
    if (finished_ || (size_ != kUnknown && size_ != size_bytes)) {
      return fail(Code::kInternal, "object finished twice or with another size").at_path(describe_key(key_));
    }
    bytes_->resize(size_bytes);
    finished_ = staged_->finished[key_] = true;
    return {};
  }

 private:
  std::shared_ptr<Shared> shared_;
  std::shared_ptr<Shared::Staged> staged_;
  std::string key_;
  uint64_t size_;
  bool finished_ = false;
  std::shared_ptr<Bytes> bytes_;
};

class MemoryTransaction : public Transaction {
 public:
  MemoryTransaction(std::shared_ptr<Shared> shared, std::string token, std::shared_ptr<Shared::Staged> staged,
                    bool owner)
      : shared_(std::move(shared)), token_(std::move(token)), staged_(std::move(staged)), owner_(owner) {}
  ~MemoryTransaction() override {
    std::lock_guard lock(shared_->mutex);
    if (owner_) shared_->staged.erase(token_);
  }

  std::string token() const override { return token_; }

  Result<std::unique_ptr<Writer>> create(std::string_view key, uint64_t size_bytes) override {
    SHARDWRIGHT_TRY(check_key(key));
    std::lock_guard lock(shared_->mutex);
    auto [slot, fresh] = staged_->objects.emplace(key, std::make_shared<Bytes>());
    if (!fresh) return fail(Code::kAlreadyExists, "object is created twice").at_path(describe_key(key));
    if (size_bytes != kUnknown) slot->second->resize(size_bytes);
    return std::unique_ptr<Writer>(std::make_unique<MemoryWriter>(shared_, staged_, std::string(key), size_bytes));
  }

  Result<std::unique_ptr<Writer>> open(std::string_view key, uint64_t size_bytes) override {
    SHARDWRIGHT_TRY(check_key(key));
    std::lock_guard lock(shared_->mutex);
    auto at = staged_->objects.find(key);
    if (at == staged_->objects.end()) return fail(Code::kNotFound, "no such object").at_path(describe_key(key));
    if (at->second->size() != size_bytes)
      return fail(Code::kInternal, "object was created with another size").at_path(describe_key(key));
    return std::unique_ptr<Writer>(std::make_unique<MemoryWriter>(shared_, staged_, std::string(key), size_bytes));
  }

  Status commit(const Publication& publication) override {
    std::lock_guard lock(shared_->mutex);
    if (!owner_) return fail(Code::kInternal, "commit by a joined transaction");
    if (publication.keys.size() != staged_->objects.size())
      return fail(Code::kInternal, "commit does not name every object");
    for (const std::string& key : publication.keys) {
      if (!staged_->finished.contains(key))
        return fail(Code::kInternal, "object is not finished").at_path(describe_key(key));
    }
    for (const auto* names : {&publication.entries, &publication.stale}) {
      for (const std::string& key : *names) shared_->objects.erase(join_path(staged_->under, key));
    }
    for (const std::string& key : publication.keys) {
      shared_->objects[join_path(staged_->under, key)] = staged_->objects[key];
    }
    shared_->pins.clear();
    owner_ = false;
    shared_->staged.erase(token_);
    return {};
  }

 private:
  std::shared_ptr<Shared> shared_;
  std::string token_;
  std::shared_ptr<Shared::Staged> staged_;
  bool owner_;
};

class MemoryStore : public Store {
 public:
  StoreCaps caps() const override {
    StoreCaps caps;
    caps.random_write = caps.rename = caps.list = true;
    return caps;
  }
  std::string describe(std::string_view key) const override { return describe_key(key); }

  Result<std::optional<uint64_t>> size(std::string_view key) override {
    SHARDWRIGHT_TRY(check_key(key));
    std::lock_guard lock(shared_->mutex);
    if (!shared_->objects.contains(key)) return std::optional<uint64_t>();
    SHARDWRIGHT_ASSIGN(Object object, pinned(key));
    return std::optional<uint64_t>(object->size());
  }

  Status read(std::span<const ReadOp> ops) override {
    for (const ReadOp& op : ops) {
      SHARDWRIGHT_TRY(check_key(op.key));
      Object object;
      {
        std::lock_guard lock(shared_->mutex);
        SHARDWRIGHT_ASSIGN(object, pinned(op.key));
      }
      auto end = checked_add(op.offset, op.into.size());
      if (!end || *end > object->size()) {
        return fail(Code::kCorrupt, "file is shorter than what should be in it")
            .at_path(describe(op.key))
            .at_offset(op.offset)
            .with_found(std::to_string(object->size()) + " bytes in the file")
            .with_expected(std::to_string(op.into.size()) + " bytes at this offset");
      }
      if (!op.into.empty()) std::memcpy(op.into.data(), object->data() + op.offset, op.into.size());
      bytes_read_ += op.into.size();
    }
    return {};
  }

  Result<std::vector<std::string>> list(std::string_view prefix) override {
    SHARDWRIGHT_TRY(check_prefix(prefix));
    std::lock_guard lock(shared_->mutex);
    std::vector<std::string> keys;
    for (auto at = shared_->objects.lower_bound(prefix); at != shared_->objects.end() && at->first.starts_with(prefix);
         ++at) {
      keys.push_back(at->first);
    }
    return keys;
  }

  Result<std::unique_ptr<Transaction>> begin(std::string_view under) override {
    SHARDWRIGHT_TRY(check_directory(under));
    std::lock_guard lock(shared_->mutex);
    for (const auto& [token, staged] : shared_->staged) {
      if (staged->under == under)
        return fail(Code::kUnavailable, "another writer is at work here").at_path(describe(under));
    }
    std::string token = "memory-" + std::to_string(shared_->next_token++);
    auto staged = std::make_shared<Shared::Staged>();
    staged->under = under;
    shared_->staged.emplace(token, staged);
    return std::unique_ptr<Transaction>(std::make_unique<MemoryTransaction>(shared_, token, staged, true));
  }

  Result<std::unique_ptr<Transaction>> join(std::string_view token) override {
    std::lock_guard lock(shared_->mutex);
    auto at = shared_->staged.find(token);
    if (at == shared_->staged.end())
      return fail(Code::kNotFound, "no such transaction").with_found("'" + std::string(token) + "'");
    return std::unique_ptr<Transaction>(
        std::make_unique<MemoryTransaction>(shared_, std::string(token), at->second, false));
  }

  Result<std::optional<std::string>> recover(std::string_view under) override {
    SHARDWRIGHT_TRY(check_directory(under));
    return std::optional<std::string>();
  }
  Result<std::optional<Room>> room(std::string_view under) override {
    SHARDWRIGHT_TRY(check_directory(under));
    return std::optional<Room>();
  }
  uint64_t bytes_read() const override { return bytes_read_; }

 private:
  /// The object, which must be the one seen first. REQUIRES: mutex held.
  Result<Object> pinned(std::string_view key) {
    auto at = shared_->objects.find(key);
    if (at == shared_->objects.end()) return fail(Code::kNotFound, "no such object").at_path(describe(key));
    auto [pin, fresh] = shared_->pins.emplace(key, at->second);
    if (pin->second != at->second)
      return fail(Code::kAborted, "object changed while it was in use").at_path(describe(key));
    return at->second;
  }

  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::atomic<uint64_t> bytes_read_{0};
};

}  // namespace

std::unique_ptr<Store> open_memory_store() { return std::make_unique<MemoryStore>(); }

}  // namespace shardwright
