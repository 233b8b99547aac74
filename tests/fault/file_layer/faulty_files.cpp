// A library that is loaded before others (LD_PRELOAD) and stands between a process and its files: all calls
// on what is below one folder are counted, and at one of them something happens. What was done and not synced
// is written to a journal, from which lost_data.py makes what a disk has after a loss of power. The method is
// that of LevelDB's fault injection.
//
// Variables of the environment:
//
// FAULTY_FOLDER: calls on this folder and what is below it count, and those on memory that files are made in.
//
// FAULTY_RANK, FAULTY_AT: rank and number of the call, from 1; 0: nothing happens.
//
// FAULTY_KIND: eio: it fails; full: it fails for want of room, and so do those behind it that take any;
// short: a write moves half of its bytes; kill: the process is killed behind it.
//
// FAULTY_JOURNAL: a line for each call: time, rank, number, call, path, what else.
//
// FAULTY_SHADOW: folder of what files had when they were synced, and of what was removed.

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <string>

#include "tests/fault/file_layer/fault_plan.hpp"

using faulty::Call;
using faulty::path_at;
using faulty::path_of;
using faulty::real;

extern "C" {

int open(const char* name, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return faulty::open_at(AT_FDCWD, name, flags, mode);
}
int open64(const char* name, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return faulty::open_at(AT_FDCWD, name, flags, mode);
}
int openat(int folder, const char* name, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return faulty::open_at(folder, name, flags, mode);
}
int openat64(int folder, const char* name, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return faulty::open_at(folder, name, flags, mode);
}

/// How the file is open says whether its bytes go past the page cache.
bool is_direct(int file) {
  return (real<int (*)(int, int, ...)>("fcntl")(file, F_GETFL) & O_DIRECT) != 0;
}
ssize_t pwrite(int file, const void* from, size_t bytes, off_t offset) {
  Call call(is_direct(file) ? "pwrite_direct" : "pwrite", path_of(file));
  if (call.fails(Call::takes_room)) return -1;
  const ssize_t n = real<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite64")(
      file, from, call.shortened(bytes), offset);
  return call.changed(file, n);
}
ssize_t pwrite64(int file, const void* from, size_t bytes, off64_t offset) {
  return pwrite(file, from, bytes, offset);
}
ssize_t write(int file, const void* from, size_t bytes) {
  Call call("write", path_of(file));
  if (call.fails(Call::takes_room)) return -1;
  return call.changed(
      file, real<ssize_t (*)(int, const void*, size_t)>("write")(file, from, call.shortened(bytes)));
}
int ftruncate(int file, off_t bytes) {
  Call call("ftruncate", path_of(file));
  if (call.fails(Call::takes_room)) return -1;
  return static_cast<int>(call.changed(file, real<int (*)(int, off_t)>("ftruncate64")(file, bytes)));
}
int ftruncate64(int file, off64_t bytes) {
  return ftruncate(file, bytes);
}
int fallocate(int file, int mode, off_t offset, off_t bytes) {
  Call call("fallocate", path_of(file));
  if (call.fails(Call::takes_room)) return -1;
  return static_cast<int>(
      call.changed(file, real<int (*)(int, int, off_t, off_t)>("fallocate64")(file, mode, offset, bytes)));
}
int fallocate64(int file, int mode, off64_t offset, off64_t bytes) {
  return fallocate(file, mode, offset, bytes);
}
/// A hint, which may fail like others.
int sync_file_range(int file, off64_t offset, off64_t bytes, unsigned flags) {
  Call call("sync_file_range", path_of(file));
  if (call.fails()) return -1;
  return static_cast<int>(call.done(
      real<int (*)(int, off64_t, off64_t, unsigned)>("sync_file_range")(file, offset, bytes, flags)));
}
int posix_fadvise(int file, off_t offset, off_t bytes, int advice) {
  Call call("fadvise", path_of(file));
  if (call.fails()) return EIO;
  return static_cast<int>(
      call.done(real<int (*)(int, off_t, off_t, int)>("posix_fadvise64")(file, offset, bytes, advice)));
}
int posix_fadvise64(int file, off64_t offset, off64_t bytes, int advice) {
  return posix_fadvise(file, offset, bytes, advice);
}
/// What is counted is what had that descriptor.
int dup2(int file, int as) {
  Call call("dup2", path_of(as));
  if (call.fails()) return -1;
  return static_cast<int>(call.done(real<int (*)(int, int)>("dup2")(file, as)));
}
/// What sets flags counts; the rest asks.
int fcntl(int file, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  const auto next = real<int (*)(int, int, void*)>("fcntl64");
  if (command != F_SETFL) return next(file, command, argument);
  Call call("fcntl", path_of(file));
  return call.fails() ? -1 : static_cast<int>(call.done(next(file, command, argument)));
}
int fcntl64(int file, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  return fcntl(file, command, argument);
}
int statx(int folder, const char* name, int flags, unsigned mask, struct statx* status) {
  Call call("statx", name[0] == '\0' ? path_of(folder) : path_at(folder, name));
  if (call.fails()) return -1;
  return static_cast<int>(call.done(real<int (*)(int, const char*, int, unsigned, struct statx*)>("statx")(
      folder, name, flags, mask, status)));
}

ssize_t pread(int file, void* to, size_t bytes, off_t offset) {
  Call call(is_direct(file) ? "pread_direct" : "pread", path_of(file));
  if (call.fails()) return -1;
  return call.done(
      real<ssize_t (*)(int, void*, size_t, off_t)>("pread64")(file, to, call.shortened(bytes), offset));
}
ssize_t pread64(int file, void* to, size_t bytes, off64_t offset) {
  return pread(file, to, bytes, offset);
}
ssize_t read(int file, void* to, size_t bytes) {
  Call call("read", path_of(file));
  if (call.fails()) return -1;
  return call.done(real<ssize_t (*)(int, void*, size_t)>("read")(file, to, bytes));
}
off_t lseek(int file, off_t offset, int from) {
  Call call("lseek", path_of(file));
  if (call.fails()) return -1;
  return call.done(real<off_t (*)(int, off_t, int)>("lseek64")(file, offset, from));
}
off64_t lseek64(int file, off64_t offset, int from) {
  return lseek(file, offset, from);
}
int fsync(int file) {
  Call call("fsync", path_of(file));
  if (call.fails(Call::takes_room)) return -1;
  return call.synced(file, real<int (*)(int)>("fsync")(file));
}
int fdatasync(int file) {
  Call call("fdatasync", path_of(file));
  if (call.fails(Call::takes_room)) return -1;
  return call.synced(file, real<int (*)(int)>("fdatasync")(file));
}
/// What it was told of is closed all the same. That of memory does not fail.
int close(int file) {
  const std::string path = path_of(file);
  Call call("close", path);
  const int status = real<int (*)(int)>("close")(file);
  const bool may_fail = !path.starts_with("/memfd:");
  return may_fail && call.fails() ? -1 : static_cast<int>(call.done(status));
}

int mkdir(const char* name, mode_t mode) {
  Call call("mkdir", path_at(AT_FDCWD, name));
  if (call.fails(Call::takes_room)) return -1;
  return call.named(real<int (*)(const char*, mode_t)>("mkdir")(name, mode));
}
int rename(const char* from, const char* to) {
  Call call("rename", path_at(AT_FDCWD, from), path_at(AT_FDCWD, to));
  if (call.fails(Call::takes_room)) return -1;
  return call.named(real<int (*)(const char*, const char*)>("rename")(from, to));
}
int unlinkat(int folder, const char* name, int flags) {
  Call call((flags & AT_REMOVEDIR) != 0 ? "rmdir" : "unlink", path_at(folder, name));
  if (call.fails()) return -1;
  call.keep_removed();
  return call.named(real<int (*)(int, const char*, int)>("unlinkat")(folder, name, flags));
}
int unlink(const char* name) {
  return unlinkat(AT_FDCWD, name, 0);
}
int rmdir(const char* name) {
  return unlinkat(AT_FDCWD, name, AT_REMOVEDIR);
}
int remove(const char* name) {
  struct stat status {};
  const bool folder = fstatat(AT_FDCWD, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode);
  return unlinkat(AT_FDCWD, name, folder ? AT_REMOVEDIR : 0);
}

int fstat(int file, struct stat* status) {
  Call call("fstat", path_of(file));
  return call.fails() ? -1
                      : static_cast<int>(call.done(real<int (*)(int, struct stat*)>("fstat")(file, status)));
}
int fstat64(int file, struct stat64* status) {
  return fstat(file, reinterpret_cast<struct stat*>(status));
}
int stat(const char* name, struct stat* status) {
  Call call("stat", path_at(AT_FDCWD, name));
  if (call.fails()) return -1;
  return static_cast<int>(call.done(real<int (*)(const char*, struct stat*)>("stat")(name, status)));
}
int lstat(const char* name, struct stat* status) {
  Call call("lstat", path_at(AT_FDCWD, name));
  if (call.fails()) return -1;
  return static_cast<int>(call.done(real<int (*)(const char*, struct stat*)>("lstat")(name, status)));
}
int statvfs(const char* name, struct statvfs* status) {
  Call call("statvfs", path_at(AT_FDCWD, name));
  if (call.fails()) return -1;
  return static_cast<int>(call.done(real<int (*)(const char*, struct statvfs*)>("statvfs")(name, status)));
}
int statfs(const char* name, struct statfs* status) {
  Call call("statfs", path_at(AT_FDCWD, name));
  if (call.fails()) return -1;
  return static_cast<int>(call.done(real<int (*)(const char*, struct statfs*)>("statfs")(name, status)));
}
int flock(int file, int how) {
  Call call("flock", path_of(file));
  return call.fails() ? -1 : static_cast<int>(call.done(real<int (*)(int, int)>("flock")(file, how)));
}
DIR* fdopendir(int folder) {
  Call call("fdopendir", path_of(folder));
  if (call.fails()) return nullptr;
  DIR* const opened = real<DIR* (*)(int)>("fdopendir")(folder);
  call.done(0);
  return opened;
}
struct dirent* readdir(DIR* folder) {
  Call call("readdir", path_of(dirfd(folder)));
  if (call.fails()) return nullptr;
  struct dirent* const entry = real<struct dirent* (*)(DIR*)>("readdir")(folder);
  call.done(0);
  return entry;
}
int closedir(DIR* folder) {
  Call call("closedir", path_of(dirfd(folder)));
  const int status = real<int (*)(DIR*)>("closedir")(folder);
  return call.fails() ? -1 : static_cast<int>(call.done(status));
}
int memfd_create(const char* name, unsigned flags) {
  Call call("memfd_create", "/memfd:" + std::string(name));
  if (call.fails(Call::takes_room)) return -1;
  return static_cast<int>(call.done(real<int (*)(const char*, unsigned)>("memfd_create")(name, flags)));
}
}
