#include <algorithm>
#include <set>

#include "shardwright/engine/manifest.h"

namespace shardwright {
namespace {

/// Hashes tensors as their slabs come by. Consumers run on one thread, slabs of one tensor together and in order.
class Surveyor {
 public:
  Surveyor(const Checkpoint& checkpoint, bool stored)
      : checkpoint_(checkpoint), catalog_(checkpoint.catalog), stored_(stored) {}

  Status consume(TensorId tensor, View values) {
    hash_.update(values);
    if (stored_) crc_ = crc32c(values, crc_);
    seen_ += values.size();
    if (seen_ < catalog_.spec(tensor).nbytes()) return {};
    return finish(tensor);
  }

  Result<Manifest> take() {
    // Aliases have the values, and so the hash, of the tensor that keeps the bytes.
    for (TensorId id = 0; id < catalog_.size(); ++id) {
      if (catalog_.same_as(id) == id) continue;
      auto kept = out_.content.find(std::string(catalog_.spec(catalog_.same_as(id)).name));
      if (kept == out_.content.end()) continue;
      TensorHash alias = kept->second;
      alias.name = catalog_.spec(id).name;
      out_.content.emplace(alias.name, std::move(alias));
    }
    std::ranges::sort(out_.stored, {}, [](const StoredSum& sum) { return std::tie(sum.file, sum.offset); });
    return std::move(out_);
  }

  void forget() {
    hash_.finish();
    crc_ = 0;
    seen_ = 0;
  }

 private:
  Status finish(TensorId tensor) {
    auto spec = catalog_.spec(tensor);
    TensorHash row{std::string(spec.name), spec.dtype, {spec.shape.begin(), spec.shape.end()}, hash_.finish().hex()};
    if (stored_) SHARDWRIGHT_TRY(sum(tensor));
    out_.content.emplace(row.name, std::move(row));
    crc_ = 0;
    seen_ = 0;
    return {};
  }

  /// A flat tensor's values are its stored bytes; what is encoded or in pieces is read again as it is stored.
  Status sum(TensorId tensor) {
    if (auto flat = catalog_.flat(tensor)) {
      if (flat->place.site == Place::kExtent && flat->place.length > 0 && flat->stored == catalog_.spec(tensor).dtype)
        out_.stored.push_back(
            {catalog_.objects()[flat->place.object].key, flat->place.offset, flat->place.length, crc_});
      return {};
    }
    for (const Piece& piece : catalog_.pieces(tensor)) {
      const auto& place = piece.place;
      if (place.site != Place::kExtent || place.length == 0) continue;
      uint32_t crc = 0;
      const auto& key = catalog_.objects()[place.object].key;
      auto add = [&](View bytes) -> Status {
        crc = crc32c(bytes, crc);
        return {};
      };
      SHARDWRIGHT_TRY(read_blocks(*checkpoint_.store, key, place.offset, place.length, add));
      out_.stored.push_back({key, place.offset, place.length, crc});
    }
    return {};
  }

  const Checkpoint& checkpoint_;
  const Catalog& catalog_;
  bool stored_;
  Manifest out_;
  ContentHash hash_;
  uint32_t crc_ = 0;
  uint64_t seen_ = 0;
};

/// Tensors left to look at, as a catalogue of wanted specs.
Result<std::pair<Catalog, std::vector<TensorId>>> remaining(const Catalog& from, const std::set<TensorId>& done) {
  CatalogBuilder builder;
  std::vector<TensorId> origin;
  for (TensorId id = 0; id < from.size(); ++id) {
    if (done.contains(id) || from.same_as(id) != id) continue;
    auto spec = from.spec(id);
    SHARDWRIGHT_TRY(builder.add_tensor(spec.name, spec.dtype, spec.shape));
    origin.push_back(id);
  }
  SHARDWRIGHT_ASSIGN(auto catalog, builder.build(/*partial=*/true));
  return std::pair(std::move(catalog), std::move(origin));
}

}  // namespace

Result<Manifest> survey(const Checkpoint& checkpoint, bool stored, const JobOptions& options,
                        std::vector<Error>* failed) {
  Surveyor surveyor(checkpoint, stored);
  const auto& from = checkpoint.catalog;
  std::set<TensorId> done;  // only filled when tensors fail: a whole checkpoint needs no list
  while (true) {
    Catalog want = from;
    std::vector<TensorId> origin;
    if (!done.empty()) {
      SHARDWRIGHT_ASSIGN(auto rest, remaining(from, done));
      std::tie(want, origin) = std::move(rest);
    }
    std::vector<TensorId> finished;
    auto plan = plan_load(from, want, origin, options.plan);
    Calls calls;
    calls.consume = [&](TensorId id, const Box&, View values) -> Status {
      TensorId tensor = origin.empty() ? id : origin[id];
      if (failed != nullptr && (finished.empty() || finished.back() != tensor)) finished.push_back(tensor);
      return surveyor.consume(tensor, values);
    };
    calls.keep_going = [&](uint64_t at, uint64_t total) {
      return !options.progress || options.progress("read", at, total);
    };
    auto executed = plan.ok() ? execute(*plan, {checkpoint.store.get(), nullptr, nullptr}, calls)
                              : Result<Executed>(std::move(plan.error()));
    if (executed.ok()) return surveyor.take();
    auto bad = from.find(executed.error().tensor);
    if (failed == nullptr || !bad || executed.error().code == Code::kAborted) return std::move(executed.error());
    failed->push_back(std::move(executed.error()));
    // The last tensor consumed may be half done: its hash is begun anew.
    if (!finished.empty()) finished.pop_back();
    done.insert(finished.begin(), finished.end());
    done.insert(from.same_as(*bad));
    surveyor.forget();
  }
}

}  // namespace shardwright
