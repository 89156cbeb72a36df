#include "shardwright/format/safetensors_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "shardwright/base/text.h"

namespace shardwright {
namespace {

constexpr uint64_t kHeadBytes = 64 * KiB;
constexpr size_t kBatch = 256;

/// What the file is, when it does not even begin like a safetensors file; "" when it does, or nobody knows.
std::string other_kind(std::string_view head, uint64_t length) {
  if (head.size() > 8 && length <= kMaxSafetensorsHeader) {
    auto first = head.find_first_not_of(" \t\r\n", 8);
    if (first != head.npos && head[first] == '{') return "";
  }
  return describe_magic(head.substr(0, 512));
}

Error named(Error error, std::string_view head, uint64_t length) {
  auto kind = other_kind(head, length);
  if (kind.empty()) return error;
  error.message = "not a safetensors file but " + kind;
  if (kind.find("LFS") != kind.npos) error.hint = "fetch the file itself: `git lfs pull`";
  if (kind.find("HTML") != kind.npos) error.hint = "the download went wrong; the page may say why";
  return error;
}

struct Head {
  std::string key;
  uint64_t size = 0;
  Bytes bytes;
};

/// Length of the header, when it can be one.
Result<uint64_t> header_length(const Head& head) {
  if (head.bytes.size() < 8)
    return fail(Code::kCorrupt, head.size == 0 ? "the file is empty"
                                               : "header too small: the file is too short to be a safetensors file")
        .with_found(fmt::format("{} bytes", head.size))
        .with_expected("8 bytes of header length at least");
  auto length = load_le<uint64_t>(head.bytes);
  if (length > kMaxSafetensorsHeader)
    return fail(Code::kCorrupt, "header too large")
        .at_offset(0)
        .with_found(fmt::format("a length of {}", length))
        .with_expected(fmt::format("at most {}", kMaxSafetensorsHeader));
  if (length > head.size - 8)
    return fail(Code::kCorrupt, "invalid header length: the file ends before its header")
        .at_offset(0)
        .with_found(fmt::format("a file of {} bytes", head.size))
        .with_expected(fmt::format("at least {} bytes", 8 + length))
        .with_hint("the file may be cut off: get it again");
  return length;
}

Result<SafetensorsFile> parse_file(Store& store, Head head, uint64_t header_cap) {
  auto text = text_of(head.bytes);
  auto length = header_length(head);
  if (!length.ok())
    return named(std::move(length.error()), text, head.bytes.size() < 8 ? 0 : load_le<uint64_t>(head.bytes));
  // What is no JSON object is not worth reading on.
  if (auto first = text.find_first_not_of(" \t\r\n", 8);
      first < std::min<uint64_t>(text.size(), 8 + *length) && text[first] != '{')
    return named(fail(Code::kCorrupt, "header is not JSON")
                     .at_offset(first)
                     .with_found(json_quote(text.substr(first, 1)))
                     .with_expected("{"),
                 text, *length);
  if (*length > header_cap)
    return fail(Code::kResourceExhausted, "header is larger than allowed")
        .with_found(format_bytes(*length))
        .with_expected("at most " + format_bytes(header_cap));
  SafetensorsFile file;
  file.key = std::move(head.key);
  file.size = head.size;
  file.text.resize(*length);
  size_t have = std::min<uint64_t>(*length, head.bytes.size() - 8);
  std::copy_n(head.bytes.begin() + 8, have, file.text.begin());
  if (have < *length) {
    ReadOp rest{file.key, 8 + have, MutableView(file.text).subspan(have)};
    SHARDWRIGHT_TRY(store.read({&rest, 1}));
  }
  auto header = SafetensorsHeader::parse(text_of(file.text));
  if (!header.ok()) return named(std::move(header.error()), text, *length);
  file.header = std::move(*header);
  return file;
}

Result<Head> begin_head(Store& store, const std::string& key) {
  SHARDWRIGHT_ASSIGN(auto size, store.size(key));
  if (!size) return fail(Code::kNotFound, "no such file");
  return Head{key, *size, Bytes(std::min<uint64_t>(kHeadBytes, *size))};
}

Error at_path(Error error, Store& store, const std::string& key) {
  error.path = store.describe(key);
  return error;
}

/// The first bytes of each; what cannot be read is an error of its own.
std::vector<Result<Head>> read_heads(Store& store, std::span<const std::string> keys) {
  std::vector<Result<Head>> heads;
  std::vector<ReadOp> ops;
  for (const auto& key : keys) heads.push_back(begin_head(store, key));
  for (auto& head : heads)
    if (head.ok() && !head->bytes.empty()) ops.push_back({head->key, 0, head->bytes});
  if (store.read(ops).ok()) return heads;
  // Of a failed batch each file is read alone, to learn which one it was.
  for (auto& head : heads) {
    if (!head.ok() || head->bytes.empty()) continue;
    ReadOp op{head->key, 0, head->bytes};
    if (auto alone = store.read({&op, 1}); !alone.ok()) head = std::move(alone.error());
  }
  return heads;
}

}  // namespace

Status read_safetensors_files(Store& store, std::span<const std::string> keys, uint64_t header_cap,
                              const std::function<Status(Result<SafetensorsFile>)>& each) {
  for (; !keys.empty(); keys = keys.subspan(std::min(kBatch, keys.size()))) {
    auto batch = keys.first(std::min(kBatch, keys.size()));
    auto heads = read_heads(store, batch);
    for (size_t i = 0; i < batch.size(); ++i) {
      auto file = heads[i].ok() ? parse_file(store, std::move(*heads[i]), header_cap)
                                : Result<SafetensorsFile>(std::move(heads[i].error()));
      if (!file.ok()) file = at_path(std::move(file.error()), store, batch[i]);
      SHARDWRIGHT_TRY(each(std::move(file)));
    }
  }
  return {};
}

Result<SafetensorsFile> read_safetensors_file(Store& store, const std::string& key, uint64_t header_cap) {
  Result<SafetensorsFile> out = fail(Code::kInternal, "no file read");
  SHARDWRIGHT_TRY(read_safetensors_files(store, {&key, 1}, header_cap, [&](Result<SafetensorsFile> file) {
    out = std::move(file);
    return Status();
  }));
  return out;
}

Status SafetensorsFile::visit(const Store& store, const SafetensorsHeader::Visit& tensor,
                              const SafetensorsHeader::Report& report) const {
  uint64_t available = size - data_begin();
  auto path = store.describe(key);
  auto place = [&](Error error) {
    if (error.path.empty()) error.path = path;
    return error;
  };
  auto inside = [&](const SafetensorsEntry& entry) {
    if (entry.end > available) return Status();  // told below, once
    auto status = tensor(entry);
    if (!status.ok()) status = place(std::move(status.error()));
    return status;
  };
  SHARDWRIGHT_ASSIGN(uint64_t data, header.visit(inside, [&](Error error) { return report(place(std::move(error))); }));
  if (data == available) return {};
  auto expected = checked_add(data_begin(), data);
  auto error =
      fail(Code::kCorrupt,
           data > available ? "the file is cut off" : fmt::format("{} bytes too many at the end", available - data))
          .at_path(path)
          .at_offset(data > available ? size : *expected)
          .with_found(fmt::format("{} bytes", size))
          .with_expected(expected ? fmt::format("{} bytes by its header", *expected) : "a size that fits 64 bits");
  if (data > available) error.hint = "the file may not have been downloaded whole: get it again";
  return report(std::move(error));
}

}  // namespace shardwright
