/// Python pickles as data. Nothing in one is imported, looked up or called: a global is two names, a call the names and values of its parts.
///
/// Protocols 2 to 5, by the opcodes that pickles of tensors and their metadata are made of. Containers that are referred to several times, and
/// those that hold themselves, stay references: whoever walks the values bounds the walk.
#pragma once

#include <cstring>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "shardwright/base/bytes.h"
#include "shardwright/base/result.h"

namespace shardwright {

/// A small handle; what it stands for is in the Pickle it came from.
struct PickleValue {
  enum Type : uint8_t {
    kNone,
    kBool,
    kInt,    ///< fits 64 bits signed
    kFloat,  ///< 64 bits
    kText,
    kBytes,
    kBigInt,  ///< any longer integer
    kGlobal,  ///< a class or function, by its names
    kTuple,   ///< also a frozen set
    kList,
    kDict,
    kSet,
    kCall,        ///< REDUCE and NEWOBJ: something that is called with arguments, not called here
    kPersistent,  ///< an id that only the one who pickled can resolve
  };
  Type type = kNone;
  uint32_t count = 0;  ///< bytes of a text, elements of a tuple
  uint64_t at = 0;     ///< the number itself, or where it is

  bool is(Type other) const { return type == other; }
  int64_t integer() const { return static_cast<int64_t>(at); }
  double real() const {
    double out;
    std::memcpy(&out, &at, sizeof out);
    return out;
  }
};

struct PickleLimits {
  uint64_t values = 32'000'000;  ///< handles held at once: 16 bytes each
};

class Pickle {
 public:
  struct Global {
    std::string_view module, name;
  };
  struct Call {
    PickleValue callable, arguments, state;  ///< state: of BUILD, else kNone
    std::vector<PickleValue> items;          ///< APPENDS: elements; SETITEMS: key, value, key, value, ...
  };

  /// bytes: outlive the Pickle; it refers to them. What comes after STOP is not looked at.
  /// Errors: kCorrupt: not a pickle, cut off, a stack that does not fit its opcodes; kUnsupported: opcodes of protocols 0 and 1 and those that
  /// pickles of data have no use for, more values than the limits allow. With the offset.
  static Result<Pickle> parse(View bytes, const PickleLimits& limits = {});

  PickleValue root() const { return root_; }
  uint64_t bytes_used() const { return bytes_used_; }  ///< up to and with STOP

  std::string_view text(PickleValue value) const { return text_of(bytes_.subspan(value.at, value.count)); }
  Global global(PickleValue value) const { return globals_[value.at]; }
  const Call& call(PickleValue value) const { return calls_[value.at]; }
  /// Elements of a tuple, list or set; of a dict key, value, key, value, ...
  std::span<const PickleValue> items(PickleValue value) const {
    return value.is(PickleValue::kTuple) ? std::span(tuples_).subspan(value.at, value.count)
                                         : std::span<const PickleValue>(containers_[value.at]);
  }
  /// What a persistent id says; `at` counts them.
  PickleValue persistent(PickleValue value) const { return persistent_[value.at]; }
  std::span<const PickleValue> persistents() const { return persistent_; }
  std::span<const Global> globals() const { return globals_; }  ///< every one that is named, used or not
  size_t values() const { return values_; }

 private:
  friend class PickleMachine;
  View bytes_;
  PickleValue root_;
  uint64_t bytes_used_ = 0;
  size_t values_ = 0;
  std::vector<PickleValue> tuples_, persistent_;
  std::vector<std::vector<PickleValue>> containers_;
  std::vector<Call> calls_;
  std::vector<Global> globals_;
};

}  // namespace shardwright
