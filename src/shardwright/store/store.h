/// Bytes by key, and sets of objects that become visible together.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shardwright/base/bytes.h"
#include "shardwright/base/result.h"

namespace shardwright {

/// What a store can do. Part sizes are 0 where random_write holds.
struct StoreCaps {
  bool random_write = false, rename = false, list = false, put_if_absent = false;
  uint64_t part_min = 0, part_max = 0, parts_max = 0;
};

/// Bytes [offset, offset + into.size()) of `key` into caller memory.
struct ReadOp {
  std::string_view key;
  uint64_t offset;
  MutableView into;
};

struct WriteOp {
  uint64_t offset;
  View bytes;
};

/// One object being written, invisible before commit. Thread-safe for disjoint ranges.
class Writer {
 public:
  virtual ~Writer() = default;
  /// random_write: any offset, any order; neighbouring ops are merged into one system call, and writeback starts at once.
  /// Part stores: whole parts at multiples of the part size, the last one shorter; any order, any thread, any rank.
  virtual Status write(std::span<const WriteOp> ops) = 0;
  /// Durable now (fsync; parts acknowledged) and closed; reports write-back and close errors. Called once, by whoever ends the object.
  /// size_bytes: final length, must equal the length given to create() when that was known.
  virtual Status finish(uint64_t size_bytes) = 0;
};

/// What to publish. `keys`: every object created, in order of appearance, the entry point of the set (index, single file) last.
/// `stale`: objects of the set that is replaced and not in keys; removed after. `entries`: the entry points of the old set (its index,
/// its single file), by which its readers begin.
struct Publication {
  std::vector<std::string> keys, stale, entries;
};

/// Objects that become visible together. Destroyed uncommitted: everything it made is removed.
class Transaction {
 public:
  virtual ~Transaction() = default;
  /// Names this transaction to Store::join on other ranks.
  virtual std::string token() const = 0;
  /// Keys are relative to `under`; may have components ("1_Pooling/config.json"). size kUnknown: append form, grows.
  /// Known sizes are preallocated: kResourceExhausted here, before any byte is written.
  /// kAborted, here and in commit(): another program took away what was written so far.
  virtual Result<std::unique_ptr<Writer>> create(std::string_view key, uint64_t size_bytes) = 0;
  /// An object that has been created with this known size, here or by another rank of the job: to write disjoint ranges of it. finish() makes
  /// durable what this writer wrote; every one that wrote does so before commit(). kNotFound when there is none.
  virtual Result<std::unique_ptr<Writer>> open(std::string_view key, uint64_t size_bytes) = 0;
  /// Makes all of it visible. Owner only (not a joined one). REQUIRES: every writer finished.
  /// `under` absent at begin(): one rename of a directory built aside. Present: a journal is made durable first, then renames; if a new
  /// key would replace a member of the old set, the old entry points are removed first, so that other readers see old, new or
  /// "not found", never a mix. A crash after the journal is finished by recover(); before it, the old set is untouched.
  virtual Status commit(const Publication& publication) = 0;
};

/// Thread-safe. Keys are '/'-separated relative paths; a key that could leave the root is kInvalidArgument.
class Store {
 public:
  virtual ~Store() = default;
  virtual StoreCaps caps() const = 0;
  /// What to print for a key: the path or URL.
  virtual std::string describe(std::string_view key) const = 0;
  /// Size in bytes; nullopt when there is no such object (a directory is none). Pins the version: later reads of a changed object fail.
  virtual Result<std::optional<uint64_t>> size(std::string_view key) = 0;
  /// Ops in any order, of any keys. Neighbours in file and gaps up to the store's merge limit are read in one call; gap bytes are dropped.
  /// Errors: kNotFound; kCorrupt when the object is shorter than a range; kAborted when it changed since it was pinned. Zero ops: fine.
  virtual Status read(std::span<const ReadOp> ops) = 0;
  /// A key for a file outside of the root, by its path (from the working directory where it is relative): for those whose place an index
  /// gives. It is read and described as any other, never listed or written, and need not be there. kUnsupported: a store without such files.
  virtual Result<std::string> attach(std::string_view path);
  /// Keys of objects below `prefix` ("" or "dir/"), whole paths, sorted; not links to directories, not what transactions left.
  virtual Result<std::vector<std::string>> list(std::string_view prefix) = 0;
  /// Begins a set of objects in directory `under` ("" = the root itself). Finishes or drops first what a crash left there.
  virtual Result<std::unique_ptr<Transaction>> begin(std::string_view under) = 0;
  /// The same set, for another process of the job. kNotFound when it has ended, or this machine does not see it.
  virtual Result<std::unique_ptr<Transaction>> join(std::string_view token) = 0;
  /// Finishes or drops what a crash left in `under`: a sentence for the user when there was something. Waits a moment for a live commit.
  virtual Result<std::optional<std::string>> recover(std::string_view under) = 0;
  /// Bytes and objects that can still be written below `under`; nullopt when unlimited or unknown.
  struct Room {
    uint64_t bytes, objects;
  };
  virtual Result<std::optional<Room>> room(std::string_view under) = 0;
  /// Bytes read so far through read(), gaps included. For "reads once" promises.
  virtual uint64_t bytes_read() const = 0;
};

struct FileStoreOptions {
  uint64_t merge_gap_bytes = 64 * KiB;  ///< gaps up to this are read and dropped
  bool direct = false;                  ///< O_DIRECT reads where address and offset agree modulo 4096; else buffered
};
/// Objects are files below a directory (which may be absent until begin()). Links are followed. No mmap.
Result<std::unique_ptr<Store>> open_file_store(std::string_view root, const FileStoreOptions& options = {});
/// What tells two states of a file apart beside its size, to be compared and nothing else; "" when it cannot be looked at. Links are followed.
std::string file_version(const std::string& path);
/// Objects in memory; for tests and for small sets.
std::unique_ptr<Store> open_memory_store();

/// False when there is none, and when the store cannot say.
bool has_object(Store& store, std::string_view key);
/// Whole object, at most `cap` bytes. Errors: kNotFound; kResourceExhausted when larger.
Result<Bytes> read_object(Store& store, std::string_view key, uint64_t cap);
/// Bytes [offset, offset + length) of an object, front to back, in blocks of at most 1 MiB; each view dies on return of visit().
Status read_blocks(Store& store, std::string_view key, uint64_t offset, uint64_t length,
                   const std::function<Status(View)>& visit);
/// Creates, writes and finishes an object whose bytes are at hand.
Status write_object(Transaction& transaction, std::string_view key, View bytes);

}  // namespace shardwright
