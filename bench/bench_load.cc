// Loads every tensor of a checkpoint into fresh memory and prints seconds, bytes and a sum over all of them, so that nothing is left out.
#include <fmt/format.h>

#include <chrono>
#include <string_view>

#include "shardwright/engine/load.h"

int main(int argc, char** argv) {
  using namespace shardwright;
  if (argc < 2) return 2;
  FileStoreOptions store;
  store.direct = argc > 2 && std::string_view(argv[2]) == "direct";
  auto start = std::chrono::steady_clock::now();
  auto checkpoint = open_checkpoint(argv[1], {}, store);
  auto loaded = checkpoint.ok() ? load_checkpoint(*checkpoint, {}, {}) : Result<Loaded>(std::move(checkpoint.error()));
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!loaded.ok()) {
    fmt::print(stderr, "{}\n", loaded.error().text());
    return 1;
  }
  uint64_t bytes = loaded->catalog.total_bytes(), sum = 0;
  for (TensorId id = 0; id < loaded->catalog.size(); ++id)
    for (std::byte value : loaded->values(id)) sum += static_cast<uint64_t>(value);
  fmt::print("{{\"seconds\": {:.4f}, \"bytes\": {}, \"sum\": {}}}\n", seconds, bytes, sum);
}
