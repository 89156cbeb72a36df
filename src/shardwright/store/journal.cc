#include "shardwright/store/journal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "shardwright/base/json.h"
#include "shardwright/base/text.h"
#include "shardwright/store/directory.h"
#include "shardwright/store/file_handle.h"
#include "shardwright/store/file_writer.h"
#include "shardwright/store/key.h"
#include "shardwright/store/staging.h"

namespace shardwright::detail {
namespace {

constexpr int kVersion = 1;  // on disk: a change of meaning gets the next number
constexpr uint64_t kMaxJournalBytes = 256 * MiB;

Error malformed(std::string what) {
  return fail(Code::kCorrupt, "journal of an interrupted replacement is damaged: " + std::move(what))
      .with_hint("remove .shardwright-journal.json to keep the directory as it is");
}

std::optional<uint64_t> number(const Json& object, const char* name) {
  auto at = object.find(name);
  if (at == object.end() || !at->is_number_unsigned()) return std::nullopt;
  return at->get<uint64_t>();
}

Status parse_keys(const Json& document, const char* name, std::vector<std::string>& keys) {
  auto at = document.find(name);
  if (at == document.end() || !at->is_array()) return malformed("no list '" + std::string(name) + "'");
  for (const Json& key : *at) {
    if (!key.is_string() || !check_key(key.get_ref<const std::string&>()).ok()) {
      return malformed("a name in '" + std::string(name) + "' is not a path inside the directory");
    }
    keys.push_back(key.get<std::string>());
  }
  return {};
}

Status parse_objects(const Json& document, std::vector<Replacement::Object>& objects) {
  auto at = document.find("objects");
  if (at == document.end() || !at->is_array()) return malformed("no list 'objects'");
  for (const Json& entry : *at) {
    if (!entry.is_object()) return malformed("an entry of 'objects' is not an object");
    auto key = entry.find("key");
    auto size = number(entry, "size");
    if (key == entry.end() || !key->is_string() || !size) return malformed("an entry of 'objects' has no key or size");
    if (!check_key(key->get_ref<const std::string&>()).ok())
      return malformed("a key is not a path inside the directory");
    objects.push_back({key->get<std::string>(), *size});
  }
  return {};
}

Result<uint64_t> inode_of(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return errno_error(errno, "cannot look at", path);
  return static_cast<uint64_t>(info.st_ino);
}

std::string path_in(const std::string& directory) { return directory + "/" + std::string(kJournalName); }

Status write_durable(const std::string& path, const std::string& text) {
  SHARDWRIGHT_ASSIGN(auto writer, FileWriter::create(path, text.size(), [] {}));
  WriteOp op{0, view_of(text)};
  SHARDWRIGHT_TRY(writer->write({&op, 1}));
  return writer->finish(text.size());
}

Result<std::string> read_text(const std::string& path) {
  FileHandle handle(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!handle) return errno_error(errno, "cannot open", path);
  struct stat info;
  if (::fstat(handle.get(), &info) != 0) return errno_error(errno, "cannot look at", path);
  if (!S_ISREG(info.st_mode) || static_cast<uint64_t>(info.st_size) > kMaxJournalBytes)
    return malformed("not a file of ours");
  std::string text(static_cast<size_t>(info.st_size), '\0');
  for (size_t done = 0; done < text.size();) {
    ssize_t got = ::pread(handle.get(), text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return errno_error(got == 0 ? EIO : errno, "cannot read", path);
    done += static_cast<size_t>(got);
  }
  return text;
}

}  // namespace

std::string Journal::to_json() const {
  Json document;
  document["shardwright_journal"] = kVersion;
  document["directory_inode"] = directory_inode;
  document["staging"] = replacement.staging;
  document["staging_inode"] = staging_inode;
  document["remove_before"] = replacement.remove_before;
  Json objects = Json::array();
  for (const auto& object : replacement.objects) objects.push_back({{"key", object.key}, {"size", object.size}});
  document["objects"] = std::move(objects);
  document["remove_after"] = replacement.remove_after;
  return document.dump(1) + "\n";
}

Result<Journal> Journal::parse(std::string_view text) {
  auto parsed = parse_json(text);
  if (!parsed.ok()) return malformed(parsed.error().message);
  const Json& document = *parsed;
  if (!document.is_object()) return malformed("not a JSON object");
  auto version = number(document, "shardwright_journal");
  if (!version) return malformed("no version");
  if (*version != kVersion) {
    return fail(Code::kUnsupported, "journal of an interrupted replacement was made by another version of shardwright")
        .with_found("version " + std::to_string(*version))
        .with_expected("version " + std::to_string(kVersion));
  }
  Journal journal;
  auto directory_inode = number(document, "directory_inode"), staging_inode = number(document, "staging_inode");
  auto staging = document.find("staging");
  if (!directory_inode || !staging_inode) return malformed("no inode numbers");
  if (staging == document.end() || !staging->is_string()) return malformed("no staging directory");
  journal.directory_inode = *directory_inode;
  journal.staging_inode = *staging_inode;
  std::string& name = journal.replacement.staging = staging->get<std::string>();
  if (!name.starts_with(kStagingPrefix) || !is_staging_id(std::string_view(name).substr(kStagingPrefix.size()))) {
    return malformed("the staging directory is not one of ours");
  }
  SHARDWRIGHT_TRY(parse_keys(document, "remove_before", journal.replacement.remove_before));
  SHARDWRIGHT_TRY(parse_objects(document, journal.replacement.objects));
  SHARDWRIGHT_TRY(parse_keys(document, "remove_after", journal.replacement.remove_after));
  return journal;
}

Status write_journal(const std::string& directory, const Replacement& replacement, bool& left_behind) {
  left_behind = false;
  std::string staging = directory + "/" + replacement.staging, temporary = staging + "/journal";
  Journal journal;
  journal.replacement = replacement;
  SHARDWRIGHT_ASSIGN(journal.directory_inode, inode_of(directory));
  SHARDWRIGHT_ASSIGN(journal.staging_inode, inode_of(staging));
  SHARDWRIGHT_TRY(write_durable(temporary, journal.to_json()));
  if (::rename(temporary.c_str(), path_in(directory).c_str()) != 0) {
    return errno_error(errno, "cannot make the journal", path_in(directory));
  }
  auto status = sync_directory(directory);
  if (!status.ok()) left_behind = ::unlink(path_in(directory).c_str()) != 0;
  return status;
}

Result<std::optional<Journal>> read_journal(const std::string& directory) {
  auto text = read_text(path_in(directory));
  if (!text.ok() && text.error().code == Code::kNotFound) return std::optional<Journal>();
  if (!text.ok()) return std::move(text.error()).at_path(path_in(directory));
  auto journal = Journal::parse(*text);
  if (!journal.ok()) return std::move(journal.error()).at_path(path_in(directory));
  SHARDWRIGHT_ASSIGN(uint64_t directory_inode, inode_of(directory));
  struct stat staging;
  std::string path = directory + "/" + journal->replacement.staging;
  // A staging that is gone is no contradiction: it is removed after the journal, but a disk may lose these two in either order.
  bool staging_is_it =
      ::lstat(path.c_str(), &staging) != 0 || (S_ISDIR(staging.st_mode) && staging.st_ino == journal->staging_inode);
  if (directory_inode != journal->directory_inode || !staging_is_it) {
    return fail(Code::kCorrupt, "journal of an interrupted replacement was made for another directory")
        .at_path(path_in(directory))
        .with_hint(
            "copy the checkpoint again from where it was written, or remove the journal to keep the directory as it "
            "is");
  }
  return std::optional<Journal>(std::move(*journal));
}

Status remove_journal(const std::string& directory) {
  SHARDWRIGHT_TRY(remove_file(path_in(directory)));
  return sync_directory(directory);
}

}  // namespace shardwright::detail
