/*
 * Stops a program at its n-th change to the disk. An LD_PRELOAD library, so that the points are counted outside the code under test.
 *
 *   LD_PRELOAD=build/libkillpoint.so KILLPOINT_ROOT=/tmp/x KILLPOINT_TRACE=/tmp/trace KILLPOINT_AT=17 program ...
 *
 * Counted, when a path it names is below a root: open with O_CREAT ("create"), write, pwrite, pwritev, fsync, fdatasync, sync_file_range,
 * ftruncate, fallocate, rename, renameat, renameat2, link, symlink, unlink, unlinkat, rmdir, mkdir, mkdirat (the *64 and *at forms
 * under the plain name). From 1, over all threads; a child process that keeps the environment counts anew.
 *
 *   KILLPOINT_ROOT    absolute real paths of directories, ':' between them; without it nothing is counted
 *   KILLPOINT_TRACE   file to append one line to per counted call, before it is made: "<n>\t<call>\t<path>[\t<second path>]"
 *   KILLPOINT_AT      n: SIGKILL this process just before its n-th counted call; 0 or unset: never
 *   KILLPOINT_ERRNO   number: the n-th call fails with this errno instead
 *   KILLPOINT_STICKY  1: with KILLPOINT_ERRNO, every call from the n-th on fails
 *   KILLPOINT_SHORT   1: reads and writes of more than one byte move half of what was asked, and every third one fails with EINTR first
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static const char* roots;
static int trace_fd = -1;
static long kill_at, fail_errno, sticky, make_short;
static atomic_long counter, transfers;

static long number(const char* name) {
  const char* text = getenv(name);
  return text ? strtol(text, NULL, 10) : 0;
}

__attribute__((constructor)) static void start(void) {
  roots = getenv("KILLPOINT_ROOT");
  kill_at = number("KILLPOINT_AT");
  fail_errno = number("KILLPOINT_ERRNO");
  sticky = number("KILLPOINT_STICKY");
  make_short = number("KILLPOINT_SHORT");
  const char* trace = getenv("KILLPOINT_TRACE");
  if (trace && roots)
    trace_fd = (int)syscall(SYS_openat, AT_FDCWD, trace, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

/* The next definition of a function, looked up once. Atomic: the first calls may come from several threads. */
#define REAL(name)                    \
  static _Atomic(void*) cached;       \
  void* found = atomic_load(&cached); \
  if (!found) {                       \
    found = dlsym(RTLD_NEXT, #name);  \
    atomic_store(&cached, found);     \
  }                                   \
  __typeof__(&name) real = (__typeof__(&name))found

static int below_root(const char* path) {
  for (const char* root = roots; root && *root;) {
    size_t length = strcspn(root, ":");
    if (length > 0 && strncmp(path, root, length) == 0 && (path[length] == '/' || path[length] == 0)) return 1;
    root += length + (root[length] == ':');
  }
  return 0;
}

static void path_of_fd(int fd, char out[PATH_MAX]) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  long length = syscall(SYS_readlinkat, AT_FDCWD, link, out, PATH_MAX - 1);
  out[length > 0 ? length : 0] = 0;
}

/* Absolute path of a name relative to a directory; links in it are not resolved. */
static void path_at(int directory, const char* name, char out[PATH_MAX]) {
  char base[PATH_MAX] = "";
  if (name[0] == '/') {
    snprintf(out, PATH_MAX, "%s", name);
    return;
  }
  if (directory == AT_FDCWD) {
    if (syscall(SYS_getcwd, base, sizeof base) < 0) base[0] = 0;
  } else {
    path_of_fd(directory, base);
  }
  if (strlen(base) + strlen(name) + 2 > PATH_MAX) name = "";
  strcpy(out, base);
  strcat(out, "/");
  strcat(out, name);
}

/* Counts a call. Nonzero, with errno set: it is to fail. */
static int strike(const char* call, const char* first, const char* second) {
  if (!roots || (!below_root(first) && !(second && below_root(second)))) return 0;
  long n = atomic_fetch_add(&counter, 1) + 1;
  if (trace_fd >= 0) {
    char line[2 * PATH_MAX + 64];
    int length =
        snprintf(line, sizeof line, "%ld\t%s\t%s%s%s\n", n, call, first, second ? "\t" : "", second ? second : "");
    syscall(SYS_write, trace_fd, line, (size_t)length);
  }
  if (kill_at == 0 || n < kill_at || (n > kill_at && !sticky)) return 0;
  if (fail_errno == 0) {
    syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
    for (;;) pause();
  }
  errno = (int)fail_errno;
  return 1;
}

static int strike_fd(const char* call, int fd) {
  if (!roots) return 0;
  int before = errno;
  char path[PATH_MAX];
  path_of_fd(fd, path);
  errno = before;
  return strike(call, path, NULL);
}

static int strike_at(const char* call, int directory, const char* name) {
  if (!roots) return 0;
  char path[PATH_MAX];
  path_at(directory, name, path);
  return strike(call, path, NULL);
}

static int strike_two(const char* call, int directory_a, const char* a, int directory_b, const char* b) {
  if (!roots) return 0;
  char first[PATH_MAX], second[PATH_MAX];
  path_at(directory_a, a, first);
  path_at(directory_b, b, second);
  return strike(call, first, second);
}

/* In short mode: nonzero when this transfer is to be interrupted; else *size is halved. */
static int shorten(int fd, size_t* size) {
  char path[PATH_MAX];
  if (!make_short || *size <= 1) return 0;
  path_of_fd(fd, path);
  if (!below_root(path)) return 0;
  if (atomic_fetch_add(&transfers, 1) % 3 == 0) {
    errno = EINTR;
    return 1;
  }
  *size /= 2;
  return 0;
}

/* The same for vectors: a copy cut to half of the bytes. Returns the number of vectors, -1 when interrupted. */
static int shorten_vectors(int fd, const struct iovec* vectors, int count, struct iovec* cut) {
  size_t total = 0;
  for (int i = 0; i < count; ++i) total += vectors[i].iov_len;
  if (shorten(fd, &total)) return -1;
  int used = 0;
  for (; used < count && total > 0; ++used) {
    cut[used] = vectors[used];
    if (cut[used].iov_len > total) cut[used].iov_len = total;
    total -= cut[used].iov_len;
  }
  return used;
}

ssize_t write(int fd, const void* bytes, size_t size) {
  REAL(write);
  if (strike_fd("write", fd) || shorten(fd, &size)) return -1;
  return real(fd, bytes, size);
}

#define PWRITE(name)                                                   \
  ssize_t name(int fd, const void* bytes, size_t size, off_t offset) { \
    REAL(name);                                                        \
    if (strike_fd("pwrite", fd) || shorten(fd, &size)) return -1;      \
    return real(fd, bytes, size, offset);                              \
  }
PWRITE(pwrite)
PWRITE(pwrite64)

#define PWRITEV(name)                                                            \
  ssize_t name(int fd, const struct iovec* vectors, int count, off_t offset) {   \
    REAL(name);                                                                  \
    struct iovec cut[IOV_MAX];                                                   \
    if (strike_fd("pwritev", fd)) return -1;                                     \
    if (!make_short || count > IOV_MAX) return real(fd, vectors, count, offset); \
    count = shorten_vectors(fd, vectors, count, cut);                            \
    return count < 0 ? -1 : real(fd, cut, count, offset);                        \
  }
PWRITEV(pwritev)
PWRITEV(pwritev64)

#define PREAD(name)                                              \
  ssize_t name(int fd, void* bytes, size_t size, off_t offset) { \
    REAL(name);                                                  \
    if (shorten(fd, &size)) return -1;                           \
    return real(fd, bytes, size, offset);                        \
  }
PREAD(pread)
PREAD(pread64)

#define PREADV(name)                                                             \
  ssize_t name(int fd, const struct iovec* vectors, int count, off_t offset) {   \
    REAL(name);                                                                  \
    struct iovec cut[IOV_MAX];                                                   \
    if (!make_short || count > IOV_MAX) return real(fd, vectors, count, offset); \
    count = shorten_vectors(fd, vectors, count, cut);                            \
    return count < 0 ? -1 : real(fd, cut, count, offset);                        \
  }
PREADV(preadv)
PREADV(preadv64)

int fsync(int fd) {
  REAL(fsync);
  return strike_fd("fsync", fd) ? -1 : real(fd);
}
int fdatasync(int fd) {
  REAL(fdatasync);
  return strike_fd("fdatasync", fd) ? -1 : real(fd);
}
int sync_file_range(int fd, off64_t offset, off64_t size, unsigned flags) {
  REAL(sync_file_range);
  return strike_fd("sync_file_range", fd) ? -1 : real(fd, offset, size, flags);
}

#define FTRUNCATE(name)                                      \
  int name(int fd, off_t size) {                             \
    REAL(name);                                              \
    return strike_fd("ftruncate", fd) ? -1 : real(fd, size); \
  }
FTRUNCATE(ftruncate)
FTRUNCATE(ftruncate64)

#define FALLOCATE(name)                                                    \
  int name(int fd, int mode, off_t offset, off_t size) {                   \
    REAL(name);                                                            \
    return strike_fd("fallocate", fd) ? -1 : real(fd, mode, offset, size); \
  }
FALLOCATE(fallocate)
FALLOCATE(fallocate64)

int rename(const char* from, const char* to) {
  REAL(rename);
  return strike_two("rename", AT_FDCWD, from, AT_FDCWD, to) ? -1 : real(from, to);
}
int renameat(int from_directory, const char* from, int to_directory, const char* to) {
  REAL(renameat);
  return strike_two("rename", from_directory, from, to_directory, to) ? -1
                                                                      : real(from_directory, from, to_directory, to);
}
int renameat2(int from_directory, const char* from, int to_directory, const char* to, unsigned flags) {
  REAL(renameat2);
  return strike_two("rename", from_directory, from, to_directory, to)
             ? -1
             : real(from_directory, from, to_directory, to, flags);
}
int link(const char* from, const char* to) {
  REAL(link);
  return strike_two("link", AT_FDCWD, from, AT_FDCWD, to) ? -1 : real(from, to);
}
int symlink(const char* target, const char* path) {
  REAL(symlink);
  return strike_at("symlink", AT_FDCWD, path) ? -1 : real(target, path);
}
int unlink(const char* path) {
  REAL(unlink);
  return strike_at("unlink", AT_FDCWD, path) ? -1 : real(path);
}
int unlinkat(int directory, const char* path, int flags) {
  REAL(unlinkat);
  return strike_at(flags & AT_REMOVEDIR ? "rmdir" : "unlink", directory, path) ? -1 : real(directory, path, flags);
}
int rmdir(const char* path) {
  REAL(rmdir);
  return strike_at("rmdir", AT_FDCWD, path) ? -1 : real(path);
}
int mkdir(const char* path, mode_t mode) {
  REAL(mkdir);
  return strike_at("mkdir", AT_FDCWD, path) ? -1 : real(path, mode);
}
int mkdirat(int directory, const char* path, mode_t mode) {
  REAL(mkdirat);
  return strike_at("mkdir", directory, path) ? -1 : real(directory, path, mode);
}

#define OPEN(name)                                                           \
  int name(const char* path, int flags, ...) {                               \
    REAL(name);                                                              \
    mode_t mode = 0;                                                         \
    if (flags & (O_CREAT | __O_TMPFILE)) {                                   \
      va_list rest;                                                          \
      va_start(rest, flags);                                                 \
      mode = va_arg(rest, mode_t);                                           \
      va_end(rest);                                                          \
    }                                                                        \
    if ((flags & O_CREAT) && strike_at("create", AT_FDCWD, path)) return -1; \
    return real(path, flags, mode);                                          \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                          \
  int name(int directory, const char* path, int flags, ...) {                 \
    REAL(name);                                                               \
    mode_t mode = 0;                                                          \
    if (flags & (O_CREAT | __O_TMPFILE)) {                                    \
      va_list rest;                                                           \
      va_start(rest, flags);                                                  \
      mode = va_arg(rest, mode_t);                                            \
      va_end(rest);                                                           \
    }                                                                         \
    if ((flags & O_CREAT) && strike_at("create", directory, path)) return -1; \
    return real(directory, path, flags, mode);                                \
  }
OPENAT(openat)
OPENAT(openat64)
