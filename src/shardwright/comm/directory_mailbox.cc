#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <random>
#include <set>
#include <thread>

#include "shardwright/base/error_bytes.h"
#include "shardwright/comm/mailbox.h"
#include "shardwright/store/directory.h"
#include "shardwright/store/file_handle.h"

// In the directory: "lock", held by rank 0 while it lives; "run", the name of the job's folder; and that folder, "run-<16 hex digits>":
//   hello.<rank>    "<number of ranks> <16 hex digits>", anew for each process
//   welcome.<rank>  the same hex digits, from rank 0 once all have come: so a letter of an earlier job is not mistaken for this one's
//   refused         why it came to nothing
//   alive.<rank>    locked for as long as the process lives
//   left.<rank>     came to a good end; the last one removes the folder
//   <channel>.<kind><number>.<from>.<to>   a letter; removed by whom it is for
namespace shardwright {
namespace {

using detail::FileHandle;
using Clock = std::chrono::steady_clock;
constexpr std::string_view kRunPrefix = "run-";
constexpr size_t kMaxNote = 64 * KiB;

std::string random_hex() {
  std::random_device random;
  std::string out;
  for (int i = 0; i < 16; ++i) out += "0123456789abcdef"[random() % 16];
  return out;
}

bool exists(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0;
}

Status write_all(int fd, View bytes, const std::string& path) {
  while (!bytes.empty()) {
    ssize_t put = ::write(fd, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return errno_error(put == 0 ? EIO : errno, "cannot write", path);
    bytes = bytes.subspan(static_cast<size_t>(put));
  }
  return {};
}

/// A file that is there whole or not at all. fresh: kAlreadyExists when it is there.
Status put_file(const std::string& path, View bytes, bool fresh = false) {
  static std::atomic<uint64_t> counter{0};
  std::string aside =
      fmt::format("{}/.{}.{}-{}", detail::parent_of(path), detail::name_of(path), ::getpid(), counter++);
  FileHandle file(::open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file) return errno_error(errno, "cannot make file", aside);
  auto status = write_all(file.get(), bytes, aside);
  if (status.ok() && fresh) {
    if (::link(aside.c_str(), path.c_str()) != 0) status = errno_error(errno, "cannot make file", path);
    ::unlink(aside.c_str());
  } else if (status.ok() && ::rename(aside.c_str(), path.c_str()) != 0) {
    status = errno_error(errno, "cannot rename to", path);
  }
  if (!status.ok()) ::unlink(aside.c_str());
  return status;
}

Status read_into(const std::string& path, MutableView into) {
  FileHandle file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return errno_error(errno, "cannot open", path);
  while (!into.empty()) {
    ssize_t got = ::read(file.get(), into.data(), into.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      return got < 0 ? errno_error(errno, "cannot read", path)
                     : fail(Code::kCorrupt, "letter is cut short").at_path(path);
    into = into.subspan(static_cast<size_t>(got));
  }
  return {};
}

/// A short file's text; nullopt when it is not there.
std::optional<std::string> note(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return std::nullopt;
  Bytes bytes(std::min<uint64_t>(static_cast<uint64_t>(info.st_size), kMaxNote));
  if (!read_into(path, bytes).ok()) return std::nullopt;
  return std::string(text_of(bytes));
}

/// False when somebody holds it, or nobody can tell.
bool try_lock(int fd, int kind = LOCK_EX) {
  int result;
  do result = ::flock(fd, kind | LOCK_NB);
  while (result != 0 && errno == EINTR);
  return result == 0;
}

/// True when the file's owner is known to have ended.
bool is_unlocked(const std::string& path) {
  FileHandle file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  return file && try_lock(file.get(), LOCK_SH);  // two who look at once do not see one another
}

class DirectoryMailbox : public Mailbox {
 public:
  /// What all channels of one rank share; the last one says goodbye.
  struct Run {
    std::string folder;
    int rank, size;
    FileHandle alive, directory_lock{};
    std::string run_file{};  ///< rank 0
    pid_t process = ::getpid();
    ~Run() {
      if (process != ::getpid()) return;  // a fork's copy: it is no rank
      (void)put_file(fmt::format("{}/left.{}", folder, rank), {});
      bool all = true;
      for (int peer = 0; peer < size; ++peer) all = all && exists(fmt::format("{}/left.{}", folder, peer));
      std::error_code ignored;
      if (!run_file.empty()) std::filesystem::remove(run_file, ignored);
      if (all) std::filesystem::remove_all(folder, ignored);
    }
  };

  DirectoryMailbox(std::shared_ptr<Run> run, std::string channel)
      : run_(std::move(run)), channel_(std::move(channel)) {}
  int rank() const override { return run_->rank; }
  int size() const override { return run_->size; }
  Result<std::unique_ptr<Mailbox>> clone(Deadline) override {
    return std::unique_ptr<Mailbox>(
        std::make_unique<DirectoryMailbox>(run_, fmt::format("{}-{}", channel_, clones_++)));
  }
  Status send(int to, Subject subject, View bytes) override {
    std::string path = path_of(subject, rank(), to);
    auto status = put_file(path, bytes);
    if (status.ok() || subject.kind != Subject::kFailure) return status;
    // No room on the disk, or no more files for this process: the others then see at once that it is lost, if not why.
    run_->alive = {};
    return put_file(path, bytes);
  }
  Result<std::vector<int>> unsent() override { return std::vector<int>(); }

  Result<std::optional<uint64_t>> arrived(int from, Subject subject) override {
    struct stat info;
    std::string path = path_of(subject, from, rank());
    if (::stat(path.c_str(), &info) == 0) return std::optional(static_cast<uint64_t>(info.st_size));
    if (errno != ENOENT) return errno_error(errno, "cannot look at", path);
    return std::optional<uint64_t>();
  }
  Status receive(int from, Subject subject, MutableView into) override {
    std::string path = path_of(subject, from, rank());
    SHARDWRIGHT_TRY(read_into(path, into));
    ::unlink(path.c_str());
    return {};
  }
  bool ended(int rank) override { return is_unlocked(fmt::format("{}/alive.{}", run_->folder, rank)); }

 private:
  std::string path_of(Subject subject, int from, int to) const {
    return fmt::format("{}/{}.{}{}.{}.{}", run_->folder, channel_, "gxf"[subject.kind], subject.number, from, to);
  }
  std::shared_ptr<Run> run_;
  std::string channel_;
  int clones_ = 0;
};

/// Coming together.
class Meeting {
 public:
  Meeting(std::string directory, int rank, int size, Deadline deadline, const Watch& watch)
      : directory_(std::move(directory)), rank_(rank), size_(size), deadline_(deadline), watch_(watch) {}

  Result<std::unique_ptr<Comm>> meet() {
    SHARDWRIGHT_TRY(detail::make_directories(directory_));
    SHARDWRIGHT_TRY(rank_ == 0 ? convene() : come());
    std::shared_ptr<DirectoryMailbox::Run> run(new DirectoryMailbox::Run{
        folder_, rank_, size_, std::move(alive_), std::move(lock_), rank_ == 0 ? run_file() : ""});
    return comm_of(std::make_unique<DirectoryMailbox>(std::move(run), "0"));
  }

 private:
  std::string run_file() const { return directory_ + "/run"; }
  std::string in_folder(const char* what, int rank) const { return fmt::format("{}/{}.{}", folder_, what, rank); }

  /// Sleeps a little; false when the deadline has passed.
  Result<bool> wait() {
    if (watch_) SHARDWRIGHT_TRY(watch_());
    pause_ = std::min<Clock::duration>(pause_ * 2, std::chrono::milliseconds(10));
    auto now = Clock::now();
    if (now >= deadline_) return false;
    std::this_thread::sleep_for(std::min<Clock::duration>(pause_, deadline_ - now));
    return true;
  }

  /// False when another living process is this rank.
  Result<bool> be_alive(const std::string& folder) {
    std::string path = fmt::format("{}/alive.{}", folder, rank_);
    alive_ = FileHandle(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (!alive_) return errno_error(errno, "cannot make file", path);
    for (int attempt = 0; attempt < 20; ++attempt) {                    // whoever just looks, lets go again
      if (try_lock(alive_.get()) || errno != EWOULDBLOCK) return true;  // without locks only the deadline tells
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  // ---- rank 0

  Status convene() {
    std::string path = directory_ + "/lock";
    lock_ = FileHandle(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (!lock_) return errno_error(errno, "cannot make file", path);
    while (!try_lock(lock_.get())) {
      if (errno != EWOULDBLOCK) break;  // a file system without locks
      SHARDWRIGHT_ASSIGN(bool go_on, wait());
      if (!go_on)
        return fail(Code::kUnavailable, "another job meets in this directory")
            .at_path(directory_)
            .with_hint("give each job a directory of its own");
    }
    SHARDWRIGHT_TRY(remove_stale());
    std::string id = random_hex();
    folder_ = directory_ + "/" + std::string(kRunPrefix) + id;
    SHARDWRIGHT_TRY(detail::make_directories(folder_));
    SHARDWRIGHT_TRY(be_alive(folder_));
    SHARDWRIGHT_TRY(put_file(run_file(), view_of(id)));
    auto status = welcome_all();
    if (status.ok()) return {};
    ::unlink(run_file().c_str());  // nobody comes any more
    (void)put_file(folder_ + "/refused", bytes_of_error(status.error()));
    return status;
  }

  /// Folders of jobs in which nobody lives any more.
  Status remove_stale() {
    SHARDWRIGHT_ASSIGN(auto names, detail::names_in(directory_));
    for (const std::string& name : names) {
      bool ours = name.starts_with(kRunPrefix) && name.size() == kRunPrefix.size() + 16 &&
                  name.find_first_not_of("0123456789abcdef", kRunPrefix.size()) == std::string::npos;
      if (!ours) continue;
      std::string folder = directory_ + "/" + name;
      SHARDWRIGHT_ASSIGN(auto inside, detail::names_in(folder));
      bool lives = false;
      for (const std::string& file : inside)
        lives = lives || (file.starts_with("alive.") && !is_unlocked(fmt::format("{}/{}", folder, file)));
      std::error_code ignored;
      if (!lives) std::filesystem::remove_all(folder, ignored);
    }
    return {};
  }

  Status welcome_all() {
    std::set<int> missing;
    for (int rank = 1; rank < size_; ++rank) missing.insert(rank);
    std::vector<std::string> keys(static_cast<size_t>(size_));
    while (true) {
      for (auto at = missing.begin(); at != missing.end();) {
        auto hello = note(in_folder("hello", *at));
        if (hello) SHARDWRIGHT_TRY(check_hello(*hello, *at));
        if (hello) keys[static_cast<size_t>(*at)] = hello->substr(hello->find(' ') + 1);
        at = hello ? missing.erase(at) : std::next(at);
      }
      SHARDWRIGHT_TRY(check_refused());
      if (missing.empty()) break;
      SHARDWRIGHT_ASSIGN(bool go_on, wait());
      if (!go_on)
        return fail(Code::kUnavailable, fmt::format("{} did not come in time", ranks_text(missing)))
            .at_path(directory_)
            .with_expected(fmt::format("{} ranks", size_))
            .with_hint(
                "start all of them with the same directory and number of ranks, and see what the missing ones do");
    }
    for (int rank = 1; rank < size_; ++rank)
      SHARDWRIGHT_TRY(put_file(in_folder("welcome", rank), view_of(keys[static_cast<size_t>(rank)])));
    return {};
  }

  Status check_hello(const std::string& hello, int rank) const {
    std::string count = hello.substr(0, hello.find(' '));
    if (count == std::to_string(size_)) return {};
    return fail(Code::kInvalidArgument, fmt::format("rank {} says another number of ranks than rank 0", rank))
        .at_path(directory_)
        .with_found(count)
        .with_expected(std::to_string(size_));
  }

  // ---- the others

  Status come() {
    const std::string key = random_hex();
    while (true) {
      auto current = note(run_file());
      if (current && *current != seen_) {
        SHARDWRIGHT_ASSIGN(bool known, say_hello(directory_ + "/" + std::string(kRunPrefix) + *current, key));
        if (known) seen_ = *current;
      }
      if (!folder_.empty()) {
        if (note(in_folder("welcome", rank_)) == key) return {};
        SHARDWRIGHT_TRY(check_refused());
      }
      SHARDWRIGHT_ASSIGN(bool go_on, wait());
      if (!go_on)
        return fail(Code::kUnavailable, "rank 0 did not come in time, or not all others")
            .at_path(directory_)
            .with_expected(fmt::format("{} ranks", size_))
            .with_hint("start all of them with the same directory and number of ranks");
    }
  }

  /// Comes to a job's folder, if the job is not over. False: look again.
  Result<bool> say_hello(const std::string& folder, const std::string& key) {
    if (!exists(folder) || is_unlocked(folder + "/alive.0")) return false;
    auto alone = be_alive(folder);
    if (!alone.ok()) return alone.error().code == Code::kNotFound ? Result<bool>(false) : alone;
    if (!*alone) {
      Error twice =
          fail(Code::kInvalidArgument, fmt::format("two processes come as rank {}", rank_)).at_path(directory_);
      (void)put_file(folder + "/refused", bytes_of_error(twice));
      return twice;
    }
    auto status =
        put_file(fmt::format("{}/hello.{}", folder, rank_), view_of(fmt::format("{} {}", size_, key)), /*fresh=*/true);
    if (status.ok()) {
      folder_ = folder;
      return true;
    }
    alive_ = {};
    // Somebody was this rank there, and has left: the next job is meant.
    if (status.error().code == Code::kAlreadyExists) return true;
    return status.error().code == Code::kNotFound ? Result<bool>(false) : Result<bool>(std::move(status.error()));
  }

  Status check_refused() const {
    auto refused = note(folder_ + "/refused");
    return refused ? Status(error_from_bytes(view_of(*refused))) : Status();
  }

  const std::string directory_;
  const int rank_, size_;
  const Deadline deadline_;
  const Watch& watch_;
  std::string folder_, seen_;
  FileHandle alive_, lock_;
  Clock::duration pause_ = std::chrono::microseconds(200);
};

}  // namespace

Result<std::unique_ptr<Comm>> meet_in_directory(const std::string& directory, int rank, int size, Deadline deadline,
                                                const Watch& watch) {
  if (size < 1 || rank < 0 || rank >= size)
    return fail(Code::kInvalidArgument, "no such rank")
        .with_found(fmt::format("rank {} of {}", rank, size))
        .with_expected("0 to one less than their number");
  return Meeting(std::filesystem::absolute(directory).string(), rank, size, deadline, watch).meet();
}

}  // namespace shardwright
