/// What users ask for, by path: each is a plan and an execution. Nothing here prints.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shardwright/base/checksum.h"
#include "shardwright/comm/comm.h"
#include "shardwright/engine/execute.h"
#include "shardwright/layout/layout_map.h"

namespace shardwright {

struct JobOptions {
  PlanOptions plan{};
  OpenOptions open{};
  /// phase: "wait" (for another writer), "copy", "sync" (once, before the commit, all bytes done), "read", "compare"; called about 10 times
  /// a second on the calling thread; false stops with kAborted.
  std::function<bool(std::string_view phase, uint64_t done, uint64_t total)> progress{};
  std::chrono::milliseconds wait{600 * 1000};  ///< longest that a rank waits for others, who may still be writing
};

/// Which tensors, under which names and types. Globs match source names; an empty include list takes all.
struct Selection {
  std::vector<std::string> include, exclude;
  std::vector<std::pair<std::string, std::string>>
      rename;                  ///< Python regex (search, all matches) -> replacement (\1, \g<name>), in order
  std::optional<DType> dtype;  ///< floating tensors are cast to it
};

/// What one device of a mesh holds. Names are those of the target; position is the device's place in the mesh, row-major.
struct DevicePart {
  LayoutMap layout;
  int64_t position = 0;
};

struct CopyRequest {
  std::string source, target;
  std::string format;                         ///< "" = by the target's name
  std::optional<uint64_t> max_shard_bytes{};  ///< none: one file for a named file, 5 GB for a directory or an index
  bool strict = false, overwrite = false, dry_run = false, manifest = false;
  std::vector<std::pair<std::string, std::string>> settings{};  ///< WriteOptions::settings
  uint64_t time_ns = 0;                                         ///< WriteOptions::time_ns
  /// Into a directory: files of the format, by which readers begin ("model.safetensors"); what they are the entry points of is replaced, and nothing else.
  /// Empty: whatever a reader of the directory may begin with, in any format.
  std::vector<std::string> replaces{};
  Selection select{};
  /// Only this part is written: local shapes, with each tensor's whole shape and start in the metadata "shardwright.part" (see part.h).
  std::optional<DevicePart> part{};
  /// Where the arrays are to be noted to have been, by names of the target: for formats that do so (Orbax), which also cut chunks by it.
  std::optional<LayoutMap> layout{};
};

struct CopySummary {
  std::string source, target, format;
  uint64_t tensors = 0, shards = 0, bytes_read = 0, bytes_written = 0, peak_memory_bytes = 0;
  double seconds = 0;
  double reread =
      1;  ///< bytes read for each that is needed: more where encoded chunks are read for a part of them, or again
  std::vector<std::pair<std::string, uint64_t>>
      objects;  ///< files written, or to be written, with sizes (kUnknown where late); the index last
  std::vector<std::string> warnings;
};
/// Errors: kAlreadyExists (checkpoint at target, no overwrite; target inside the source), kResourceExhausted (disk, inodes, budget), and those of
/// formats and engine. Target onto its own source is a replacement in place. Nothing is written before every check has passed.
Result<CopySummary> copy_checkpoint(const CopyRequest& request, const JobOptions& options);
/// Writes what is in memory, or made by calls: a copy from a catalogue of kMemory and kCall pieces instead of a path. request.source is
/// only repeated in the summary. Tensors may lie in files as well: the keys of objects are absolute paths then, with the sizes that the files
/// have, and may be those of the set that is replaced. Side files likewise. Calls::produce is called tensor by tensor, in the order of the files to be written; calls.keep_going is
/// not looked at (see JobOptions::progress). The target may be what the calls read from: it is replaced when all is written.
Result<CopySummary> save_tensors(const Catalog& tensors, const Calls& calls, const CopyRequest& request,
                                 const JobOptions& options);
/// The same by all ranks together, into one checkpoint, which is what one rank would have written, byte for byte. tensors: those of which
/// this rank has something, whole shapes, with pieces for the boxes that it holds; together they hold everything. Every box is written once,
/// by one of those who have it; rank 0 makes the files and commits them when all have written. A format that is written from front to back
/// (chunks that are compressed) is written by rank 0, which asks the others for what they hold. All ranks see the target, and give the same
/// request; values are those of the lowest rank that has them. Collective over comm: the outcome, and the summary, is the same on every rank.
/// Errors: those above; kInvalidArgument for a part that nobody holds, and for ranks that do not fit together or ask for different things;
/// kUnavailable, with the ranks that are missing. Nothing appears at the target then, but for one case: once all have written, rank 0
/// commits alone, and a rank that is lost while it does may have others believe that all is lost. What rank 0 returns is true.
Result<CopySummary> save_tensors(const Catalog& tensors, const Calls& calls, const CopyRequest& request,
                                 const JobOptions& options, Comm& comm);

struct VerifyRequest {
  std::string path;
  bool full = false;      ///< read all bytes; check the manifest when there is one
  std::string against{};  ///< another manifest file
};
struct VerifySummary {
  uint64_t tensors = 0, bytes_checked = 0, findings = 0;
  uint64_t peak_memory_bytes = 0;  ///< of anonymous memory, beyond what there was before
  bool manifest = false;
};
/// Every finding goes to `found`, a corrupt file is a finding too. Errors only for what cannot be looked at (kNotFound, kPermission, ...).
Result<VerifySummary> verify_checkpoint(const VerifyRequest& request, const JobOptions& options,
                                        const std::function<void(const Error&)>& found);

struct Difference {
  std::string name;
  std::string change;                    ///< "added" (only in b), "removed" (only in a), "dtype", "shape", "value"
  std::optional<double> max_abs_diff{};  ///< of "value"
  std::string detail{};                  ///< "F32 -> BF16", "[2, 3] -> [3, 2]"
};
struct DiffRequest {
  std::string a, b;
  bool names_only = false;
  /// Equal when |a-b| <= absolute + relative * |b|, floating types across dtypes too; both 0: equal bits of one dtype.
  double absolute = 0, relative = 0;
  bool exact() const { return absolute == 0 && relative == 0; }
};
Result<std::vector<Difference>> diff_checkpoints(const DiffRequest& request, const JobOptions& options);

struct TensorHash {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;
  std::string hash;  ///< 32 hex digits (ContentHash)
};
/// In catalogue order. write: also makes shardwright.manifest.json beside the checkpoint.
Result<std::vector<TensorHash>> hash_checkpoint(const std::string& path, bool write, const JobOptions& options);

struct ReindexSummary {
  std::string index;                               ///< file written
  uint64_t tensors = 0, shards = 0;                ///< lines of the index (for Keras one a layer), and files it names
  std::vector<std::string> added, removed, moved;  ///< lines, against the old index
};
/// Rebuilds the index of a sharded set from the headers of its shards.
Result<ReindexSummary> reindex_checkpoint(const std::string& directory, bool dry_run, const JobOptions& options);

/// One box of one tensor into `out` (C order, the tensor's dtype). The same plan and engine as everything else.
Status read_box(const Checkpoint& checkpoint, TensorId tensor, const Box& box, MutableView out,
                const PlanOptions& options = {});

struct Statistics {
  double min = 0, max = 0, mean = 0;  ///< of the finite values; complex by absolute value
  uint64_t elements = 0, nan = 0, infinite = 0, zero = 0;
};
Result<Statistics> tensor_statistics(const Checkpoint& checkpoint, TensorId tensor, const JobOptions& options);

}  // namespace shardwright
