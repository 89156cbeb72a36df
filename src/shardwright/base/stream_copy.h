/// Copying into memory that nobody reads soon.
#pragma once

#include <cstddef>

namespace shardwright {

/// memcpy() past the caches, where the processor can: the target is not read into them before it is written, so a third of the traffic is saved, and what
/// they hold stays there. The C library does so only for single copies of some hundred MB. Any sizes and addresses; the ranges do not overlap. Other
/// threads see the bytes by what orders any write.
void stream_copy(std::byte* to, const std::byte* from, size_t bytes);

}  // namespace shardwright
