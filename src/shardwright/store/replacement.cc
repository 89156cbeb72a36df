#include "shardwright/store/replacement.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <set>

#include "shardwright/store/directory.h"

namespace shardwright::detail {
namespace {

bool exists(const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0;
}

Status sync_all(std::set<std::string>& directories) {
  for (const std::string& directory : directories) SHARDWRIGHT_TRY(sync_directory(directory));
  directories.clear();
  return {};
}

/// Notes the directory also when the name is gone already: whoever removed it may not have come as far as the sync.
Status remove_and_note(const std::string& path, std::set<std::string>& touched) {
  SHARDWRIGHT_TRY(remove_file(path));
  struct stat info;
  if (::stat(parent_of(path).c_str(), &info) == 0 && S_ISDIR(info.st_mode)) touched.insert(parent_of(path));
  return {};
}

/// The staged file is gone: it must have been renamed.
Status check_published(const std::string& path, const Replacement::Object& object, std::set<std::string>& touched) {
  struct stat info;
  if (::stat(path.c_str(), &info) == 0 && static_cast<uint64_t>(info.st_size) == object.size) {
    touched.insert(parent_of(path));
    return {};
  }
  Error error =
      fail(Code::kCorrupt, "an interrupted replacement cannot be finished: a staged file is missing").at_path(path);
  error.expected = "a file of " + std::to_string(object.size) + " bytes";
  error.hint = "restore the file, or remove .shardwright-journal.json to keep the directory as it is";
  return error;
}

Status publish(const std::string& directory, const std::string& files, const Replacement::Object& object,
               std::set<std::string>& touched) {
  SHARDWRIGHT_ASSIGN(std::string path, final_path(directory, object.key));
  std::string staged = files + "/" + object.key, link;
  struct stat info;
  if (::lstat(staged.c_str(), &info) != 0) return check_published(path, object, touched);
  if (S_ISLNK(info.st_mode)) {  // staged on the mount of its final place
    link = staged;
    SHARDWRIGHT_ASSIGN(staged, resolve_links(link));
    if (!exists(staged)) {
      SHARDWRIGHT_TRY(check_published(path, object, touched));
      return remove_file(link);
    }
  }
  SHARDWRIGHT_TRY(make_directories(parent_of(path)));
  if (::rename(staged.c_str(), path.c_str()) != 0) return errno_error(errno, "cannot move the new file to", path);
  touched.insert(parent_of(path));
  if (!link.empty()) SHARDWRIGHT_TRY(remove_file(link));
  return {};
}

}  // namespace

Result<std::string> final_path(const std::string& directory, const std::string& key) {
  SHARDWRIGHT_ASSIGN(std::string path, resolve_links(directory + "/" + key));
  struct stat info;
  if (::stat(path.c_str(), &info) == 0) {
    if (S_ISREG(info.st_mode)) return path;
    return fail(Code::kAlreadyExists, "is in the way of a file of this name")
        .at_path(path)
        .with_found(S_ISDIR(info.st_mode) ? "a directory" : "a special file");
  }
  for (std::string at = parent_of(path); at != "/"; at = parent_of(at)) {
    if (::stat(at.c_str(), &info) != 0) continue;
    if (S_ISDIR(info.st_mode)) break;
    return fail(Code::kAlreadyExists, "is a file, but a directory of this name is needed").at_path(at);
  }
  return path;
}

Status replace(const std::string& directory, const Replacement& replacement) {
  std::string files = directory + "/" + replacement.staging + "/files";
  std::set<std::string> touched;
  for (const std::string& key : replacement.remove_before) {
    auto is_it = [&](const Replacement::Object& object) { return object.key == key; };
    std::string path = fmt::format("{}/{}", directory, key);
    if (std::any_of(replacement.objects.begin(), replacement.objects.end(), is_it)) {
      struct stat staged;
      if (::stat(fmt::format("{}/{}", files, key).c_str(), &staged) != 0) continue;  // this is the new one already
      // Comes back under this name: a link is kept, and points to nothing for a while.
      SHARDWRIGHT_ASSIGN(path, resolve_links(path));
    }
    SHARDWRIGHT_TRY(remove_and_note(path, touched));
  }
  SHARDWRIGHT_TRY(sync_all(touched));
  for (const auto& object : replacement.objects) SHARDWRIGHT_TRY(publish(directory, files, object, touched));
  SHARDWRIGHT_TRY(sync_all(touched));
  for (const std::string& key : replacement.remove_after)
    SHARDWRIGHT_TRY(remove_and_note(fmt::format("{}/{}", directory, key), touched));
  return sync_all(touched);
}

}  // namespace shardwright::detail
