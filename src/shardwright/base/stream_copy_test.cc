#include "shardwright/base/stream_copy.h"

#include <gmock/gmock.h>

#include <cstring>
#include <vector>

namespace shardwright {
namespace {

/// Every alignment of both sides, around the lengths at which lines begin and end; nothing beside the range is touched.
TEST(StreamCopy, AnyAddressAndLength) {
  std::vector<std::byte> from(400), expected(400), to(400);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + 1);
  for (size_t source : {0, 1, 8, 33})
    for (size_t target = 0; target < 64; ++target)
      for (size_t bytes : {0, 1, 15, 63, 64, 65, 127, 128, 200, 300}) {
        std::fill(to.begin(), to.end(), std::byte{0xee});
        expected = to;
        std::memcpy(expected.data() + target, from.data() + source, bytes);
        stream_copy(to.data() + target, from.data() + source, bytes);
        ASSERT_EQ(to, expected) << source << " " << target << " " << bytes;
      }
}

}  // namespace
}  // namespace shardwright
