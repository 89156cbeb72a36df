#include "shardwright/format/side_files.h"

#include <gtest/gtest.h>

namespace shardwright {
namespace {

TEST(SideFiles, ByName) {
  for (const char* key :
       {"config.json", "generation_config.json", "modules.json", "tokenizer.json", "vocab.txt", "merges.txt",
        "spiece.model", "qwen.tiktoken", "modeling_x.py", "chat_template.jinja", "README.md", "LICENSE", "LICENSE.txt",
        "NOTICE", "LICENSE-MODEL", "1_Pooling/config.json", "a/b/c.yaml", "vocab.bpe", "bpe.codes.txt"})
    EXPECT_TRUE(is_side_file(key)) << key;
  for (const char* key : {"model.safetensors",
                          "model.safetensors.index.json",
                          "pytorch_model.bin",
                          "pytorch_model.bin.index.json",
                          "a.weights.h5",
                          "a.weights.json",
                          "tf_model.h5",
                          "flax_model.msgpack",
                          "onnx/model.onnx",
                          "onnx/model.onnx_data",
                          "x.gguf",
                          "consolidated.00.pth",
                          "training_args.bin",
                          "rust_model.ot",
                          "model.tflite",
                          "saved_model.pb",
                          "x.npz",
                          "x.keras",
                          "x.ckpt",
                          "x.pt",
                          ".gitattributes",
                          ".git/config.txt",
                          "a/.cache/x.json",
                          "shardwright.manifest.json",
                          "video.mp4",
                          "data.parquet",
                          "",
                          "LICENSED.bin",
                          "archive.tar.gz"})
    EXPECT_FALSE(is_side_file(key)) << key;
}

}  // namespace
}  // namespace shardwright
