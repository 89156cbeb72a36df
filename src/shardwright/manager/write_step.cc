#include "shardwright/manager/write_step.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <set>

#include "shardwright/base/text.h"
#include "shardwright/engine/begin.h"
#include "shardwright/engine/memory_watch.h"
#include "shardwright/engine/share.h"
#include "shardwright/engine/target.h"
#include "shardwright/format/orbax_metadata.h"
#include "shardwright/manager/last_step.h"
#include "shardwright/manager/step_files.h"
#include "shardwright/manager/step_writer.h"
#include "shardwright/manager/tree_files.h"
#include "shardwright/store/directory.h"

namespace shardwright {
namespace {

namespace fs = std::filesystem;

/// Of incremental steps: a file is linked as a whole.
constexpr uint64_t kSmallShardBytes = MiB;
constexpr std::string_view kTreeHandler =
    "orbax.checkpoint._src.handlers.standard_checkpoint_handler.StandardCheckpointHandler";
constexpr std::string_view kJsonHandler =
    "orbax.checkpoint._src.handlers.json_checkpoint_handler.JsonCheckpointHandler";
constexpr std::string_view kCommitText = "Checkpoint commit was successful";

/// A transaction as an item sees it: its keys lie in a directory.
class ItemTransaction : public Transaction {
 public:
  ItemTransaction(Transaction& base, std::string directory) : base_(base), directory_(std::move(directory)) {}
  std::string token() const override { return base_.token() + "/" + directory_.substr(0, directory_.size() - 1); }
  Result<std::unique_ptr<Writer>> create(std::string_view key, uint64_t size_bytes) override {
    return base_.create(directory_ + std::string(key), size_bytes);
  }
  Result<std::unique_ptr<Writer>> open(std::string_view key, uint64_t size_bytes) override {
    return base_.open(directory_ + std::string(key), size_bytes);
  }
  Status commit(const Publication&) override { return fail(Code::kInternal, "commit by an item"); }

 private:
  Transaction& base_;
  const std::string directory_;
};

uint64_t now_ns() {
  return static_cast<uint64_t>(std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count());
}

/// Of one process: every piece that it has.
Result<std::vector<std::vector<HashedBox>>> hash_tensors(const Catalog& tensors) {
  SHARDWRIGHT_ASSIGN(auto merged, merge_catalogs({&tensors, 1}));
  auto writers = assign_writers(merged, 1);
  std::vector<std::pair<TensorId, Box>> boxes;
  for (TensorId id = 0; id < tensors.size(); ++id)
    for (const OwnedBox& owned : writers[id]) boxes.emplace_back(id, owned.box);
  auto hashes = hash_boxes(tensors, boxes);
  std::vector<std::vector<HashedBox>> out(tensors.size());
  for (size_t i = 0; i < boxes.size(); ++i)
    out[boxes[i].first].push_back({std::move(boxes[i].second), std::move(hashes[i])});
  return out;
}

bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

class StepWriter {
 public:
  StepWriter(const std::string& root, const StepNames& names, const StepContent& content, const JobOptions& options)
      : root_(root), content_(content), options_(options), name_(names.name_of(content.step)), names_(names) {}
  /// With the tensors of so many ranks, written by `fill`, which outlives this.
  void be_filled(int ranks, const std::vector<std::vector<HashedBox>>& boxes, const Fill& fill) {
    ranks_ = ranks;
    boxes_ = boxes;
    fill_ = &fill;
  }

  Result<WrittenStep> run(const StepConflict& conflict) {
    SHARDWRIGHT_TRY(check_conflict(root_, names_, content_.step, conflict));
    SHARDWRIGHT_TRY(check_files());
    SHARDWRIGHT_TRY(prepare());
    SHARDWRIGHT_TRY(detail::make_directories(root_));
    bool there = exists(root_ + "/" + name_), replaces = there && conflict.replace;
    bool branches = conflict.branch && !replaces, broken = there && !replaces && !branches;
    std::string under = there ? std::string(kFresh) + name_ : name_;
    if (there) SHARDWRIGHT_TRY(detail::remove_tree(root_ + "/" + under));
    SHARDWRIGHT_ASSIGN(auto store, open_file_store(root_));
    SHARDWRIGHT_TRY(check_room(*store));
    {
      SHARDWRIGHT_ASSIGN(auto begun, begin_in_turn(*store, under, options_));
      transaction_ = std::move(begun.transaction);
    }
    SHARDWRIGHT_TRY(write());
    const uint64_t bytes = plan_.summary.work_bytes;
    if (options_.progress && !options_.progress("sync", bytes, bytes))
      return fail(Code::kAborted, "stopped on request");
    if (branches) SHARDWRIGHT_TRY(set_later_steps_aside());
    SHARDWRIGHT_TRY(publish());
    if (broken) SHARDWRIGHT_TRY(set_broken_aside());
    if (replaces) SHARDWRIGHT_TRY(take_place());
    if (there && !replaces) SHARDWRIGHT_TRY(detail::move_to_free_name(root_ + "/" + under, root_ + "/" + name_));
    watch_.sample();
    written_.step = content_.step;
    written_.name = name_;
    written_.tensors = content_.tensors.size();
    written_.seconds = watch_.seconds();
    written_.peak_memory_bytes = watch_.peak();
    return std::move(written_);
  }

 private:
  Status check_files() const {
    std::set<std::string> taken = {std::string(kOrbaxStep), std::string(kManifestName), std::string(kOrbaxCommit)};
    bool plain = is_safe_relative_path(content_.item) && content_.item.find('/') == content_.item.npos;
    if (!plain) return fail(Code::kInvalidArgument, "an item needs a plain name").with_found("'" + content_.item + "'");
    for (const auto& [key, text] : content_.files)
      if (!is_safe_relative_path(key) || !taken.insert(key).second)
        return fail(Code::kInvalidArgument, "a file of a step cannot be called so").with_found("'" + key + "'");
    return {};
  }

  Status prepare() {
    format_ = find_format(content_.format);
    if (format_ == nullptr || format_->draft == nullptr)
      return fail(Code::kInvalidArgument, "steps cannot be written in this format")
          .with_found("'" + content_.format + "'")
          .with_hint("`shardwright formats` says which can be written");
    WriteOptions& write = write_;
    write.name = default_name(content_.format);
    uint64_t shard = content_.incremental ? kSmallShardBytes : kDefaultShardBytes;
    write.max_shard_bytes = content_.max_shard_bytes.value_or(format_->can.sharded ? shard : kUnknown);
    write.larger_alone = content_.incremental && !content_.max_shard_bytes;
    write.settings = content_.settings;
    write.time_ns = time_ns_;
    if (fill_ != nullptr) write.held = held_of(content_.tensors, {content_.tensors, {}}, ranks_);
    SHARDWRIGHT_ASSIGN(draft_, format_->draft(content_.tensors, write));
    PlanOptions options = options_.plan;
    options.checksums = true;
    SHARDWRIGHT_ASSIGN(plan_, plan_write(content_.tensors, *draft_, {}, options));
    written_.warnings = draft_->warnings();
    return content_.incremental ? find_unchanged() : Status();
  }

  Status find_unchanged() {
    if (fill_ == nullptr) {
      SHARDWRIGHT_ASSIGN(boxes_, hash_tensors(content_.tensors));
    }
    tensors_ = describe_tensors(content_.tensors, boxes_);
    auto last = LastStep::read(root_, names_, content_);
    for (ObjectId object = 0; last && object < draft_->objects().size(); ++object)
      if (auto file = last->find(*draft_, object, tensors_)) unchanged_[object] = std::move(*file);
    return {};
  }

  Status check_room(Store& store) const {
    SHARDWRIGHT_ASSIGN(auto room, store.room(""));
    if (!room) return {};
    uint64_t bytes = 0;
    for (ObjectId object = 0; object < draft_->objects().size(); ++object)
      if (draft_->objects()[object].size != kUnknown && !unchanged_.contains(object))
        bytes += draft_->objects()[object].size;
    if (room->bytes >= bytes) return {};
    return fail(Code::kResourceExhausted, "not enough disk space for the step")
        .at_path(root_)
        .with_found(format_bytes(room->bytes) + " free")
        .with_expected(format_bytes(bytes));
  }

  Status write() {
    Calls calls = content_.calls;
    calls.keep_going = [&](uint64_t done, uint64_t total) {
      watch_.sample();
      return !options_.progress || options_.progress("save", done, total);
    };
    ItemTransaction item(*transaction_, content_.item + "/");
    SHARDWRIGHT_TRY(detail::make_directories(item.token()));
    SHARDWRIGHT_ASSIGN(auto receipts, write_objects(item, calls));
    for (const auto& object : draft_->objects()) note(content_.item + "/" + object.key);
    SHARDWRIGHT_ASSIGN(auto sealed, draft_->seal(receipts));
    for (const auto& [key, bytes] : sealed) SHARDWRIGHT_TRY(put(content_.item + "/" + key, bytes));
    for (const auto& [key, text] : content_.files) SHARDWRIGHT_TRY(put(key, view_of(text)));
    SHARDWRIGHT_TRY(put(std::string(kOrbaxStep), view_of(metadata_text())));
    SHARDWRIGHT_ASSIGN(std::string manifest, manifest_text(receipts, sealed));
    SHARDWRIGHT_TRY(put(std::string(kManifestName), view_of(manifest)));
    return put(std::string(kOrbaxCommit), view_of(kCommitText));
  }

  /// Links what has not changed, and writes the rest.
  Result<std::vector<Receipt>> write_objects(Transaction& item, const Calls& calls) {
    std::vector<Receipt> receipts;
    std::vector<ObjectId> rest;
    for (ObjectId object = 0; object < draft_->objects().size(); ++object) {
      auto same = unchanged_.find(object);
      if (same == unchanged_.end() || !link(same->second.path, item.token() + "/" + draft_->objects()[object].key)) {
        rest.push_back(object);
        continue;
      }
      receipts.insert(receipts.end(), same->second.receipts.begin(), same->second.receipts.end());
    }
    PartDraft part(*draft_, rest);
    if (!receipts.empty()) {
      SHARDWRIGHT_ASSIGN(plan_, plan_write(content_.tensors, part, {}, plan_.options));
    }
    SHARDWRIGHT_ASSIGN(auto executed, fill_ != nullptr ? (*fill_)(part, *format_, write_, item)
                                                       : execute(plan_, {nullptr, &part, &item}, calls));
    written_.own_bytes = plan_.summary.work_bytes;
    for (auto& receipt : executed.receipts) {
      receipt.place.object = part.number(receipt.place.object);
      receipts.push_back(receipt);
    }
    std::ranges::stable_sort(receipts, {}, [](const Receipt& receipt) { return receipt.place.object; });
    return receipts;
  }

  /// False where the file system does not, and for what is no file of a step any more: one that was moved away, with a link in its place.
  bool link(const std::string& from, const std::string& to) {
    std::error_code error;
    if (!fs::is_regular_file(fs::symlink_status(from, error))) return false;
    if (!detail::make_directories(detail::parent_of(to)).ok() || ::link(from.c_str(), to.c_str()) != 0) return false;
    written_.linked_bytes += fs::file_size(to, error);
    return true;
  }

  void note(std::string key) { keys_.push_back(std::move(key)); }

  Status put(const std::string& key, View bytes) {
    note(key);
    return write_object(*transaction_, key, bytes);
  }

  std::string metadata_text() const {
    std::map<std::string, std::string> handlers;
    if (content_.format == "orbax") handlers[content_.item] = kTreeHandler;
    for (const auto& [key, text] : content_.files)
      if (auto slash = key.find('/'); slash != key.npos && key.substr(slash + 1) == kOrbaxTree)
        handlers[key.substr(0, slash)] = kTreeHandler;
    bool measured = std::ranges::any_of(content_.files, [](const auto& file) { return file.first == kMetricsFile; });
    if (measured) handlers["metrics"] = kJsonHandler;
    return orbax_step_text(handlers, time_ns_, content_.metadata);
  }

  /// Sizes as they are in the staging: of what is visible next, nothing is assumed.
  Result<std::string> manifest_text(const std::vector<Receipt>& receipts,
                                    const std::vector<std::pair<std::string, Bytes>>& sealed) {
    StepManifest manifest{content_.step, {}};
    if (content_.incremental) manifest.contents = describe_contents(content_, tensors_, *draft_, receipts);
    for (const auto& key : keys_) {
      std::error_code error;
      uint64_t size = fs::file_size(transaction_->token() + "/" + key, error);
      if (error) return errno_error(error.value(), "cannot look at", transaction_->token() + "/" + key);
      manifest.files.emplace_back(key, size);
      written_.bytes += size;
    }
    std::ranges::sort(manifest.files);
    std::vector<StoredSum> stored;
    for (const auto& receipt : receipts)
      if (receipt.tensor != kNoTensor && receipt.place.length != 0 && receipt.crc32c != 0)
        stored.push_back(
            {draft_->objects()[receipt.place.object].key, receipt.place.offset, receipt.place.length, receipt.crc32c});
    bool has_step = std::ranges::any_of(sealed, [](const auto& object) { return object.first == kOrbaxStep; });
    std::string entry = has_step                     ? std::string(kOrbaxStep)
                        : !sealed.empty()            ? sealed.back().first
                        : !draft_->objects().empty() ? draft_->objects().back().key
                                                     : std::string();
    return step_manifest_text(manifest, entry, stored);
  }

  /// Nothing that has come to have the name meanwhile is replaced.
  Status publish() {
    auto status = transaction_->commit({keys_, {}, {}});
    if (status.ok() || status.error().code != Code::kAborted || !exists(root_ + "/" + name_)) return status;
    return fail(Code::kAlreadyExists, fmt::format("step {} was made by another program meanwhile", content_.step))
        .at_path(root_ + "/" + name_)
        .with_hint("one job at a time writes to a directory");
  }

  /// This one and all later ones, the newest first: whatever stops this, no step is missing among those that are left.
  Status set_later_steps_aside() {
    SHARDWRIGHT_ASSIGN(auto steps, list_step_names(root_, names_));
    std::erase_if(steps, [&](const auto& step) { return step.first < content_.step; });
    if (steps.empty()) return {};
    SHARDWRIGHT_ASSIGN(auto branch, set_aside(steps));
    written_.warnings.push_back(fmt::format("{} steps were moved to {}", steps.size(), branch));
    return {};
  }

  /// What check_conflict() let pass. It is looked at again: whoever has made a step of it meanwhile keeps it.
  Status set_broken_aside() {
    SHARDWRIGHT_TRY(check_conflict(root_, names_, content_.step, {}));
    std::string proof = prove_step(root_ + "/" + name_).text;
    SHARDWRIGHT_ASSIGN(auto branch, set_aside({{content_.step, name_}}));
    written_.warnings.push_back(fmt::format("what was there of step {} was not complete ({}), and was moved to {}",
                                            content_.step, proof, branch));
    return {};
  }

  Result<std::string> set_aside(const std::vector<std::pair<uint64_t, std::string>>& steps) {
    std::string branches = root_ + "/" + std::string(kBranches);
    uint64_t number = 0;
    while (exists(fmt::format("{}/{}", branches, number))) ++number;
    std::string branch = fmt::format("{}/{}", branches, number);
    SHARDWRIGHT_TRY(detail::make_directories(branch));
    for (size_t i = steps.size(); i-- > 0;)
      SHARDWRIGHT_TRY(detail::move_directory(root_ + "/" + steps[i].second, branch + "/" + steps[i].second));
    return branch;
  }

  Status take_place() {
    std::string fresh = root_ + "/" + std::string(kFresh) + name_, step = root_ + "/" + name_,
                old = root_ + "/" + std::string(kReplaced) + name_;
    SHARDWRIGHT_ASSIGN(bool exchanged, detail::exchange_directories(step, fresh));
    if (exchanged) return detail::remove_tree(fresh);
    SHARDWRIGHT_TRY(detail::remove_tree(old));
    SHARDWRIGHT_TRY(detail::move_directory(step, old));
    SHARDWRIGHT_TRY(detail::move_directory(fresh, step));
    return detail::remove_tree(old);
  }

  const std::string& root_;
  const StepContent& content_;
  const JobOptions& options_;
  const std::string name_;
  const StepNames& names_;
  const uint64_t time_ns_ = now_ns();
  MemoryWatch watch_;
  const Format* format_ = nullptr;
  const Fill* fill_ = nullptr;
  int ranks_ = 1;
  WriteOptions write_;
  std::unique_ptr<Draft> draft_;
  Plan plan_;
  std::vector<std::vector<HashedBox>> boxes_;     ///< of incremental steps, as the next two
  Json tensors_;                                  ///< described
  std::map<ObjectId, LastStep::File> unchanged_;  ///< files of the step before that are what would be written
  std::unique_ptr<Transaction> transaction_;
  std::vector<std::string> keys_;
  WrittenStep written_;
};

}  // namespace

Result<WrittenStep> write_step(const std::string& root, const StepNames& names, const StepContent& content,
                               const StepConflict& conflict, const JobOptions& options) {
  return StepWriter(root, names, content, options).run(conflict);
}

Result<WrittenStep> write_step_filled(const std::string& root, const StepNames& names, const StepContent& content,
                                      const StepConflict& conflict, const JobOptions& options, int ranks,
                                      const std::vector<std::vector<HashedBox>>& boxes, const Fill& fill) {
  StepWriter writer(root, names, content, options);
  writer.be_filled(ranks, boxes, fill);
  return writer.run(conflict);
}

}  // namespace shardwright
