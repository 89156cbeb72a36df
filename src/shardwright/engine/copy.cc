#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "shardwright/base/text.h"
#include "shardwright/engine/begin.h"
#include "shardwright/engine/jobs.h"
#include "shardwright/engine/manifest.h"
#include "shardwright/engine/memory_watch.h"
#include "shardwright/engine/part.h"
#include "shardwright/engine/save_ranks.h"
#include "shardwright/engine/saved_layout.h"
#include "shardwright/engine/select.h"
#include "shardwright/engine/share.h"
#include "shardwright/engine/source_files.h"
#include "shardwright/engine/target.h"

namespace shardwright {
namespace {

/// One copy, from opened source to committed target.
class Copy {
 public:
  Copy(const CopyRequest& request, const JobOptions& options) : request_(request), options_(options) {}

  Result<CopySummary> run() {
    std::vector<Error> remarks;
    OpenOptions open = options_.open;
    open.remarks = &remarks;
    SHARDWRIGHT_ASSIGN(source_, open_checkpoint(request_.source, open));
    for (const auto& remark : remarks) source_.notes.push_back(remark.text());
    return run_from_source();
  }

  /// From memory and calls: a source without format, path and objects.
  Result<CopySummary> run(const Catalog& tensors, const Calls& calls) {
    source_.catalog = tensors;
    SHARDWRIGHT_ASSIGN(source_.store, open_source_files(tensors));
    calls_.produce = calls.produce;
    return run_from_source();
  }

  /// The same, with everything but the index written by somebody else.
  Result<CopySummary> run(const Catalog& tensors, int ranks, const Fill& fill) {
    fill_ = &fill;
    ranks_ = ranks;
    return run(tensors, Calls{});
  }

 private:
  Result<CopySummary> run_from_source() {
    SHARDWRIGHT_TRY(prepare());
    if (request_.dry_run) return summarize();
    SHARDWRIGHT_TRY(write());
    if (auto status = request_.manifest ? certify() : Status{}; !status.ok())
      return std::move(status.error())
          .within("while a manifest was made for '" + request_.target + "', which is written");
    return summarize();
  }

  /// Everything that can be refused is refused here, before the first write.
  Status prepare() {
    summary_.warnings = source_.notes;
    SHARDWRIGHT_ASSIGN(target_, resolve_target(request_, source_));
    if (target_.recovered) summary_.warnings.push_back(*target_.recovered);
    SHARDWRIGHT_ASSIGN(selected_, select_tensors(source_.catalog, request_.select));
    if (request_.part) {
      SHARDWRIGHT_ASSIGN(auto warnings, take_part(*request_.part, source_.catalog, selected_));
      summary_.warnings.insert(summary_.warnings.end(), warnings.begin(), warnings.end());
    }
    SHARDWRIGHT_TRY(check_loss());
    SHARDWRIGHT_TRY(make_draft());
    SHARDWRIGHT_ASSIGN(plan_, plan_write(source_.catalog, *draft_, selected_.origin, plan_options()));
    for (const auto& warning : draft_->warnings()) summary_.warnings.push_back(warning);
    choose_side_files();
    SHARDWRIGHT_TRY(check_collisions());
    return check_room();
  }

  /// Onto its own source a copy may change files and format unasked, but lose nothing.
  Status check_loss() const {
    if (!target_.own_source || request_.overwrite) return {};
    const Catalog &from = source_.catalog, &want = selected_.want;
    uint64_t cast = 0;
    for (TensorId id = 0; id < want.size(); ++id)
      if (want.spec(id).dtype != from.spec(selected_.origin.empty() ? id : selected_.origin[id]).dtype) ++cast;
    if (want.size() == from.size() && cast == 0 && !request_.part) return {};
    return fail(Code::kAlreadyExists, "the target is the source, and this copy would not keep all of it")
        .at_path(request_.target)
        .with_found(fmt::format("{} of {} tensors left out, {} cast", from.size() - want.size(), from.size(), cast))
        .with_hint("give another name; or --overwrite, and what is left out or cast is gone");
  }

  /// Reads back what was written, and puts a manifest beside it.
  Status certify() {
    SHARDWRIGHT_ASSIGN(auto written, open_checkpoint(written_path(), options_.open));
    SHARDWRIGHT_ASSIGN(auto manifest, survey(written, /*stored=*/true, options_));
    SHARDWRIGHT_TRY(check_receipts(written, manifest, plan_.objects, receipts_));
    return write_manifest(written, manifest, options_);
  }

  /// What the new checkpoint is opened by.
  std::string written_path() const {
    bool named_within = target_.is_directory && !target_.name.empty();
    return named_within ? request_.target + "/" + target_.name : request_.target;
  }

  PlanOptions plan_options() const {
    PlanOptions options = options_.plan;
    options.checksums = options.checksums || request_.manifest;
    return options;
  }

  Status make_draft() {
    WriteOptions& write = write_;
    write = {};
    write.name = target_.name;
    write.max_shard_bytes = target_.max_shard_bytes;
    write.strict = request_.strict;
    write.settings = request_.settings;
    write.time_ns = request_.time_ns;
    if (!write.settings.empty() && target_.format->settings.empty()) {
      auto error = fail(Code::kInvalidArgument, "this format has no options of its own")
                       .with_found(write.settings.front().first + "=" + write.settings.front().second);
      for (const Format* format : format_table())
        if (!format->settings.empty()) error.hint = fmt::format("--to {} has them: {}", format->name, format->settings);
      return error;
    }
    if (target_.format == &kKerasArchive) {
      bool there = std::ranges::find(target_.old_members, target_.name) != target_.old_members.end();
      if (!there && source_.format != &kKerasArchive)
        return fail(Code::kInvalidArgument, "weights alone make no .keras archive")
            .at_path(request_.target)
            .with_hint(
                "copy onto an existing .keras file with --overwrite: its weights are replaced, its model is kept");
      write.base_store = there ? target_.store.get() : source_.store.get();
      write.base_key = there ? target_.store_key(target_.name) : source_.at;
    }
    if (request_.layout) {
      if (target_.format != &kOrbax)
        return fail(Code::kInvalidArgument, "this format does not note where arrays were")
            .with_found(std::string(target_.format->name))
            .with_hint("--to orbax does; with --rank a layout says which part to write");
      SHARDWRIGHT_ASSIGN(write.shardings, shardings_by(*request_.layout, selected_.want));
    }
    if (fill_ != nullptr) write.held = held_of(source_.catalog, selected_, ranks_);
    SHARDWRIGHT_ASSIGN(draft_, target_.format->draft(selected_.want, write));
    return {};
  }

  /// Files that go along. Into a directory of its own: all; onto the source itself: they are there.
  void choose_side_files() {
    side_files_.clear();
    const auto& files = selected_.want.side_files();
    if (files.empty() || target_.own_source || target_.format == &kKerasArchive) return;
    if (target_.is_directory) {
      std::error_code error;
      for (const auto& file : files) {
        auto there = target_.store->describe(target_.store_key(file.name));
        if (!std::filesystem::equivalent(source_.store->describe(file.key), there, error)) side_files_.push_back(file);
      }
      return;
    }
    summary_.warnings.push_back(fmt::format("{} stay{} behind: {} is written alone",
                                            files.size() == 1
                                                ? "'" + files[0].name + "'"
                                                : fmt::format("{} side files ('{}', ...)", files.size(), files[0].name),
                                            files.size() == 1 ? "s" : "", target_.name));
  }

  std::vector<std::string> new_keys() const {
    std::vector<std::string> keys;
    for (const auto& file : side_files_) keys.push_back(file.name);
    for (const auto& object : plan_.objects) keys.push_back(object.key);
    return keys;
  }

  /// A file that is no part of the old set is not replaced unasked.
  Status check_collisions() {
    std::set<std::string> old(target_.old_members.begin(), target_.old_members.end());
    for (const auto& key : new_keys()) {
      if (request_.overwrite || (target_.own_source && old.contains(key))) continue;
      SHARDWRIGHT_ASSIGN(auto size, target_.store->size(target_.store_key(key)));
      if (size)
        return fail(Code::kAlreadyExists, "a file of this name is there already")
            .at_path(target_.store->describe(target_.store_key(key)))
            .with_hint("--overwrite replaces it");
    }
    return {};
  }

  Status check_room() {
    uint64_t bytes = 0, objects = plan_.objects.size() + side_files_.size() + 4;
    for (const auto& object : plan_.objects) bytes += object.size == kUnknown ? 0 : object.size;
    for (auto& file : side_files_) {
      if (file.length == kUnknown) {
        SHARDWRIGHT_ASSIGN(auto size, source_.store->size(file.key));
        if (!size)
          return fail(Code::kNotFound, "a file that belongs to the checkpoint is gone")
              .at_path(source_.store->describe(file.key));
        file.length = *size - file.offset;
      }
      bytes += size_of(file);
    }
    SHARDWRIGHT_ASSIGN(auto room, target_.store->room(target_.directory));
    if (!room || request_.dry_run) return {};
    auto full = [&](const std::string& what, std::string found, std::string expected) {
      return fail(Code::kResourceExhausted, "not enough " + what + " at the target")
          .at_path(request_.target)
          .with_found(std::move(found))
          .with_expected(std::move(expected));
    };
    if (room->bytes < bytes) return full("disk space", format_bytes(room->bytes) + " free", format_bytes(bytes));
    if (room->objects < objects) return full("inodes", format_count(room->objects) + " free", format_count(objects));
    return {};
  }

  Status write() {
    SHARDWRIGHT_ASSIGN(auto begun, begin_in_turn(*target_.store, target_.directory, options_));
    transaction_ = std::move(begun.transaction);
    // From here on nobody else writes there; what was found before is looked at again.
    SHARDWRIGHT_TRY(begun.waited ? prepare() : check_collisions());
    calls_.keep_going = [&](uint64_t done, uint64_t total) {
      watch_.sample();
      return !options_.progress || options_.progress("copy", done, total);
    };
    SHARDWRIGHT_ASSIGN(auto executed,
                       fill_ != nullptr
                           ? (*fill_)(*draft_, *target_.format, write_, *transaction_)
                           : execute(plan_, {source_.store.get(), draft_.get(), transaction_.get()}, calls_));
    budget_peak_ = executed.peak_bytes;
    receipts_ = std::move(executed.receipts);
    for (const auto& file : side_files_) SHARDWRIGHT_TRY(carry(file));
    return publish();
  }

  static uint64_t size_of(const Catalog::SideFile& file) {
    return file.codec.empty() ? file.length : file.decoded_bytes;
  }

  Status carry(const Catalog::SideFile& file) {
    uint64_t size = size_of(file), at = 0, taken = 0;
    SHARDWRIGHT_ASSIGN(auto writer, transaction_->create(file.name, size));
    auto append = [&](View bytes) -> Status {
      WriteOp op{at, bytes};
      at += bytes.size();
      return writer->write({&op, 1});
    };
    std::vector<CodecSpec> chain;
    if (!file.codec.empty()) chain.push_back({file.codec, 0});
    SHARDWRIGHT_ASSIGN(auto decoder, make_decoder(chain, size));
    auto decode = [&](View bytes) {
      taken += bytes.size();
      return decoder->push(bytes, taken == file.length, append);
    };
    auto read = read_blocks(*source_.store, file.key, file.offset, file.length, decode);
    if (!read.ok()) return std::move(read.error()).within("while '" + file.name + "' was carried along");
    sealed_bytes_ += size;
    return writer->finish(size);
  }

  Status put(const std::string& key, View bytes) {
    sealed_bytes_ += bytes.size();
    return write_object(*transaction_, key, bytes);
  }

  Status publish() {
    Publication publication;
    publication.keys = new_keys();
    SHARDWRIGHT_ASSIGN(auto sealed, draft_->seal(receipts_));
    // What a manifest said of the old set, or of files of these names that are gone, does not hold for the new one.
    auto replaced = target_.old_members;
    replaced.insert(replaced.end(), publication.keys.begin(), publication.keys.end());
    for (const auto& [key, bytes] : sealed) replaced.push_back(key);
    SHARDWRIGHT_ASSIGN(auto manifest, manifest_without(*target_.store, target_.store_key(kManifestName), replaced));
    if (manifest && !manifest->empty()) {
      SHARDWRIGHT_TRY(put(std::string(kManifestName), *manifest));
      publication.keys.insert(publication.keys.begin(), std::string(kManifestName));
    }
    for (const auto& [key, bytes] : sealed) {
      SHARDWRIGHT_TRY(put(key, bytes));
      publication.keys.push_back(key);
      summary_.objects.emplace_back(key, bytes.size());
    }
    std::set<std::string> fresh(publication.keys.begin(), publication.keys.end());
    for (size_t i = 0; i < target_.old_members.size(); ++i) {
      const auto& member = target_.old_members[i];
      if (!fresh.contains(member)) publication.stale.push_back(member);
      if (i < target_.old_entries) publication.entries.push_back(member);
    }
    if (manifest && manifest->empty()) publication.stale.emplace_back(kManifestName);
    if (options_.progress) options_.progress("sync", plan_.summary.work_bytes, plan_.summary.work_bytes);
    return transaction_->commit(publication);
  }

  /// Of the objects; those that were appended to are known once they are written.
  std::vector<uint64_t> object_sizes() const {
    std::vector<uint64_t> sizes;
    for (const auto& object : plan_.objects)
      sizes.push_back(object.size == kUnknown && !request_.dry_run ? 0 : object.size);
    for (const auto& receipt : receipts_)
      if (plan_.objects[receipt.place.object].size == kUnknown)
        sizes[receipt.place.object] =
            std::max(sizes[receipt.place.object], receipt.place.offset + receipt.place.length);
    return sizes;
  }

  CopySummary summarize() {
    watch_.sample();
    auto& s = summary_;
    s.source = request_.source;
    s.target = request_.target;
    s.format = target_.format->name;
    s.tensors = selected_.want.size();
    s.shards = plan_.objects.size();
    s.reread = plan_.summary.reread * plan_.summary.excess;
    s.seconds = watch_.seconds();
    std::vector<std::pair<std::string, uint64_t>> objects;
    for (const auto& file : side_files_) objects.emplace_back(file.name, size_of(file));
    auto sizes = object_sizes();
    for (size_t i = 0; i < sizes.size(); ++i) objects.emplace_back(plan_.objects[i].key, sizes[i]);
    if (request_.manifest) objects.emplace_back(kManifestName, kUnknown);
    if (request_.dry_run)
      for (const auto& object : draft_->sealed()) objects.emplace_back(object.key, object.size);
    objects.insert(objects.end(), s.objects.begin(), s.objects.end());
    s.objects = std::move(objects);
    s.bytes_read = request_.dry_run ? plan_.summary.read_bytes : source_.store->bytes_read();
    s.bytes_written = sealed_bytes_;
    for (uint64_t size : sizes) s.bytes_written += size == kUnknown ? 0 : size;
    if (request_.dry_run)
      for (const auto& file : side_files_) s.bytes_written += size_of(file);
    s.peak_memory_bytes = std::max(watch_.peak(), budget_peak_);
    return std::move(s);
  }

  const CopyRequest& request_;
  const JobOptions& options_;
  Calls calls_;
  const Fill* fill_ = nullptr;
  int ranks_ = 1;
  MemoryWatch watch_;
  Checkpoint source_;
  Target target_;
  Selected selected_;
  WriteOptions write_;
  std::unique_ptr<Draft> draft_;
  Plan plan_;
  std::vector<Catalog::SideFile> side_files_;
  std::unique_ptr<Transaction> transaction_;
  std::vector<Receipt> receipts_;
  CopySummary summary_;
  uint64_t sealed_bytes_ = 0, budget_peak_ = 0;
};

}  // namespace

Result<CopySummary> copy_checkpoint(const CopyRequest& request, const JobOptions& options) {
  return Copy(request, options).run();
}

Result<CopySummary> save_tensors(const Catalog& tensors, const Calls& calls, const CopyRequest& request,
                                 const JobOptions& options) {
  return Copy(request, options).run(tensors, calls);
}

Result<CopySummary> save_filled(const Catalog& tensors, int ranks, const CopyRequest& request,
                                const JobOptions& options, const Fill& fill) {
  return Copy(request, options).run(tensors, ranks, fill);
}

}  // namespace shardwright
