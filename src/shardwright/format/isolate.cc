#include "shardwright/format/isolate.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>

#include "shardwright/base/error_bytes.h"
#include "shardwright/format/coverage.h"
#include "shardwright/format/hdf5_handle.h"

namespace shardwright {
namespace {

constexpr int kTimeoutMs = 60'000;
/// What the child may take beside the largest metadata object: libraries, parsers, its answer.
constexpr uint64_t kRoomBytes = 256 * MiB;

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
constexpr uint32_t kArchitecture = 0;
#endif

bool forbid_system_calls() {
  if (kArchitecture == 0) return false;
  auto refuse = [](unsigned number) {
    return std::array<sock_filter, 2>{
        {BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)}};
  };
  std::vector<sock_filter> filter = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      // The numbers of x32 are other ones for the same calls.
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
  };
  // io_uring makes sockets without a call of its own for it.
  for (unsigned number :
       {__NR_socket, __NR_socketpair, __NR_connect, __NR_io_uring_setup, __NR_execve, __NR_execveat, __NR_ptrace}) {
    auto rule = refuse(number);
    filter.insert(filter.end(), rule.begin(), rule.end());
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

bool limit_memory(uint64_t more) {
  uint64_t pages = 0;
  auto* file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr) return false;
  bool parsed = std::fscanf(file, "%lu", &pages) == 1;
  std::fclose(file);
  if (!parsed) return false;
  rlimit limit{};
  limit.rlim_cur = limit.rlim_max = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) + more;
  rlimit no_core{0, 0};
  return setrlimit(RLIMIT_AS, &limit) == 0 && setrlimit(RLIMIT_CORE, &no_core) == 0;
}

bool write_all(int fd, View bytes) {
  while (!bytes.empty()) {
    ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return true;
}

[[noreturn]] void run_child(int fd, const OpenOptions& options,
                            const std::function<Result<Catalog>(const OpenOptions&)>& open) {
  Hdf5Lock::reset_after_fork();
  std::vector<Error> findings;
  OpenOptions inner = options;
  inner.isolate = false;
  (options.findings != nullptr ? inner.findings : inner.remarks) = &findings;
  Bytes answer;
  bool fenced = limit_memory(options.max_metadata_bytes + kRoomBytes) && forbid_system_calls();
  auto opened =
      fenced ? open(inner)
             : Result<Catalog>(
                   fail(Code::kUnsupported, "this system cannot isolate a process").with_expected("seccomp filters"));
  append_le<uint8_t>(answer, opened.ok());
  if (opened.ok()) {
    append_sized(answer, text_of(opened->serialize()));
  } else {
    append_error(answer, opened.error());
  }
  append_le<uint64_t>(answer, findings.size());
  for (const auto& finding : findings) append_error(answer, finding);
  _exit(write_all(fd, answer) ? 0 : 1);
}

/// Everything the child writes until it closes its end. most: bytes; it cannot have made more than it may hold.
/// Errors: kResourceExhausted when time is up, or for more.
Result<Bytes> read_answer(int fd, int timeout_ms, uint64_t most) {
  using Clock = std::chrono::steady_clock;
  auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  Bytes out, block(256 * KiB);
  while (true) {
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd wait{fd, POLLIN, 0};
    int ready = left <= 0 ? 0 : ::poll(&wait, 1, static_cast<int>(left));
    if (ready == 0)
      return fail(Code::kResourceExhausted,
                  fmt::format("reading the metadata took more than {} seconds", timeout_ms / 1000));
    if (ready < 0 && errno == EINTR) continue;
    ssize_t count = ready < 0 ? -1 : ::read(fd, block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno_error(errno, "cannot hear the isolated process", "");
    if (count == 0) return out;
    if (out.size() + static_cast<size_t>(count) > most)
      return fail(Code::kResourceExhausted, "the process that read the metadata says too much")
          .with_expected(fmt::format("at most {} bytes", most));
    out.insert(out.end(), block.begin(), block.begin() + count);
  }
}

/// A child reads a file, so what it found is in files and in literals, whole; an address in memory would be one of this process.
Status check_read_from_files(const Catalog& catalog) {
  for (TensorId id = 0; id < catalog.size(); ++id) {
    if (catalog.same_as(id) != id) continue;
    std::vector<Box> boxes;
    for (const Piece& piece : catalog.pieces(id)) {
      if (piece.place.site != Place::kExtent && piece.place.site != Place::kLiteral)
        return fail(Code::kCorrupt, "a place that no file has").at_tensor(std::string(catalog.spec(id).name));
      boxes.push_back(piece.box);
    }
    auto covered = check_coverage(catalog.spec(id).shape, std::move(boxes));
    if (!covered.ok()) return std::move(covered.error()).at_tensor(std::string(catalog.spec(id).name));
  }
  return {};
}

Result<Catalog> take_answer(View bytes, const OpenOptions& options) {
  auto nonsense = [] { return fail(Code::kCorrupt, "the process that read this file answered nonsense"); };
  ByteReader answer(bytes);
  bool ok = answer.number<uint8_t>() == 1;
  View catalog;
  Error error;
  if (ok) {
    catalog = answer.bytes();
  } else {
    error = take_error(answer);
  }
  std::vector<Error> findings;
  for (auto count = answer.number<uint64_t>(); count > 0 && !answer.bad; --count)
    findings.push_back(take_error(answer));
  if (answer.bad) return nonsense();
  if (auto* to = options.remarked()) to->insert(to->end(), findings.begin(), findings.end());
  if (!ok) return error;
  auto read = Catalog::deserialize(catalog);
  if (!read.ok()) return nonsense().with_found(read.error().text());
  if (auto status = check_read_from_files(*read); !status.ok()) return nonsense().with_found(status.error().text());
  return read;
}

}  // namespace

Result<Catalog> open_isolated(const OpenOptions& options, int timeout_ms,
                              const std::function<Result<Catalog>(const OpenOptions&)>& open) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error(errno, "cannot make a pipe", "");
  pid_t child;
  {
    Hdf5Lock lock;  // no other thread is inside the library while its state is copied
    child = ::fork();
    if (child == 0) {
      ::close(ends[0]);
      run_child(ends[1], options, open);
    }
  }
  ::close(ends[1]);
  if (child < 0) {
    ::close(ends[0]);
    return errno_error(errno, "cannot fork", "");
  }
  auto answer = read_answer(ends[0], timeout_ms, options.max_metadata_bytes + kRoomBytes);
  ::close(ends[0]);
  if (!answer.ok()) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!answer.ok()) return std::move(answer.error());
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return fail(Code::kCorrupt, "the HDF5 library crashed on this file, or needed too much memory")
        .with_found(WIFSIGNALED(status) ? fmt::format("signal {}", WTERMSIG(status))
                                        : fmt::format("exit code {}", WEXITSTATUS(status)));
  return take_answer(*answer, options);
}

Result<Catalog> isolate_if_asked(const OpenOptions& options,
                                 const std::function<Result<Catalog>(const OpenOptions&)>& open) {
  return options.isolate ? open_isolated(options, kTimeoutMs, open) : open(options);
}

}  // namespace shardwright
