/// Uses the installed library: opens a checkpoint of any format, lists its tensors, and reads a slice of one.
///
/// usage: inspect PATH [TENSOR]
/// Prints one line per tensor, or the first values of TENSOR's first row.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "shardwright/base/error_table.h"
#include "shardwright/engine/jobs.h"
#include "shardwright/tensor/convert.h"

namespace sw = shardwright;

namespace {

/// Prints an error of the library and gives the exit code of its class.
int report(const sw::Error& error) {
  std::fprintf(stderr, "inspect: %s\n", error.text().c_str());
  if (!error.hint.empty()) std::fprintf(stderr, "Hint: %s\n", error.hint.c_str());
  return sw::error_row(error.code).exit_code;
}

void list_tensors(const sw::Catalog& catalog) {
  for (sw::TensorId id = 0; id < catalog.size(); ++id) {
    const auto spec = catalog.spec(id);
    const auto dtype = sw::dtype_row(spec.dtype).name;
    std::printf("%-8.*s %-20s %.*s\n", static_cast<int>(dtype.size()), dtype.data(), sw::shape_text(spec.shape).c_str(),
                static_cast<int>(spec.name.size()), spec.name.data());
  }
}

/// The first up to eight elements of the first row: a box of extent 1 in every dimension but the last.
sw::Status print_slice(const sw::Checkpoint& checkpoint, sw::TensorId tensor) {
  const auto spec = checkpoint.catalog.spec(tensor);
  sw::Box box = sw::Box::whole(spec.shape);
  for (size_t d = 0; d < box.rank(); ++d) {
    box.extent[d] = std::min<int64_t>(box.extent[d], d + 1 == box.rank() ? 8 : 1);
  }
  const auto bytes = sw::bytes_of_elements(spec.dtype, box.elements());
  if (!bytes) return sw::fail(sw::Code::kUnsupported, "a slice of a type below one byte must be whole blocks");
  std::vector<std::byte> values(*bytes);
  SHARDWRIGHT_TRY(sw::read_box(checkpoint, tensor, box, values));
  std::printf("%s =", box.text().c_str());
  for (uint64_t i = 0; i < box.elements(); ++i) std::printf(" %g", sw::element_value(spec.dtype, values, i));
  std::printf("\n");
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: inspect PATH [TENSOR]\n");
    return sw::kExitUsage;
  }
  const auto checkpoint = sw::open_checkpoint(argv[1]);
  if (!checkpoint.ok()) return report(checkpoint.error());
  if (argc == 2) {
    list_tensors(checkpoint->catalog);
    return sw::kExitOk;
  }
  const auto tensor = checkpoint->catalog.find(argv[2]);
  if (!tensor) return report(sw::fail(sw::Code::kNotFound, "no such tensor").at_path(argv[1]).at_tensor(argv[2]));
  const auto status = print_slice(*checkpoint, *tensor);
  return status.ok() ? sw::kExitOk : report(status.error());
}
