#include "shardwright/format/side_files.h"

#include <algorithm>

namespace shardwright {
namespace {

constexpr uint64_t kMaxSideFile = GiB;

/// By ending, the first match decides; what matches nothing stays behind.
struct Rule {
  std::string_view ending;
  bool carry;
};
constexpr Rule kEndings[] = {
    // Weights, and what only makes sense beside them.
    {".safetensors", false},
    {".bin", false},
    {".pt", false},
    {".pth", false},
    {".h5", false},
    {".hdf5", false},
    {".keras", false},
    {".msgpack", false},
    {".onnx", false},
    {".onnx_data", false},
    {".gguf", false},
    {".ckpt", false},
    {".npz", false},
    {".npy", false},
    {".ot", false},
    {".tflite", false},
    {".pb", false},
    {".index.json", false},
    {".weights.json", false},
    {"shardwright.manifest.json", false},
    // Configuration, tokenizers, templates, code, papers.
    {".json", true},
    {".jsonl", true},
    {".txt", true},
    {".model", true},
    {".md", true},
    {".py", true},
    {".jinja", true},
    {".jinja2", true},
    {".yaml", true},
    {".yml", true},
    {".toml", true},
    {".cfg", true},
    {".ini", true},
    {".tiktoken", true},
    {".bpe", true},
    {".vocab", true},
    {".spm", true},
    {".merges", true},
};
constexpr std::string_view kPlainNames[] = {"LICENSE", "LICENCE", "COPYING",   "NOTICE",
                                            "README",  "AUTHORS", "USE_POLICY"};

}  // namespace

bool is_side_file(std::string_view key) {
  if (key.empty() || key.starts_with('.') || key.find("/.") != key.npos) return false;
  auto name = key.substr(key.rfind('/') + 1);
  for (const auto& [ending, carry] : kEndings)
    if (name.ends_with(ending)) return carry;
  return std::any_of(std::begin(kPlainNames), std::end(kPlainNames), [&](std::string_view plain) {
    return name == plain || (name.starts_with(plain) && name.find('.') == name.npos);
  });
}

Result<std::vector<Catalog::SideFile>> find_side_files(Store& store) {
  SHARDWRIGHT_ASSIGN(auto keys, store.list(""));
  std::vector<Catalog::SideFile> out;
  for (auto& key : keys) {
    if (!is_side_file(key)) continue;
    SHARDWRIGHT_ASSIGN(auto size, store.size(key));
    if (size && *size <= kMaxSideFile) out.push_back({key, key});
  }
  return out;
}

}  // namespace shardwright
