#include <algorithm>
#include <array>

#include "shardwright/format/format.h"

namespace shardwright {
namespace {

// Order matters where two rows are equally sure.
constexpr std::array<const Format*, 9> kTable = {&kOffload, &kSafetensors, &kKerasSharded, &kKerasArchive, &kKerasH5,
                                                 &kTorch,   &kOrbax,       &kZarr,         &kHdf5};

}  // namespace

std::span<const Format* const> format_table() { return kTable; }

const Format* find_format(std::string_view name) {
  auto at = std::find_if(kTable.begin(), kTable.end(), [&](const Format* row) { return row->name == name; });
  return at == kTable.end() ? nullptr : *at;
}

const Format* sniff_format(Store& store, std::string_view at) {
  const Format* best = nullptr;
  auto surest = Confidence::kNo;
  for (const Format* row : kTable)
    if (auto sure = row->sniff(store, at); sure > surest) {
      best = row;
      surest = sure;
    }
  return best;
}

}  // namespace shardwright
