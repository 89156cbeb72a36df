#include "shardwright/format/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>

#include "shardwright/base/json.h"
#include "shardwright/base/text.h"
#include "shardwright/format/json_scan.h"
#include "shardwright/format/safetensors_full_parser.h"

namespace shardwright {
namespace {

using detail::JsonScan;

std::string shape_for_people(std::span<const int64_t> shape) {
  return shape.size() <= 32 ? shape_text(shape) : fmt::format("of rank {}", shape.size());
}

uint64_t bits_per_element(DType dtype) {
  const auto& row = dtype_row(dtype);
  return 8u * row.block_bytes / row.block_elems;
}

/// The numbers of an array whose bracket has been read; no value is kept.
bool scan_numbers(JsonScan& scan) {
  if (scan.symbol(']')) return true;
  uint64_t ignored;
  do {
    if (!scan.number(ignored)) return false;
  } while (scan.symbol(','));
  return scan.symbol(']');
}

/// Neighbouring tensors mostly share a type: one comparison instead of a search.
struct LastDType {
  std::string_view text = "U8";
  DType dtype = DType::kU8;
  bool find(std::string_view wanted) {
    if (wanted == text) return true;
    auto known = dtype_from_name(wanted);
    if (!known || !safetensors_has(*known)) return false;
    text = wanted;
    dtype = *known;
    return true;
  }
};

/// The value of a tensor's field, which has a bit of its own; 0: not as it should be.
template <class Entry>
unsigned scan_field(JsonScan& scan, std::string_view key, Entry& entry, LastDType& last) {
  if (key == "dtype") {
    std::string_view value;
    if (!scan.string(value) || !last.find(value)) return 0;
    entry.dtype = last.dtype;
    return 1;
  }
  if (key == "shape") {
    if (!scan.symbol('[')) return 0;
    entry.shape = static_cast<uint32_t>(scan.position());
    return scan_numbers(scan) ? 2 : 0;
  }
  if (key != "data_offsets") return 0;
  bool both =
      scan.symbol('[') && scan.number(entry.begin) && scan.symbol(',') && scan.number(entry.end) && scan.symbol(']');
  return both ? 4 : 0;
}

template <class Entry>
bool scan_info(JsonScan& scan, Entry& entry, LastDType& last) {
  if (!scan.symbol('{')) return false;
  unsigned seen = 0;
  do {
    std::string_view key;
    if (!scan.string(key) || !scan.symbol(':')) return false;
    unsigned field = scan_field(scan, key, entry, last);
    if (field == 0 || (seen & field) != 0) return false;
    seen |= field;
  } while (scan.symbol(','));
  return seen == 7 && scan.symbol('}');
}

}  // namespace

bool SafetensorsHeader::scan(std::string_view* metadata) {
  JsonScan scan(text_);
  LastDType last;
  if (!scan.symbol('{')) return false;
  if (scan.symbol('}')) return scan.at_end();
  do {
    std::string_view key;
    if (!scan.string(key) || !scan.symbol(':')) return false;
    if (key == kSafetensorsMetadataKey) {
      if (!metadata->empty() || !scan.raw_object(*metadata)) return false;
      continue;
    }
    Entry entry{};
    entry.name = static_cast<uint32_t>(key.data() - text_.data());
    entry.name_length = static_cast<uint32_t>(key.size());
    if (!scan_info(scan, entry, last)) return false;
    entries_.push_back(entry);
    name_bytes_ += key.size();
  } while (scan.symbol(','));
  return scan.symbol('}') && scan.at_end();
}

Status SafetensorsHeader::finish(std::string_view metadata) {
  auto before = [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  };
  if (!std::is_sorted(entries_.begin(), entries_.end(), before)) std::sort(entries_.begin(), entries_.end(), before);
  if (metadata.empty()) return {};
  uint64_t offset = 8 + static_cast<uint64_t>(metadata.data() - text_.data());
  if (metadata.size() > kMaxMetadata)
    return fail(Code::kUnsupported, "__metadata__ is too large")
        .at_offset(offset)
        .with_found(format_bytes(metadata.size()))
        .with_expected("at most " + format_bytes(kMaxMetadata));
  auto json = parse_json(metadata);
  if (!json.ok()) {
    json.error().message = "__metadata__: " + json.error().message;
    json.error().offset = offset + (json.error().offset == kNoOffset ? 0 : json.error().offset);
    return std::move(json.error());
  }
  for (auto& [key, value] : json->items()) {
    if (!value.is_string())
      return fail(Code::kCorrupt, "__metadata__ key " + json_quote(key) + " is not a string")
          .at_offset(offset)
          .with_found(value.type_name())
          .with_expected("a string");
    metadata_.emplace_back(key, value.get<std::string>());
  }
  has_metadata_ = true;
  return {};
}

Result<SafetensorsHeader> SafetensorsHeader::parse_with(Parser parser, std::string_view text) {
  if (text.size() > kMaxSafetensorsHeader)
    return fail(Code::kCorrupt, "header too large").at_offset(0).with_found(std::to_string(text.size()));
  if (!detail::is_ascii(text) && !is_utf8(text)) return fail(Code::kCorrupt, "header is not UTF-8").at_offset(8);
  SafetensorsHeader header;
  header.text_ = text;
  std::string_view metadata;
  if (parser == Parser::kFast) {
    if (!header.scan(&metadata)) return fail(Code::kCorrupt, "header is not in the plain form");
  } else {
    header.full_ = true;
    SHARDWRIGHT_TRY(SafetensorsFullParser(header).run(&metadata));
  }
  SHARDWRIGHT_TRY(header.finish(metadata));
  return header;
}

Result<SafetensorsHeader> SafetensorsHeader::parse(std::string_view text) {
  auto fast = parse_with(Parser::kFast, text);
  return fast.ok() ? std::move(fast) : parse_with(Parser::kFull, text);
}

Status SafetensorsHeader::check_size(const Entry& entry, std::vector<int64_t>& shape) const {
  const auto& row = dtype_row(entry.dtype);
  shape.clear();
  uint64_t elements = 1, highest = 0;
  bool overflow = false;
  JsonScan scan(text_, entry.shape);
  if (!scan.symbol(']')) do {
      uint64_t extent = 0;
      if (!scan.number(extent)) return fail(Code::kInternal, "a shape that was read before cannot be read again");
      highest = std::max(highest, extent);
      overflow |= __builtin_mul_overflow(elements, extent, &elements);
      if (shape.size() == UINT16_MAX) return fail(Code::kUnsupported, "more than 65535 dimensions");
      shape.push_back(static_cast<int64_t>(extent));
    } while (scan.symbol(','));
  auto bits = overflow ? std::nullopt : checked_mul(elements, bits_per_element(entry.dtype));
  if (!bits)
    return fail(Code::kCorrupt, "shape needs 2^64 bits or more")
        .with_found(std::string(row.name))
        .with_expected("a size below 2^64 bits");
  if (highest > INT64_MAX)
    return fail(Code::kUnsupported, "a dimension is 2^63 or larger").with_found(std::to_string(highest));
  if (*bits % 8 != 0)
    return fail(Code::kCorrupt,
                fmt::format("shape {} of {} does not fill whole bytes", shape_for_people(shape), row.name))
        .with_found(fmt::format("{} bits", *bits))
        .with_expected("a multiple of 8");
  if (entry.end - entry.begin != *bits / 8)
    return fail(Code::kCorrupt,
                fmt::format("data_offsets do not fit shape {} of {}", shape_for_people(shape), row.name))
        .with_found(fmt::format("{}..{}, {} bytes", entry.begin, entry.end, entry.end - entry.begin))
        .with_expected(fmt::format("{} bytes", *bits / 8));
  return {};
}

// The checks of the format's own reader, in its order: offsets, then size.
Status SafetensorsHeader::check(const Entry& entry, uint64_t start, const Entry* before,
                                std::vector<int64_t>& shape) const {
  auto offsets = [&](std::string what) {
    return fail(Code::kCorrupt, std::move(what))
        .with_found(fmt::format("data_offsets [{}, {}]", entry.begin, entry.end))
        .with_expected(fmt::format("a begin of {}", start));
  };
  if (entry.end < entry.begin) return offsets("data ends before it begins");
  if (entry.begin < start) {
    if (before != nullptr && name(*before) == name(entry)) return offsets("name given twice");
    return offsets(before == nullptr ? "data overlaps other data"
                                     : "data overlaps that of tensor " + json_quote(name(*before).substr(0, 200)));
  }
  if (entry.begin > start) return offsets(fmt::format("hole of {} bytes before the data", entry.begin - start));
  return check_size(entry, shape);
}

Result<uint64_t> SafetensorsHeader::visit(const Visit& tensor, const Report& report) const {
  uint64_t start = 0;
  std::vector<int64_t> shape;
  const Entry* before = nullptr;
  for (const Entry& entry : entries_) {
    auto status = check(entry, start, before, shape);
    if (status.ok()) {
      SHARDWRIGHT_TRY(tensor({name(entry), entry.dtype, shape, entry.begin, entry.end}));
    } else {
      auto error = std::move(status.error()).at_tensor(std::string(name(entry)));
      if (auto offset = checked_add(8 + text_.size(), entry.begin)) error.offset = *offset;
      SHARDWRIGHT_TRY(report(std::move(error)));
    }
    if (entry.end >= start) {
      start = entry.end;
      before = &entry;
    }
  }
  return start;
}

}  // namespace shardwright
