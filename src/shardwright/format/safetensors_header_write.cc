#include <algorithm>
#include <charconv>

#include "shardwright/format/safetensors_header.h"

namespace shardwright {
namespace {

void append(Bytes& out, std::string_view text) {
  auto bytes = view_of(text);
  out.insert(out.end(), bytes.begin(), bytes.end());
}

void append(Bytes& out, uint64_t number) {
  char digits[20];
  auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
  append(out, std::string_view(digits, static_cast<size_t>(end - digits)));
}

/// Escaped as serde_json does it: the short forms, \u00xx for other control characters, all else as it is.
void append_string(Bytes& out, std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  append(out, "\"");
  for (size_t i = 0; i < text.size();) {
    size_t plain = i;
    while (plain < text.size() && text[plain] != '"' && text[plain] != '\\' &&
           static_cast<unsigned char>(text[plain]) >= 0x20)
      ++plain;
    append(out, text.substr(i, plain - i));
    i = plain;
    if (i == text.size()) break;
    char c = text[i++];
    switch (c) {
      case '"': append(out, "\\\""); break;
      case '\\': append(out, "\\\\"); break;
      case '\b': append(out, "\\b"); break;
      case '\f': append(out, "\\f"); break;
      case '\n': append(out, "\\n"); break;
      case '\r': append(out, "\\r"); break;
      case '\t': append(out, "\\t"); break;
      default: {
        char escape[] = {'\\', 'u', '0', '0', kHex[static_cast<size_t>(c) >> 4], kHex[static_cast<size_t>(c) & 15]};
        append(out, std::string_view(escape, sizeof escape));
      }
    }
  }
  append(out, "\"");
}

}  // namespace

SafetensorsHeaderWriter::SafetensorsHeaderWriter(const std::vector<std::pair<std::string, std::string>>* metadata)
    : out_(8) {
  append(out_, "{");
  if (metadata == nullptr) return;
  auto sorted = *metadata;
  std::sort(sorted.begin(), sorted.end());
  append_string(out_, kSafetensorsMetadataKey);
  append(out_, ":{");
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (i > 0) append(out_, ",");
    append_string(out_, sorted[i].first);
    append(out_, ":");
    append_string(out_, sorted[i].second);
  }
  append(out_, "}");
  first_ = false;
}

void SafetensorsHeaderWriter::add(std::string_view name, DType dtype, std::span<const int64_t> shape, uint64_t begin,
                                  uint64_t end) {
  if (!first_) append(out_, ",");
  first_ = false;
  append_string(out_, name);
  append(out_, ":{\"dtype\":\"");
  append(out_, dtype_row(dtype).name);
  append(out_, "\",\"shape\":[");
  for (size_t d = 0; d < shape.size(); ++d) {
    if (d > 0) append(out_, ",");
    append(out_, static_cast<uint64_t>(shape[d]));
  }
  append(out_, "],\"data_offsets\":[");
  append(out_, begin);
  append(out_, ",");
  append(out_, end);
  append(out_, "]}");
}

Bytes SafetensorsHeaderWriter::finish() {
  append(out_, "}");
  out_.resize(round_up(out_.size(), 8), std::byte{' '});
  uint64_t length = out_.size() - 8;
  std::memcpy(out_.data(), &length, sizeof length);
  return std::move(out_);
}

uint64_t safetensors_entry_bound(std::string_view name, std::span<const int64_t> shape) {
  // The punctuation and field names are 50 bytes, the longest dtype 11, each number at most 20 digits and a comma; control characters
  // take six bytes.
  uint64_t escaped = name.size();
  for (char c : name) escaped += static_cast<unsigned char>(c) < 0x20 ? 5 : c == '"' || c == '\\' ? 1 : 0;
  return escaped + 64 + 21 * (shape.size() + 2);
}

bool safetensors_before(DType a, std::string_view name_a, DType b, std::string_view name_b) {
  if (a != b) return dtype_row(a).alignment_order > dtype_row(b).alignment_order;
  return name_a < name_b;
}

}  // namespace shardwright
