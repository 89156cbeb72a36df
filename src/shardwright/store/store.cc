#include "shardwright/store/store.h"

namespace shardwright {

Result<Bytes> read_object(Store& store, std::string_view key, uint64_t cap) {
  SHARDWRIGHT_ASSIGN(auto size, store.size(key));
  if (!size) return fail(Code::kNotFound, "no such file").at_path(store.describe(key));
  if (*size > cap) {
    return fail(Code::kResourceExhausted, "file is larger than anything expected here")
        .at_path(store.describe(key))
        .with_found(std::to_string(*size) + " bytes")
        .with_expected("at most " + std::to_string(cap) + " bytes");
  }
  Bytes bytes(*size);
  ReadOp op{key, 0, bytes};
  SHARDWRIGHT_TRY(store.read({&op, 1}));
  return bytes;
}

}  // namespace shardwright
