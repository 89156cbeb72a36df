#include "shardwright/engine/source_files.h"

#include <fmt/format.h>

namespace shardwright {

Result<std::shared_ptr<Store>> open_source_files(const Catalog& tensors) {
  if (tensors.objects().empty() && tensors.side_files().empty()) return std::shared_ptr<Store>(open_memory_store());
  SHARDWRIGHT_ASSIGN(std::shared_ptr<Store> store, open_file_store("/"));
  for (const auto& object : tensors.objects()) {
    SHARDWRIGHT_ASSIGN(std::string key, store->attach(object.key));
    SHARDWRIGHT_ASSIGN(auto size, store->size(key));
    if (key != object.key)
      return fail(Code::kInvalidArgument, "not an absolute path").with_found("'" + object.key + "'");
    if (!size || (object.size != kUnknown && *size != object.size))
      return fail(Code::kAborted, "a file that holds tensors is not what it was")
          .at_path(object.key)
          .with_found(size ? fmt::format("{} bytes", *size) : "no such file")
          .with_expected(fmt::format("{} bytes", object.size));
    // After size(), which pins: from here on the store itself notices.
    if (!object.version.empty() && file_version(object.key) != object.version)
      return fail(Code::kAborted, "a file that holds tensors is not what it was")
          .at_path(object.key)
          .with_found("as many bytes, written since")
          .with_hint("run again when no other program writes it");
  }
  for (const auto& file : tensors.side_files()) SHARDWRIGHT_TRY(store->attach(file.key));
  return store;
}

}  // namespace shardwright
