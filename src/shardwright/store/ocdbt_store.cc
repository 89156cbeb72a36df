// An OCDBT database by the interface of a store, and what `ocdbt check` adds to reading it.
#include <fmt/format.h>

#include <algorithm>

#include "shardwright/base/text.h"
#include "shardwright/store/ocdbt.h"

namespace shardwright {
namespace {

class OcdbtStore : public Store {
 public:
  OcdbtStore(Store& base, std::string_view directory, std::unique_ptr<OcdbtDatabase> database)
      : base_(base), directory_(directory), database_(std::move(database)) {}

  StoreCaps caps() const override { return {.list = true}; }
  std::string describe(std::string_view key) const override {
    return base_.describe(directory_) + "!" + (is_utf8(key) ? std::string(key) : json_quote(key));
  }

  Result<std::optional<uint64_t>> size(std::string_view key) override {
    SHARDWRIGHT_ASSIGN(auto found, database_->find(key));
    return found ? std::optional(found->value.length) : std::nullopt;
  }

  Status read(std::span<const ReadOp> ops) override {
    std::vector<ReadOp> below;
    std::vector<OcdbtDatabase::Found> held;
    for (const auto& op : ops) {
      SHARDWRIGHT_ASSIGN(auto found, database_->find(op.key));
      if (!found) return fail(Code::kNotFound, "no such key in the OCDBT database").at_path(describe(op.key));
      const auto& value = found->value;
      if (op.offset > value.length || op.into.size() > value.length - op.offset)
        return fail(Code::kCorrupt, "value is shorter than what is to be read")
            .at_path(describe(op.key))
            .with_found(fmt::format("{} bytes", value.length))
            .with_expected(fmt::format("{} bytes at {}", op.into.size(), op.offset));
      if (value.is_inline) {
        std::ranges::copy(value.inline_value.subspan(op.offset, op.into.size()), op.into.begin());
        continue;
      }
      below.push_back({value.file, value.offset + op.offset, op.into});
      held.push_back(std::move(*found));
    }
    return below.empty() ? Status{} : base_.read(below);
  }

  Result<std::vector<std::string>> list(std::string_view prefix) override {
    std::vector<std::string> keys;
    SHARDWRIGHT_TRY(database_->for_each([&](const OcdbtValue& value) -> Status {
      if (value.key.starts_with(prefix)) keys.emplace_back(value.key);
      return {};
    }));
    return keys;
  }

  Result<std::unique_ptr<Transaction>> begin(std::string_view) override { return read_only(); }
  Result<std::unique_ptr<Transaction>> join(std::string_view) override { return read_only(); }
  Result<std::optional<std::string>> recover(std::string_view) override { return std::optional<std::string>(); }
  Result<std::optional<Room>> room(std::string_view) override { return std::optional<Room>(); }
  uint64_t bytes_read() const override { return base_.bytes_read(); }

 private:
  Error read_only() const {
    return fail(Code::kUnsupported, "an OCDBT database is written as a whole, not key by key").at_path(describe(""));
  }
  Store& base_;
  const std::string directory_;
  std::unique_ptr<OcdbtDatabase> database_;
};

/// Walks a tree and adds up, per open interior node, what is beneath it.
class Checker {
 public:
  Checker(Store& base, std::string_view directory, const std::function<void(const Error&)>& found)
      : base_(base), directory_(directory), found_(found) {}

  /// Parents come before their children, children in order: a node of height h ends all open ones of heights up to h.
  Status visit(const OcdbtDatabase::NodeVisit& visit) {
    close(visit.node.height());
    OcdbtStatistics own{0, visit.range.length, 0};
    if (visit.node.height() == 0) {
      for (const auto& entry : visit.node.entries()) {
        ++own.keys;
        if (entry.is_inline) continue;
        own.indirect_bytes += entry.range.length;
        SHARDWRIGHT_TRY(check_range(visit.node.files()[entry.range.file].path(), entry.range));
      }
    }
    std::vector<OcdbtStatistics> stated;
    if (visit.node.height() > 0)
      for (const auto& entry : visit.node.entries()) stated.push_back(entry.statistics);
    open_.push_back({visit.node.height(), own, std::move(stated), 0, std::string(visit.file), visit.range.offset});
    return {};
  }

  /// The sum of everything.
  OcdbtStatistics finish() {
    close(UINT8_MAX);
    return total_;
  }

 private:
  struct Open {
    uint8_t height;
    OcdbtStatistics sum;
    std::vector<OcdbtStatistics> stated;  ///< of its children
    size_t next;
    std::string file;
    uint64_t offset;
  };

  void close(uint8_t height) {
    while (!open_.empty() && open_.back().height <= height) {
      Open done = std::move(open_.back());
      open_.pop_back();
      if (open_.empty()) {
        total_ = done.sum;
        return;
      }
      Open& parent = open_.back();
      parent.sum += done.sum;
      if (parent.stated[parent.next++] != done.sum)
        found_(fail(Code::kCorrupt, "OCDBT node: it states other sums than what is beneath it")
                   .at_path(base_.describe(parent.file))
                   .at_offset(parent.offset));
    }
  }

  Status check_range(const std::string& path, const OcdbtRange& range) {
    if (path != last_path_) {
      last_path_ = path;
      last_size_.reset();
      if (is_safe_relative_path(path)) {
        SHARDWRIGHT_ASSIGN(last_size_, base_.size(directory_ + path));
      }
      if (!last_size_)
        found_(fail(Code::kNotFound, "a data file of the OCDBT database is missing")
                   .at_path(base_.describe(directory_ + path)));
    }
    if (last_size_ && (range.offset > *last_size_ || range.length > *last_size_ - range.offset))
      found_(fail(Code::kCorrupt, "a value lies beyond the end of its data file")
                 .at_path(base_.describe(directory_ + path))
                 .at_offset(range.offset)
                 .with_found(fmt::format("a file of {} bytes", *last_size_))
                 .with_expected(fmt::format("{} bytes more", range.length)));
    return {};
  }

  Store& base_;
  const std::string directory_;
  const std::function<void(const Error&)>& found_;
  std::vector<Open> open_;
  OcdbtStatistics total_;
  std::string last_path_;
  std::optional<uint64_t> last_size_ = 0;
};

}  // namespace

Result<std::unique_ptr<Store>> open_ocdbt_store(Store& base, std::string_view directory, const OcdbtOptions& options) {
  SHARDWRIGHT_ASSIGN(auto database, OcdbtDatabase::open(base, directory, options));
  return std::make_unique<OcdbtStore>(base, directory, std::move(database));
}

Result<uint64_t> check_ocdbt(Store& base, std::string_view directory, const OcdbtOptions& options,
                             const std::function<void(const Error&)>& found) {
  SHARDWRIGHT_ASSIGN(auto database, OcdbtDatabase::open(base, directory, options));
  Checker checker(base, directory, found);
  uint64_t values = 0;
  auto walked = database->for_each_node([&](const OcdbtDatabase::NodeVisit& visit) { return checker.visit(visit); });
  // Order of keys across nodes is looked at by the other walk.
  if (walked.ok())
    walked = database->for_each([&](const OcdbtValue&) -> Status {
      ++values;
      return {};
    });
  if (!walked.ok()) {
    found(walked.error());
    return values;
  }
  if (checker.finish() != database->version().statistics)
    found(fail(Code::kCorrupt, "OCDBT manifest: it states other sums than the tree has")
              .at_path(base.describe(database->manifest_key())));
  auto versions = database->versions();
  if (!versions.ok()) found(versions.error());
  return values;
}

}  // namespace shardwright
