/// Random damage to JSON text, for tests that compare two parsers.
#pragma once

#include <random>
#include <string>
#include <string_view>

namespace shardwright {

/// `good` after one to three edits: a byte changed, put in or cut out, or a stretch of the text repeated elsewhere.
inline std::string damaged(std::string good, std::mt19937& random) {
  using namespace std::string_view_literals;
  constexpr std::string_view kBytes = "{}[]\",:0123456789 \\eE.-+nultr/\n\0\x80\xc3\xa9"sv;
  for (uint32_t edits = 1 + static_cast<uint32_t>(random() % 3); edits > 0; --edits) {
    size_t at = random() % good.size();
    char byte = kBytes[random() % kBytes.size()];
    switch (random() % 4) {
      case 0: good[at] = byte; break;
      case 1: good.erase(at, 1 + random() % 8); break;
      case 2: good.insert(at, 1, byte); break;
      default: good.insert(at, good.substr(random() % good.size(), random() % 30));
    }
    if (good.empty()) good = "{";
  }
  return good;
}

}  // namespace shardwright
