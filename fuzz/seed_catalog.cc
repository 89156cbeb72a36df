/// Writes the seeds of fuzz_catalog: serialized catalogues with everything one can hold. usage: seed_catalog FOLDER
#include <fstream>
#include <string>

#include "fuzz_support.h"
#include "shardwright/format/catalog.h"

namespace {

using namespace shardwright;

void save(const std::string& path, const Catalog& catalog) {
  const Bytes bytes = catalog.serialize();
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

Catalog built(CatalogBuilder& builder) {
  auto catalog = builder.build();
  FUZZ_CLAIM(catalog.ok());
  return *std::move(catalog);
}

/// Flat tensors in two shards, a tie, values, side files.
Catalog flat_catalog() {
  CatalogBuilder builder;
  const ObjectId first = builder.add_object({"a-00001-of-00002.safetensors", 1000});
  const ObjectId second = builder.add_object({"a-00002-of-00002.safetensors", 200});
  const int64_t shape[] = {4, 8};
  for (ObjectId object : {first, second}) {
    FUZZ_CLAIM(builder.add_tensor(object == first ? "embed" : "norm", DType::kF32, shape).ok());
    FUZZ_CLAIM(builder.add_flat({Place::kExtent, -1, object, 8, 128}, DType::kF32).ok());
  }
  auto alias = builder.add_tensor("head", DType::kF32, shape);
  FUZZ_CLAIM(alias.ok());
  builder.tie(*alias, 0);
  builder.set_value("metadata", {Value::kJson, R"({"format": "pt"})"});
  builder.set_members({"a.index.json", "a-00001-of-00002.safetensors", "a-00002-of-00002.safetensors"}, 1);
  builder.add_side_file({"config.json", "config.json", 0, kUnknown});
  builder.add_side_file({"assets/words.txt", "a.keras", 70, 9, "deflate", 40});
  return built(builder);
}

/// Chunks with codecs, a clipped edge chunk with strides, a literal, a scalar, an empty tensor.
Catalog chunked_catalog() {
  CatalogBuilder builder;
  const ObjectId object = builder.add_object({"x.h5", 4096});
  const uint32_t chunk = builder.add_encoding({DType::kF32, true, {{"shuffle", 4}, {"zlib", 6}}, 64});
  const int64_t shape[] = {6, 4};
  FUZZ_CLAIM(builder.add_tensor("chunked", DType::kF32, shape).ok());
  FUZZ_CLAIM(builder.add_piece({{{0, 0}, {4, 4}}, {Place::kExtent, -1, object, 100, 40}, chunk, {}}).ok());
  FUZZ_CLAIM(builder.add_piece({{{4, 0}, {2, 4}}, {Place::kExtent, -1, object, 200, 30}, chunk, {4, 1}}).ok());
  FUZZ_CLAIM(builder.add_tensor("scalar", DType::kI64, {}).ok());
  FUZZ_CLAIM(builder.add_flat(builder.add_literal(view_of("12345678")), DType::kI64).ok());
  const int64_t empty[] = {0, 3};
  FUZZ_CLAIM(builder.add_tensor("empty", DType::kBF16, empty).ok());
  FUZZ_CLAIM(builder.add_flat({Place::kExtent, -1, object, 300, 0}, DType::kBF16).ok());
  return built(builder);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string folder = argv[1];
  save(folder + "/flat", flat_catalog());
  save(folder + "/chunked", chunked_catalog());
  CatalogBuilder nothing;
  save(folder + "/nothing", built(nothing));
  return 0;
}
