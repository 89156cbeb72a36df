// Touches and frees as many bytes as it is told, in 2 MiB pages. A guest's first touch of memory that the host has taken back costs
// about 37 times a later one, so it is run right before every timed run, for every rival alike.
#include <cstdlib>
#include <cstring>

#include "shardwright/base/memory_budget.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  auto slab = shardwright::Slab::allocate(std::strtoull(argv[1], nullptr, 10));
  std::memset(slab.data(), 1, slab.size());
  return static_cast<int>(slab.data()[slab.size() / 2]) - 1;
}
