/// Tensor parallelism on a real model: each rank loads its part of a feed-forward block of all-MiniLM-L6-v2, and together they compute one
/// product, which rank 0 holds against the one it computes from the whole weights.
///
/// usage: tensor_parallel CHECKPOINT DIRECTORY RANK RANKS, once per rank; or mpirun -n RANKS tensor_parallel_mpi CHECKPOINT
///
/// The first matrix is split by its rows and the second by its columns, so that what one rank makes of the first is all it needs for the
/// second; what the second gives is summed over the ranks.
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "ranks.h"
#include "shardwright/base/error_table.h"
#include "shardwright/engine/jobs.h"
#include "shardwright/layout/tensor_layout.h"
#include "shardwright/tensor/convert.h"

namespace sw = shardwright;

namespace {

const std::string kBlock = "encoder.layer.0.";
using Floats = std::vector<float>;

/// One position's box of a tensor, as float32.
sw::Result<Floats> load(const sw::Checkpoint& checkpoint, const std::string& name, const sw::DeviceMesh& mesh,
                        const sw::TensorLayout& layout, int64_t position) {
  auto tensor = checkpoint.catalog.find(kBlock + name);
  if (!tensor) return sw::fail(sw::Code::kNotFound, "no such tensor").at_tensor(kBlock + name);
  auto spec = checkpoint.catalog.spec(*tensor);
  SHARDWRIGHT_ASSIGN(auto grid, sw::ShardGrid::create(mesh, layout, spec.shape));
  sw::Box box = grid.box_of(position);
  sw::Bytes stored(box.elements() * sw::dtype_row(spec.dtype).block_bytes);
  SHARDWRIGHT_TRY(sw::read_box(checkpoint, *tensor, box, stored));
  Floats values(box.elements());
  SHARDWRIGHT_TRY(sw::convert(spec.dtype, stored, sw::DType::kF32, std::as_writable_bytes(std::span(values))));
  return values;
}

/// weights [rows, columns] times x.
std::vector<double> product(const Floats& weights, const std::vector<double>& x) {
  std::vector<double> out(weights.size() / x.size());
  for (size_t row = 0; row < out.size(); ++row)
    for (size_t i = 0; i < x.size(); ++i) out[row] += weights[row * x.size() + i] * x[i];
  return out;
}

/// What a block makes of x by the weights at one position of a mesh; summed over the positions, it is what the whole weights make.
sw::Result<std::vector<double>> forward(const sw::Checkpoint& checkpoint, const sw::DeviceMesh& mesh, int64_t position,
                                        const std::vector<double>& x) {
  SHARDWRIGHT_ASSIGN(auto up, load(checkpoint, "intermediate.dense.weight", mesh, {{{"model"}, {}}}, position));
  SHARDWRIGHT_ASSIGN(auto bias, load(checkpoint, "intermediate.dense.bias", mesh, {{{"model"}}}, position));
  SHARDWRIGHT_ASSIGN(auto down, load(checkpoint, "output.dense.weight", mesh, {{{}, {"model"}}}, position));
  auto hidden = product(up, x);
  for (size_t i = 0; i < hidden.size(); ++i) {
    double value = hidden[i] + bias[i];
    hidden[i] = 0.5 * value * (1 + std::erf(value / std::sqrt(2.0)));
  }
  return product(down, hidden);
}

sw::Result<std::vector<double>> sum_over_ranks(sw::Comm& comm, const std::vector<double>& mine) {
  SHARDWRIGHT_ASSIGN(auto all,
                     comm.all_gather(std::as_bytes(std::span(mine)), sw::deadline_in(std::chrono::seconds(60))));
  std::vector<double> sum(mine.size());
  for (const auto& bytes : all)
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += sw::load_le<double>(sw::View(bytes).subspan(i * sizeof(double)));
  return sum;
}

sw::Status run(const std::string& path, sw::Comm& comm) {
  SHARDWRIGHT_ASSIGN(auto checkpoint, sw::open_checkpoint(path));
  SHARDWRIGHT_ASSIGN(auto mesh, sw::DeviceMesh::create({comm.size()}, {"model"}));
  std::vector<double> x(384);
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<double>(i));
  auto mine = forward(checkpoint, mesh, comm.rank(), x);
  sw::Status loaded = mine.ok() ? sw::Status() : sw::Status(mine.error());
  SHARDWRIGHT_TRY(sw::agree(comm, loaded, sw::deadline_in(std::chrono::seconds(60))));
  SHARDWRIGHT_ASSIGN(auto together, sum_over_ranks(comm, *mine));
  std::printf("rank %d of %d read %llu bytes\n", comm.rank(), comm.size(),
              static_cast<unsigned long long>(checkpoint.store->bytes_read()));
  if (comm.rank() != 0) return {};
  SHARDWRIGHT_ASSIGN(auto whole_mesh, sw::DeviceMesh::create({1}, {"model"}));
  SHARDWRIGHT_ASSIGN(auto alone, forward(checkpoint, whole_mesh, 0, x));
  double difference = 0, size = 0;
  for (size_t i = 0; i < alone.size(); ++i) {
    difference = std::max(difference, std::abs(alone[i] - together[i]));
    size = std::max(size, std::abs(alone[i]));
  }
  std::printf("largest value %.6f, largest difference %.1e\n", size, difference);
  if (size > 0 && difference <= 1e-12 * size) return {};
  return sw::fail(sw::Code::kInternal, "the ranks' product differs from that of the whole weights");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s CHECKPOINT %s\n", argv[0], kRankArguments);
    return 2;
  }
  auto comm = open_ranks(argc - 2, argv + 2);
  auto status = comm.ok() ? run(argv[1], **comm) : sw::Status(comm.error());
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.error().text().c_str());
  return sw::error_row(status.error().code).exit_code;
}
