/// For tests only: a store that fails on demand, over one that does not.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "shardwright/store/store.h"

namespace shardwright::testing_support {

/// What goes wrong. Counters start at 1 and run over all threads; 0 = never.
struct Faults {
  std::atomic<uint64_t> read_bytes_at_once{
      0};                                ///< every read is cut into reads of at most this many bytes, as short reads do
  std::atomic<uint64_t> fail_read{0};    ///< n-th read(): kIo
  std::atomic<uint64_t> fail_create{0};  ///< n-th create(): kResourceExhausted, as on a full disk
  std::atomic<uint64_t> fail_write{
      0};  ///< n-th write(): `write_code`, after half of its first op was written (a torn write)
  std::atomic<uint64_t> fail_finish{0};  ///< n-th finish(): kIo, as a failed write-back
  std::atomic<uint64_t> fail_commit{0};  ///< n-th commit(): kIo, nothing published
  Code write_code = Code::kResourceExhausted;
  std::atomic<uint64_t> reads{0}, creates{0}, writes{0}, finishes{0}, commits{0};  ///< calls so far
};

inline bool strikes(std::atomic<uint64_t>& calls, const std::atomic<uint64_t>& nth) { return ++calls == nth; }

class FaultWriter : public Writer {
 public:
  FaultWriter(std::unique_ptr<Writer> base, std::shared_ptr<Faults> faults, std::string path)
      : base_(std::move(base)), faults_(std::move(faults)), path_(std::move(path)) {}
  Status write(std::span<const WriteOp> ops) override {
    if (!strikes(faults_->writes, faults_->fail_write)) return base_->write(ops);
    if (!ops.empty()) {
      WriteOp torn{ops[0].offset, ops[0].bytes.first(ops[0].bytes.size() / 2)};
      SHARDWRIGHT_TRY(base_->write({&torn, 1}));
    }
    return fail(faults_->write_code, "injected: cannot write").at_path(path_);
  }
  Status finish(uint64_t size_bytes) override {
    if (strikes(faults_->finishes, faults_->fail_finish))
      return fail(Code::kIo, "injected: cannot sync").at_path(path_);
    return base_->finish(size_bytes);
  }

 private:
  std::unique_ptr<Writer> base_;
  std::shared_ptr<Faults> faults_;
  std::string path_;
};

class FaultTransaction : public Transaction {
 public:
  FaultTransaction(std::unique_ptr<Transaction> base, std::shared_ptr<Faults> faults)
      : base_(std::move(base)), faults_(std::move(faults)) {}
  std::string token() const override { return base_->token(); }
  Result<std::unique_ptr<Writer>> create(std::string_view key, uint64_t size_bytes) override {
    if (strikes(faults_->creates, faults_->fail_create)) {
      return fail(Code::kResourceExhausted, "injected: no space left").at_path(std::string(key));
    }
    SHARDWRIGHT_ASSIGN(auto writer, base_->create(key, size_bytes));
    return std::unique_ptr<Writer>(std::make_unique<FaultWriter>(std::move(writer), faults_, std::string(key)));
  }
  Result<std::unique_ptr<Writer>> open(std::string_view key, uint64_t size_bytes) override {
    SHARDWRIGHT_ASSIGN(auto writer, base_->open(key, size_bytes));
    return std::unique_ptr<Writer>(std::make_unique<FaultWriter>(std::move(writer), faults_, std::string(key)));
  }
  Status commit(const Publication& publication) override {
    if (strikes(faults_->commits, faults_->fail_commit)) return fail(Code::kIo, "injected: cannot commit");
    return base_->commit(publication);
  }

 private:
  std::unique_ptr<Transaction> base_;
  std::shared_ptr<Faults> faults_;
};

class FaultStore : public Store {
 public:
  explicit FaultStore(std::shared_ptr<Store> base) : base_(std::move(base)), faults_(std::make_shared<Faults>()) {}
  Faults& faults() { return *faults_; }

  StoreCaps caps() const override { return base_->caps(); }
  std::string describe(std::string_view key) const override { return base_->describe(key); }
  Result<std::optional<uint64_t>> size(std::string_view key) override { return base_->size(key); }
  Status read(std::span<const ReadOp> ops) override {
    if (strikes(faults_->reads, faults_->fail_read)) {
      Error error = fail(Code::kIo, "injected: cannot read");
      if (ops.empty()) return error;
      return std::move(error).at_path(describe(ops[0].key)).at_offset(ops[0].offset);
    }
    uint64_t step = faults_->read_bytes_at_once;
    if (step == 0) return base_->read(ops);
    for (const ReadOp& op : ops) {
      for (uint64_t done = 0; done == 0 || done < op.into.size(); done += step) {
        ReadOp part{op.key, op.offset + done, op.into.subspan(done, std::min<uint64_t>(step, op.into.size() - done))};
        SHARDWRIGHT_TRY(base_->read({&part, 1}));
      }
    }
    return {};
  }
  Result<std::vector<std::string>> list(std::string_view prefix) override { return base_->list(prefix); }
  Result<std::unique_ptr<Transaction>> begin(std::string_view under) override { return wrap(base_->begin(under)); }
  Result<std::unique_ptr<Transaction>> join(std::string_view token) override { return wrap(base_->join(token)); }
  Result<std::optional<std::string>> recover(std::string_view under) override { return base_->recover(under); }
  Result<std::optional<Room>> room(std::string_view under) override { return base_->room(under); }
  uint64_t bytes_read() const override { return base_->bytes_read(); }

 private:
  Result<std::unique_ptr<Transaction>> wrap(Result<std::unique_ptr<Transaction>> base) {
    if (!base.ok()) return base;
    return std::unique_ptr<Transaction>(std::make_unique<FaultTransaction>(std::move(*base), faults_));
  }
  std::shared_ptr<Store> base_;
  std::shared_ptr<Faults> faults_;
};

}  // namespace shardwright::testing_support
