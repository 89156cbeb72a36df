/// Safetensors files in a store: their headers, read and checked.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "shardwright/format/safetensors_header.h"
#include "shardwright/store/store.h"

namespace shardwright {

/// One file whose header has been parsed. Moves only: the header refers to the text.
struct SafetensorsFile {
  std::string key;
  uint64_t size = 0;  ///< of the whole file
  Bytes text;         ///< the header
  SafetensorsHeader header;
  uint64_t data_begin() const { return 8 + text.size(); }

  SafetensorsFile() = default;
  SafetensorsFile(SafetensorsFile&&) = default;
  SafetensorsFile& operator=(SafetensorsFile&&) = default;

  /// header.visit(), and then whether the file is as long as header and data together. Tensors that lie beyond the end are not visited. Every
  /// error carries the path that people know.
  Status visit(const Store& store, const SafetensorsHeader::Visit& tensor,
               const SafetensorsHeader::Report& report) const;
};

/// Calls `each` for every key in order, with the file or with what is wrong with it; stops when `each` returns an error. The first 64 KiB of all files
/// are read in one batch (of at most 256), only longer headers need a second read. header_cap: bytes of one header that are read at most.
/// Errors given to `each`: kNotFound; kCorrupt: too short, header too long or beyond the end, not JSON, with what the file seems to be instead.
Status read_safetensors_files(Store& store, std::span<const std::string> keys, uint64_t header_cap,
                              const std::function<Status(Result<SafetensorsFile>)>& each);
Result<SafetensorsFile> read_safetensors_file(Store& store, const std::string& key, uint64_t header_cap);

}  // namespace shardwright
