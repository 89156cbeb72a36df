/// For tests: pickles and archives of torch made by hand, opcode by opcode, independent of our writers.
#pragma once

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "shardwright/base/checksum.h"
#include "shardwright/format/format.h"
#include "shardwright/store/testing.h"
#include "shardwright/store/zip.h"

namespace shardwright::testing_support {

template <class T>
std::string le(T value) {
  std::string out(sizeof value, '\0');
  std::memcpy(out.data(), &value, sizeof value);
  return out;
}
inline std::string p_text(std::string_view text) {
  return "X" + le(static_cast<uint32_t>(text.size())) + std::string(text);
}
inline std::string p_int(int64_t value) { return std::string("\x8a\x08", 2) + le(value); }
inline std::string p_tuple(const std::vector<std::string>& items) {
  std::string out = "(";
  for (const auto& item : items) out += item;
  return out + "t";
}
inline std::string p_ints(const std::vector<int64_t>& values) {
  std::vector<std::string> items;
  for (int64_t value : values) items.push_back(p_int(value));
  return p_tuple(items);
}
inline std::string p_global(std::string_view module, std::string_view name) {
  return "c" + std::string(module) + "\n" + std::string(name) + "\n";
}
inline std::string p_storage(std::string_view type, std::string_view key, int64_t elements) {
  return p_tuple({p_text("storage"), p_global("torch", type), p_text(key), p_text("cpu"), p_int(elements)}) + "Q";
}
inline std::string p_ordered_dict() { return p_global("collections", "OrderedDict") + ")R"; }
inline std::string p_tensor(std::string_view type, std::string_view key, int64_t elements, int64_t offset,
                            const std::vector<int64_t>& size, const std::vector<int64_t>& stride) {
  return p_global("torch._utils", "_rebuild_tensor_v2") +
         p_tuple(
             {p_storage(type, key, elements), p_int(offset), p_ints(size), p_ints(stride), "\x89", p_ordered_dict()}) +
         "R";
}
inline std::string pickled(const std::string& body, char protocol = 2) {
  return std::string("\x80") + protocol + body + ".";
}

/// A stored zip of records in one folder.
inline std::string zip_of(const Files& records, const std::string& folder = "archive/") {
  std::vector<ZipLayout::Entry> entries;
  std::vector<uint32_t> crcs;
  for (const auto& [name, bytes] : records) entries.push_back({folder + name, bytes.size(), 0x00210000});
  ZipLayout layout(entries);
  std::string out;
  auto add = [&](View bytes) { out += text_of(bytes); };
  for (size_t i = 0; i < records.size(); ++i) {
    crcs.push_back(crc32(view_of(records[i].second)));
    add(layout.local_header(i, crcs.back()));
    out += records[i].second;
  }
  add(layout.directory(crcs));
  return out;
}
/// Six floats, 0 to 5, in storage 0, and a pickle of the caller's.
inline std::string torch_file(const std::string& pickle) {
  std::string floats;
  for (float value : {0.f, 1.f, 2.f, 3.f, 4.f, 5.f}) floats += le(value);
  return zip_of({{"data.pkl", pickle}, {"data/0", floats}, {"version", "3\n"}});
}

}  // namespace shardwright::testing_support
