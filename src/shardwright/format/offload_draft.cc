#include "shardwright/format/offload_draft.h"

#include <fmt/format.h>

#include <algorithm>

#include "shardwright/base/text.h"
#include "shardwright/format/offload_index.h"

namespace shardwright {
namespace {

constexpr std::byte kPlaceholder[1] = {};

class OffloadDraft : public Draft {
 public:
  explicit OffloadDraft(const Catalog& want) : want_(want) {}

  Status make() {
    for (TensorId id = 0; id < want_.size(); ++id) {
      auto spec = want_.spec(id);
      SHARDWRIGHT_TRY(check(spec));
      objects_.push_back({std::string(spec.name) + std::string(kOffloadEnding), std::max<uint64_t>(spec.nbytes(), 1)});
    }
    for (const auto& key : want_.value_keys())
      warnings_.push_back(fmt::format("an offload folder has no place for '{}'; it is left out", key));
    if (want_.tie_count() > 0)
      warnings_.push_back(fmt::format("an offload folder has no ties: {} {} stored again", want_.tie_count(),
                                      want_.tie_count() == 1 ? "name is" : "names are"));
    return {};
  }

  const Catalog& target() const override { return want_; }
  std::span<const ObjectInfo> objects() const override { return objects_; }
  std::vector<std::string> warnings() const override { return warnings_; }

  std::vector<Segment> segments(ObjectId object) const override {
    uint64_t bytes = want_.spec(object).nbytes();
    // NumPy cannot map an empty file: a tensor without elements has one byte.
    if (bytes == 0) return {{Segment::kLiteral, kNoTensor, kWholeTensor, 0, 1, kPlaceholder}};
    return {{Segment::kPayload, object, kWholeTensor, 0, bytes, {}}};
  }

  Result<Bytes> late(ObjectId, size_t, std::span<const Receipt>) override {
    return fail(Code::kInternal, "an offload folder has nothing late");
  }

  Result<std::vector<std::pair<std::string, Bytes>>> seal(std::span<const Receipt>) override {
    OffloadIndexWriter writer;
    for (TensorId id = 0; id < want_.size(); ++id) {
      auto spec = want_.spec(id);
      writer.add(spec.name, spec.dtype, spec.shape);
    }
    std::vector<std::pair<std::string, Bytes>> out;
    out.emplace_back(kOffloadIndex, writer.finish());
    return out;
  }
  std::vector<ObjectInfo> sealed() const override { return {{std::string(kOffloadIndex), kUnknown}}; }

 private:
  static Status check(const Catalog::Spec& spec) {
    if (dtype_row(spec.dtype).block_elems != 1)
      return fail(Code::kUnsupported, "an offload folder cannot hold packed types")
          .at_tensor(std::string(spec.name))
          .with_found(std::string(dtype_row(spec.dtype).name))
          .with_hint("leave it out (--exclude), or cast it (--dtype)");
    // Loaders make the path of the name: a name with a slash would be a file in a directory below.
    if (!is_safe_relative_path(spec.name) || !is_utf8(spec.name) || spec.name.find('/') != spec.name.npos)
      return fail(Code::kUnsupported, "an offload folder has one file a tensor, and this name is no file's")
          .at_tensor(std::string(spec.name))
          .with_hint("rename it on the way (--rename)");
    return {};
  }

  Catalog want_;
  std::vector<ObjectInfo> objects_;
  std::vector<std::string> warnings_;
};

}  // namespace

Result<std::unique_ptr<Draft>> draft_offload(const Catalog& want, const WriteOptions&) {
  auto draft = std::make_unique<OffloadDraft>(want);
  SHARDWRIGHT_TRY(draft->make());
  return std::unique_ptr<Draft>(std::move(draft));
}

}  // namespace shardwright
