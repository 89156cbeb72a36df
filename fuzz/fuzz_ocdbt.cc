/// OCDBT manifests and nodes: any bytes as a frame, and any body in a sound frame (a search never finds a CRC by itself).
///
/// Input: one byte of kind (0 manifest, 1 version node, 2 node; 3 to 5 the same as bodies), then the bytes.
#include "fuzz_support.h"
#include "shardwright/store/ocdbt_format.h"
#include "shardwright/store/ocdbt_frame.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shardwright;
  if (size == 0) return 0;
  constexpr detail::OcdbtMagic kMagics[] = {detail::OcdbtMagic::kManifest, detail::OcdbtMagic::kVersionNode,
                                            detail::OcdbtMagic::kNode};
  unsigned kind = data[0] % 6;
  View bytes = fuzz_view(data + 1, size - 1);
  Bytes framed;
  if (kind >= 3) {
    framed = *detail::make_ocdbt_frame(kMagics[kind - 3], bytes, nullptr);
    bytes = framed;
  }
  constexpr uint64_t kMost = 8 * MiB;
  if (kind % 3 == 0) {
    auto manifest = parse_ocdbt_manifest(bytes, kMost);
    if (!manifest.ok()) return 0;
    FUZZ_CLAIM(manifest->config.numbered == manifest->versions.empty());
    for (const auto& version : manifest->versions)
      FUZZ_CLAIM(!version.root || version.root->file < manifest->files.size());
  } else if (kind % 3 == 1) {
    auto node = parse_ocdbt_version_node(bytes, "base/", kMost);
    if (!node.ok()) return 0;
    FUZZ_CLAIM(node->height > 0 || !node->versions.empty());
    FUZZ_CLAIM(node->height == 0 || !node->branches.empty());
  } else {
    auto node = parse_ocdbt_node(bytes, "base/", kMost);
    if (!node.ok()) return 0;
    FUZZ_CLAIM(!node->entries().empty());
    std::string_view before;
    for (const auto& entry : node->entries()) {
      FUZZ_CLAIM(before.empty() || before < node->key(entry));
      before = node->key(entry);
      if (entry.is_inline)
        FUZZ_CLAIM(node->inline_value(entry).size() <= size + kMost);
      else
        FUZZ_CLAIM(entry.range.file < node->files().size());
    }
  }
  return 0;
}
