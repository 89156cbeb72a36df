#include "shardwright/store/store.h"

#include <algorithm>

namespace shardwright {

Result<std::string> Store::attach(std::string_view path) {
  return fail(Code::kUnsupported, "this store has no files outside of it").with_found("'" + std::string(path) + "'");
}

bool has_object(Store& store, std::string_view key) {
  auto size = store.size(key);
  return size.ok() && size->has_value();
}

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

Status read_blocks(Store& store, std::string_view key, uint64_t offset, uint64_t length,
                   const std::function<Status(View)>& visit) {
  Bytes block(std::min(MiB, length));
  for (uint64_t at = 0; at < length;) {
    auto part = MutableView(block).first(std::min<uint64_t>(block.size(), length - at));
    ReadOp op{key, offset + at, part};
    SHARDWRIGHT_TRY(store.read({&op, 1}));
    SHARDWRIGHT_TRY(visit(part));
    at += part.size();
  }
  return {};
}

Status write_object(Transaction& transaction, std::string_view key, View bytes) {
  SHARDWRIGHT_ASSIGN(auto writer, transaction.create(key, bytes.size()));
  WriteOp op{0, bytes};
  if (!bytes.empty()) SHARDWRIGHT_TRY(writer->write({&op, 1}));
  return writer->finish(bytes.size());
}

}  // namespace shardwright
