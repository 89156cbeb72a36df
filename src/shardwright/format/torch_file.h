/// Files of torch.save in a store: their pickle parsed, and where each storage lies. Private to the torch format.
#pragma once

#include <string>
#include <vector>

#include "shardwright/format/format.h"
#include "shardwright/format/torch_objects.h"

namespace shardwright {

inline constexpr uint64_t kMaxTorchPickle = 256 * MiB;

/// Moves only: the pickle refers to the bytes.
struct TorchFile {
  struct Place {
    uint64_t offset = 0, stored_bytes = 0, bytes = 0;
    bool deflated = false;
  };
  std::string key;
  uint64_t size = 0;  ///< of the whole file
  Bytes bytes;
  Pickle pickle;
  TorchStorages storages;
  std::vector<Place> places;  ///< one per storage
  bool big_endian = false;

  TorchFile() = default;
  TorchFile(TorchFile&&) = default;
  TorchFile& operator=(TorchFile&&) = default;
};

/// A zip archive (torch 1.6 and later) or five pickles and the storages behind them (before). Reads no elements.
/// Errors: kCorrupt: records missing or of another size than the pickle says, and what parsing finds; kUnsupported: TorchScript, tar
/// (before 0.1.10), other pickles, versions after 10.
Result<TorchFile> read_torch_file(Store& store, const std::string& key, const OpenOptions& options);

/// kMagic: first bytes of a file of torch.save, in whatever form; kCertain with an ending of torch's too. kName: only that ending, and a zip
/// or a pickle all the same, whose error says what is wrong.
Confidence sniff_torch_file(Store& store, std::string_view key);

/// Holds the records of a zip against their checksums, where it has any.
Status check_torch_sums(Store& store, const std::string& key, const OpenOptions& options);

}  // namespace shardwright
