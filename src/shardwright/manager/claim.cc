#include "shardwright/manager/claim.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>

#include "shardwright/manager/step_name.h"
#include "shardwright/store/directory.h"
#include "shardwright/store/file_handle.h"

namespace shardwright {
namespace {

using detail::FileHandle;
using std::chrono::milliseconds, std::chrono::steady_clock;
constexpr milliseconds kPause{50};

/// Locks of a process do not exclude its own other managers, and are gone when it closes the file anywhere: so it opens none twice.
struct Held {
  std::mutex mutex;
  std::set<std::string> paths;
  const pid_t process = ::getpid();
};
/// A fork has none of its parent's, nor the use of a mutex that the parent may have had locked. Outlives managers that end with the process.
Held& held() {
  static std::atomic<Held*> all{new Held()};
  Held* known = all;
  if (known->process == ::getpid()) return *known;
  auto* own = new Held();
  if (all.compare_exchange_strong(known, own)) return *own;
  delete own;  // another thread was first
  return *known;
}

std::string host_and_process() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  return fmt::format("{} {}", host.data(), ::getpid());
}

Error taken(const std::string& path, const std::string& by) {
  return fail(Code::kUnavailable, "another manager saves steps here")
      .at_path(detail::parent_of(path))
      .with_found(by)
      .with_hint("one job at a time: end the other one, or give this one a directory of its own");
}

enum class Locked { kYes, kHeld, kGone };

/// kGone: the file was removed by who had it before.
Result<Locked> lock(int file, const std::string& path) {
  struct flock whole{};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (::fcntl(file, F_SETLK, &whole) != 0) {
    if (errno == EACCES || errno == EAGAIN) return Locked::kHeld;
    if (errno != ENOLCK && errno != ENOSYS && errno != EOPNOTSUPP && errno != EINVAL)
      return errno_error(errno, "cannot lock", path);
  }
  struct stat info;
  return ::fstat(file, &info) == 0 && info.st_nlink > 0 ? Locked::kYes : Locked::kGone;
}

std::string holder_of(int file) {
  std::array<char, 300> text{};
  ssize_t got = ::pread(file, text.data(), text.size() - 1, 0);
  std::string said(text.data(), static_cast<size_t>(std::max<ssize_t>(got, 0)));
  size_t space = said.find(' ');
  if (space == said.npos) return "a process that does not say which";
  return fmt::format("process {} on {}", said.substr(space + 1), said.substr(0, space));
}

}  // namespace

int Claim::current_process() { return ::getpid(); }

Result<std::unique_ptr<Claim>> Claim::take(const std::string& root, milliseconds patience) {
  std::error_code error;
  std::string path = fmt::format("{}/{}", std::filesystem::canonical(root, error).string(), kWriter);
  if (error) return errno_error(error.value(), "cannot open", root);
  std::lock_guard guard(held().mutex);
  if (held().paths.contains(path)) return taken(path, "another manager of this process");
  for (auto deadline = steady_clock::now() + patience;;) {
    FileHandle file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (!file) return errno_error(errno, "cannot open", path);
    SHARDWRIGHT_ASSIGN(Locked locked, lock(file.get(), path));
    if (locked == Locked::kYes) {
      std::string text = host_and_process();
      if (::ftruncate(file.get(), 0) != 0 || ::pwrite(file.get(), text.data(), text.size(), 0) < 0)
        return errno_error(errno, "cannot write", path);
      held().paths.insert(path);
      return std::unique_ptr<Claim>(new Claim(path, file.release()));
    }
    if (steady_clock::now() >= deadline) return taken(path, holder_of(file.get()));
    if (locked == Locked::kHeld) std::this_thread::sleep_for(kPause);
  }
}

std::optional<bool> Claim::is_held(const std::string& root) {
  std::error_code error;
  std::string path = fmt::format("{}/{}", std::filesystem::canonical(root, error).string(), kWriter);
  if (error) return std::nullopt;
  std::lock_guard guard(held().mutex);
  if (held().paths.contains(path)) return true;  // opening the file would end that lock
  FileHandle file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file) return errno == ENOENT ? std::optional(false) : std::nullopt;
  struct flock whole{};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (::fcntl(file.get(), F_GETLK, &whole) != 0) return std::nullopt;
  return whole.l_type != F_UNLCK;
}

Claim::~Claim() {
  if (::getpid() != process_) return;  // a fork has none, and its close would be nobody's loss
  std::lock_guard guard(held().mutex);
  ::unlink(path_.c_str());  // before the lock goes: who waits for it sees that it is gone
  ::close(file_);
  held().paths.erase(path_);
}

}  // namespace shardwright
