#include "shardwright/store/file_transaction.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <iterator>

#include "shardwright/base/text.h"
#include "shardwright/store/directory.h"
#include "shardwright/store/file_list.h"
#include "shardwright/store/file_writer.h"
#include "shardwright/store/journal.h"
#include "shardwright/store/key.h"

namespace shardwright::detail {
namespace {

Error busy(const std::string& path) {
  return fail(Code::kUnavailable, "another process is writing to this directory")
      .at_path(path)
      .with_hint("run again when it has finished");
}

/// What was staged is not there any more: nobody but the owner may take it away while the owner lives.
Error taken_away(const std::string& path) {
  return fail(Code::kAborted,
              "unfinished files were removed by another program while this one wrote; nothing was published")
      .at_path(path)
      .with_hint("run again, and let nothing clean up names that contain '.shardwright-' meanwhile");
}

/// True when another living owner has a staging here. Two who begin at once may both see one another and both withdraw.
Result<bool> others_at_work(const std::string& parent, const std::string& prefix, const std::string& mine) {
  SHARDWRIGHT_ASSIGN(auto found, Staging::find(parent, prefix));
  for (const std::string& path : found) {
    if (path == mine) continue;
    SHARDWRIGHT_ASSIGN(auto dead, Staging::adopt(path));
    if (!dead && Staging::is_owned(path)) return true;
    if (dead) (void)dead->remove();  // another user's may stay; it harms nobody
  }
  return false;
}

/// Names of regular files and links, as a listing gives them.
Result<std::vector<std::string>> staged_keys(const std::string& objects) {
  FileHandle handle(::open(objects.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!handle && errno == ENOENT) return taken_away(objects);
  if (!handle) return errno_error(errno, "cannot open directory", objects);
  return list_files(handle.get(), "", objects);
}

/// Makes the names of all staged files durable, also of those that are staged elsewhere.
Status sync_names(const std::string& staging, const std::string& objects, const std::vector<std::string>& keys) {
  std::set<std::string> elsewhere;
  for (const std::string& key : keys) {
    std::string staged = fmt::format("{}/{}", objects, key);
    SHARDWRIGHT_ASSIGN(std::string real, resolve_links(staged));
    if (real != staged) elsewhere.insert(parent_of(real));
  }
  for (const std::string& directory : elsewhere) SHARDWRIGHT_TRY(sync_directory(directory));
  return sync_directories_below(staging);
}

}  // namespace

Result<std::unique_ptr<Transaction>> FileTransaction::begin(TargetDirectory target, std::function<void()> published) {
  std::string parent = target.present ? target.path : target.anchor;
  std::string prefix = target.present ? std::string(kStagingPrefix) : sibling_prefix(target.name);
  std::unique_ptr<FileTransaction> transaction(new FileTransaction());
  SHARDWRIGHT_ASSIGN(transaction->staging_, Staging::create(parent, prefix));
  Staging& staging = *transaction->staging_;
  SHARDWRIGHT_ASSIGN(bool others, others_at_work(parent, prefix, staging.path()));
  if (others) return busy(target.path);
  transaction->id_ = name_of(staging.path()).substr(prefix.size());
  transaction->objects_ = staging.files() + (target.rest.empty() ? "" : "/" + target.rest);
  SHARDWRIGHT_TRY(make_directories(transaction->objects_));
  transaction->target_ = std::move(target);
  transaction->published_ = std::move(published);
  return std::unique_ptr<Transaction>(std::move(transaction));
}

Result<std::unique_ptr<Transaction>> FileTransaction::join(std::string_view token) {
  std::string objects(token);
  size_t files = objects.find("/files", objects.rfind(kStagingPrefix));
  struct stat info;
  bool ours =
      objects.starts_with('/') && files != std::string::npos && objects.rfind(kStagingPrefix) != std::string::npos;
  if (!ours || ::stat(objects.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
    return fail(Code::kNotFound, "no such transaction: it has ended, or this file system does not show it")
        .with_found("'" + objects + "'");
  }
  std::string staging = objects.substr(0, files), name = name_of(staging);
  std::unique_ptr<FileTransaction> transaction(new FileTransaction());
  transaction->target_.present = name.starts_with(kStagingPrefix);
  transaction->target_.path = parent_of(staging);
  transaction->id_ = name.substr(name.rfind(kStagingPrefix) + kStagingPrefix.size());
  transaction->objects_ = std::move(objects);
  return std::unique_ptr<Transaction>(std::move(transaction));
}

FileTransaction::~FileTransaction() {
  if (staging_) (void)staging_->remove();  // nobody to tell; the next who comes tries again
}

/// Path at which to write `key`: in the staging, or beside its final place where that is on another mount.
Result<std::string> FileTransaction::place_for(const std::string& key) {
  std::string staged = objects_ + "/" + key;
  struct stat info;
  // Not made again: the objects that were in it would be missing, and nobody could tell that this staging has an owner.
  if (::stat(objects_.c_str(), &info) != 0 && errno == ENOENT) return taken_away(objects_);
  SHARDWRIGHT_TRY(make_directories(parent_of(staged)));
  if (!target_.present) return staged;
  SHARDWRIGHT_ASSIGN(std::string path, final_path(target_.path, key));
  std::string directory = parent_of(path);
  if (::stat(directory.c_str(), &info) != 0 || same_mount(directory, objects_)) return staged;
  static std::atomic<uint64_t> counter{0};
  std::string beside = directory + "/" + std::string(kStagingPrefix) + id_ + "." + std::to_string(::getpid()) + "-" +
                       std::to_string(counter++);
  // The link first: whatever it points to is then found and removed with the staging.
  if (::symlink(beside.c_str(), staged.c_str()) != 0) {
    if (errno == EEXIST) return fail(Code::kInternal, "file is created twice").at_path(key);
    return errno_error(errno, "cannot make a link", staged);
  }
  return beside;
}

Result<std::unique_ptr<Writer>> FileTransaction::create(std::string_view key, uint64_t size_bytes) {
  SHARDWRIGHT_TRY(check_key(key));
  if (!is_utf8(key)) return fail(Code::kInvalidArgument, "file name is not UTF-8").with_found(json_quote(key));
  if (committed_) return fail(Code::kInternal, "create after commit").at_path(std::string(key));
  std::string name(key);
  SHARDWRIGHT_ASSIGN(std::string path, place_for(name));
  {
    std::lock_guard lock(open_->mutex);
    open_->keys.insert(name);
  }
  auto writer = FileWriter::create(path, size_bytes, [open = open_, name] {
    std::lock_guard lock(open->mutex);
    open->finished.insert(open->keys.extract(name));
  });
  if (!writer.ok() && writer.error().code == Code::kAlreadyExists) {
    return fail(Code::kInternal, "file is created twice").at_path(target_.path + "/" + name);
  }
  return writer;
}

Result<std::unique_ptr<Writer>> FileTransaction::open(std::string_view key, uint64_t size_bytes) {
  SHARDWRIGHT_TRY(check_key(key));
  std::string path = objects_ + "/" + std::string(key);
  struct stat info;
  if (::stat(objects_.c_str(), &info) != 0 && errno == ENOENT) return taken_away(objects_);
  return FileWriter::open(path, size_bytes, [open = open_, name = std::string(key)] {
    std::lock_guard lock(open->mutex);
    open->finished.insert(open->keys.extract(name));
  });
}

Status FileTransaction::check_publication(const Publication& publication) const {
  if (committed_ || !staging_)
    return fail(Code::kInternal, "commit twice, or by a joined transaction").at_path(target_.path);
  {
    std::lock_guard lock(open_->mutex);
    if (!open_->keys.empty())
      return fail(Code::kInternal, "commit before this file was finished").at_path(*open_->keys.begin());
  }
  for (const auto* names : {&publication.stale, &publication.entries}) {
    for (const std::string& name : *names) {
      SHARDWRIGHT_TRY(check_key(name));
      if (!is_utf8(name)) return fail(Code::kInvalidArgument, "file name is not UTF-8").with_found(json_quote(name));
    }
  }
  std::vector<std::string> keys = publication.keys;
  std::sort(keys.begin(), keys.end());
  SHARDWRIGHT_ASSIGN(auto staged, staged_keys(objects_));
  std::vector<std::string> missing;
  std::set_difference(keys.begin(), keys.end(), staged.begin(), staged.end(), std::back_inserter(missing));
  for (const std::string& key : missing) {
    std::lock_guard lock(open_->mutex);
    if (open_->finished.contains(key)) return taken_away(objects_ + "/" + key);
  }
  if (keys.empty() || keys != staged) {
    return fail(Code::kInternal, "commit does not name every file that was created")
        .at_path(target_.path)
        .with_found(std::to_string(keys.size()) + " names")
        .with_expected(std::to_string(staged.size()) + " files");
  }
  return {};
}

Status FileTransaction::commit(const Publication& publication) {
  SHARDWRIGHT_TRY(check_publication(publication));
  SHARDWRIGHT_TRY(sync_names(staging_->path(), objects_, publication.keys));
  auto status = target_.present ? publish_files(publication) : publish_directory();
  if (!status.ok()) return status;
  committed_ = true;
  published_();
  if (staging_) (void)staging_->remove();
  staging_.reset();
  return {};
}

Status FileTransaction::publish_directory() {
  std::string to = target_.anchor + "/" + target_.name, from = staging_->files();
  int result = ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE);
  // Not every file system knows the flag. A plain rename of a directory replaces an empty directory at most.
  if (result != 0 && (errno == EINVAL || errno == ENOSYS)) result = ::rename(from.c_str(), to.c_str());
  if (result != 0 && (errno == EEXIST || errno == ENOTEMPTY || errno == ENOTDIR)) {
    return fail(Code::kAborted, "another program made this directory meanwhile; nothing was written").at_path(to);
  }
  if (result != 0) return errno_error(errno, "cannot move the new directory to", to);
  return sync_directory(target_.anchor);
}

Result<Replacement> FileTransaction::plan_replacement(const Publication& publication) const {
  Replacement plan;
  plan.staging = name_of(staging_->path());
  const std::set<std::string> entries(publication.entries.begin(), publication.entries.end());
  bool replaces_members = false;
  for (const std::string& key : publication.keys) {
    struct stat staged, old;
    if (::stat((objects_ + "/" + key).c_str(), &staged) != 0)
      return errno_error(errno, "cannot look at", objects_ + "/" + key);
    plan.objects.push_back({key, static_cast<uint64_t>(staged.st_size)});
    SHARDWRIGHT_ASSIGN(std::string path, final_path(target_.path, key));
    // The entry point itself goes from old to new in one rename; any other file would change under readers of the old set.
    bool is_entry = key == publication.keys.back() && entries.contains(key);
    replaces_members |= !is_entry && ::stat(path.c_str(), &old) == 0;
  }
  std::set<std::string> placed(publication.keys.begin(), publication.keys.end());
  if (replaces_members) {
    plan.remove_before.assign(entries.begin(), entries.end());
    placed.insert(entries.begin(), entries.end());
  }
  for (const auto* names : {&publication.entries, &publication.stale}) {
    for (const std::string& name : *names) {
      if (placed.insert(name).second) plan.remove_after.push_back(name);
    }
  }
  return plan;
}

Status FileTransaction::publish_files(const Publication& publication) {
  SHARDWRIGHT_ASSIGN(Replacement plan, plan_replacement(publication));
  if (plan.objects.size() == 1 && plan.remove_before.empty() && plan.remove_after.empty())
    return replace(target_.path, plan);
  bool journaled = false;
  if (auto status = write_journal(target_.path, plan, journaled); !status.ok()) {
    if (journaled) staging_.reset();
    return status;
  }
  auto status = replace(target_.path, plan);
  if (status.ok()) status = remove_journal(target_.path);
  if (status.ok()) return {};
  // All bytes are durable and the journal says what is to be done: leave both to the next who comes.
  staging_.reset();
  published_();
  return std::move(status.error())
      .within("while replacing the files in '" + target_.path + "'; the next command there will finish it");
}

}  // namespace shardwright::detail
