#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <set>

#include "shardwright/store/file_cache.h"
#include "shardwright/store/file_list.h"
#include "shardwright/store/file_read.h"
#include "shardwright/store/file_transaction.h"
#include "shardwright/store/key.h"
#include "shardwright/store/recovery.h"
#include "shardwright/store/store.h"

namespace shardwright {
namespace {

using namespace detail;

constexpr auto kPatience = std::chrono::seconds(5);  // for a commit that is under way

class FileStore : public Store {
 public:
  FileStore(std::string root, const FileStoreOptions& options)
      : cache_(std::make_shared<FileCache>(std::move(root))), rules_{options.merge_gap_bytes, options.direct} {}

  StoreCaps caps() const override {
    StoreCaps caps;
    caps.random_write = caps.rename = caps.list = true;
    return caps;
  }
  std::string describe(std::string_view key) const override { return cache_->path_of(key); }

  Result<std::optional<uint64_t>> size(std::string_view key) override {
    SHARDWRIGHT_TRY(check(key));
    return cache_->size(key);
  }

  Status read(std::span<const ReadOp> ops) override;

  Result<std::string> attach(std::string_view path) override {
    if (path.find('\0') != path.npos) return fail(Code::kInvalidArgument, "path contains a NUL byte");
    std::error_code error;
    auto key = std::filesystem::absolute(path, error).string();
    if (error || path.empty())
      return fail(Code::kInvalidArgument, "not a path").with_found("'" + std::string(path) + "'");
    std::lock_guard lock(attached_mutex_);
    attached_.insert(key);
    return key;
  }

  Result<std::vector<std::string>> list(std::string_view prefix) override {
    SHARDWRIGHT_TRY(check_prefix(prefix));
    auto directory = cache_->root();
    if (!directory && errno == ENOENT) return std::vector<std::string>();
    if (!directory) return errno_error(errno, "cannot list directory", describe(""));
    return list_files(directory->get(), prefix, describe(prefix));
  }

  Result<std::unique_ptr<Transaction>> begin(std::string_view under) override {
    SHARDWRIGHT_TRY(recover(under));
    SHARDWRIGHT_ASSIGN(auto target, TargetDirectory::find(describe(under)));
    return FileTransaction::begin(std::move(target), [cache = cache_] { cache->forget(); });
  }
  Result<std::unique_ptr<Transaction>> join(std::string_view token) override { return FileTransaction::join(token); }
  Result<std::optional<std::string>> recover(std::string_view under) override {
    SHARDWRIGHT_TRY(check_directory(under));
    SHARDWRIGHT_ASSIGN(auto target, TargetDirectory::find(describe(under)));
    SHARDWRIGHT_ASSIGN(auto sentence, recover_directory(target, kPatience));
    if (sentence) cache_->forget();
    return sentence;
  }

  Result<std::optional<Room>> room(std::string_view under) override;
  uint64_t bytes_read() const override { return bytes_read_; }

 private:
  /// Keys of attached files are their absolute paths, which no other key can be.
  Status check(std::string_view key) const {
    if (!key.starts_with('/')) return check_key(key);
    std::lock_guard lock(attached_mutex_);
    return attached_.contains(key) ? Status() : check_key(key);
  }

  std::shared_ptr<FileCache> cache_;  // shared with transactions: a commit makes it forget
  ReadRules rules_;
  std::atomic<uint64_t> bytes_read_{0};
  mutable std::mutex attached_mutex_;
  std::set<std::string, std::less<>> attached_;
};

Status FileStore::read(std::span<const ReadOp> ops) {
  std::vector<const ReadOp*> sorted;
  sorted.reserve(ops.size());
  for (const ReadOp& op : ops) sorted.push_back(&op);
  std::sort(sorted.begin(), sorted.end(), [](const ReadOp* a, const ReadOp* b) {
    int order = a->key.compare(b->key);
    return order != 0 ? order < 0 : a->offset < b->offset;
  });
  std::vector<FileRange> ranges;
  for (size_t i = 0; i < sorted.size();) {
    std::string_view key = sorted[i]->key;
    SHARDWRIGHT_TRY(check(key));
    ranges.clear();
    for (; i < sorted.size() && sorted[i]->key == key; ++i) {
      ranges.push_back({sorted[i]->offset, sorted[i]->into.data(), sorted[i]->into.size()});
    }
    SHARDWRIGHT_ASSIGN(auto file, cache_->open(key));
    SHARDWRIGHT_TRY(read_ranges(*file, ranges, rules_, bytes_read_));
  }
  return {};
}

Result<std::optional<Store::Room>> FileStore::room(std::string_view under) {
  SHARDWRIGHT_TRY(check_directory(under));
  // The nearest directory that exists: what is missing will be made there.
  std::string path = describe(under);
  struct statvfs info;
  while (::statvfs(path.c_str(), &info) != 0) {
    if (errno != ENOENT || path == "/" || path == ".")
      return errno_error(errno, "cannot look at the file system of", path);
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    size_t slash = path.rfind('/');
    path = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  }
  Room room{};
  room.bytes = static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
  room.objects = info.f_files == 0 ? kUnknown : info.f_favail;  // 0: the file system makes inodes as needed
  return std::optional<Room>(room);
}

}  // namespace

Result<std::unique_ptr<Store>> open_file_store(std::string_view root, const FileStoreOptions& options) {
  if (root.find('\0') != std::string_view::npos) return fail(Code::kInvalidArgument, "path contains a NUL byte");
  return std::unique_ptr<Store>(std::make_unique<FileStore>(std::string(root.empty() ? "." : root), options));
}

std::string file_version(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return "";
  FileVersion version = FileVersion::of(info);
  return fmt::format("{}:{}:{}.{:09}", version.device, version.inode, version.modified_s, version.modified_ns);
}

}  // namespace shardwright
