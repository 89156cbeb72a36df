/// What lies in memory, by content: to tell what has changed since it was saved.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shardwright/format/catalog.h"

namespace shardwright {

/// A box that one rank writes, and its ContentHash in hex: of its values in C order. Empty where nobody knows: of what calls make, and where there is no memory to
/// tell.
struct HashedBox {
  Box box;
  std::string hash;
};

/// By several threads, at most 4 MiB each beside what is hashed. boxes: each a piece of its tensor.
std::vector<std::string> hash_boxes(const Catalog& held, std::span<const std::pair<TensorId, Box>> boxes);

}  // namespace shardwright
