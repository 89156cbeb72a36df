/// Pickles of data, protocol 2, as text of opcodes: the counterpart of Pickle.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "shardwright/base/bytes.h"

namespace shardwright {

/// Values are appended in the order in which a pickler meets them; the caller keeps the stack in mind.
class PickleWriter {
 public:
  PickleWriter();
  void text(std::string_view value);
  void integer(int64_t value);
  void boolean(bool value);
  /// A tuple of integers.
  void integers(std::span<const int64_t> values);
  /// What comes again and again is written once and remembered. At most 256 different ones of both together.
  void global(std::string_view module, std::string_view name);
  void constant(std::string_view text);
  void empty_dict();
  void empty_tuple();
  void mark();
  void tuple();       ///< of all since the mark
  void set_items();   ///< keys and values since the mark, into the dictionary below it
  void call();        ///< function, tuple of arguments
  void persistent();  ///< the tuple on top is an id
  Bytes finish();

 private:
  void op(uint8_t code) { out_.push_back(static_cast<std::byte>(code)); }
  template <class Write>
  void remembered(const std::string& key, Write write);
  Bytes out_;
  std::map<std::string, uint8_t> memo_;
};

}  // namespace shardwright
