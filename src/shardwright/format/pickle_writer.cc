#include "shardwright/format/pickle_writer.h"

namespace shardwright {

PickleWriter::PickleWriter() {
  op(0x80);
  op(2);
}

void PickleWriter::text(std::string_view value) {
  op('X');
  append_le<uint32_t>(out_, static_cast<uint32_t>(value.size()));
  out_.insert(out_.end(), view_of(value).begin(), view_of(value).end());
}

void PickleWriter::integer(int64_t value) {
  if (value >= 0 && value <= UINT8_MAX) {
    op('K');
    append_le<uint8_t>(out_, static_cast<uint8_t>(value));
  } else if (value >= 0 && value <= UINT16_MAX) {
    op('M');
    append_le<uint16_t>(out_, static_cast<uint16_t>(value));
  } else if (value >= INT32_MIN && value <= INT32_MAX) {
    op('J');
    append_le<int32_t>(out_, static_cast<int32_t>(value));
  } else {
    op(0x8a);
    append_le<uint8_t>(out_, 8);
    append_le<int64_t>(out_, value);
  }
}

void PickleWriter::boolean(bool value) { op(value ? 0x88 : 0x89); }

void PickleWriter::integers(std::span<const int64_t> values) {
  if (values.empty()) return empty_tuple();
  bool counted = values.size() <= 3;  // has an opcode of its own
  if (!counted) mark();
  for (int64_t value : values) integer(value);
  if (counted)
    op(static_cast<uint8_t>(0x84 + values.size()));
  else
    tuple();
}

template <class Write>
void PickleWriter::remembered(const std::string& key, Write write) {
  auto [known, fresh] = memo_.try_emplace(key, static_cast<uint8_t>(memo_.size()));
  if (fresh) write();
  op(fresh ? 'q' : 'h');
  append_le<uint8_t>(out_, known->second);
}

void PickleWriter::global(std::string_view module, std::string_view name) {
  std::string line = std::string(module) + "\n" + std::string(name) + "\n";
  remembered("c" + line, [&] {
    op('c');
    out_.insert(out_.end(), view_of(line).begin(), view_of(line).end());
  });
}

void PickleWriter::constant(std::string_view value) {
  remembered("X" + std::string(value), [&] { text(value); });
}

void PickleWriter::empty_dict() { op('}'); }
void PickleWriter::empty_tuple() { op(')'); }
void PickleWriter::mark() { op('('); }
void PickleWriter::tuple() { op('t'); }
void PickleWriter::set_items() { op('u'); }
void PickleWriter::call() { op('R'); }
void PickleWriter::persistent() { op('Q'); }

Bytes PickleWriter::finish() {
  op('.');
  return std::move(out_);
}

}  // namespace shardwright
