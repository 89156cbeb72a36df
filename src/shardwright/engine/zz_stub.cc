#include "shardwright/format/format.h"
#include "shardwright/tensor/convert.h"
#include <cstring>
namespace shardwright {
const Format kSafetensors{}, kKerasH5{}, kKerasSharded{}, kKerasArchive{}, kHdf5{};
bool can_convert(DType a, DType b) { return a == b || (a == DType::kF32 && b == DType::kBF16); }
Status convert(DType, View in, DType, MutableView out) { for (size_t i = 0; i < out.size() / 2; ++i) std::memcpy(out.data() + 2 * i, in.data() + 4 * i + 2, 2); return {}; }
void byteswap(MutableView d, size_t u) { for (size_t i = 0; i + u <= d.size(); i += u) std::reverse(d.begin() + (long)i, d.begin() + (long)(i + u)); }
size_t swap_unit_bytes(DType) { return 4; }
}
