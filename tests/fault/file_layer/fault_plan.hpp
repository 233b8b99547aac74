#pragma once
// What is to happen at which call of a process, and its journal. See faulty_files.cpp.

#include <dlfcn.h>
#include <sys/types.h>

#include <cstddef>
#include <string>

namespace faulty {

/// The function that stands behind this library's.
template <class Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

/// What a descriptor stands for; what a name means below the folder of a descriptor.
std::string path_of(int file);
std::string path_at(int folder, const char* name);

/// One call. Where its path is not below the folder, nothing happens.
class Call {
 public:
  enum Room { takes_none, takes_room };

  Call(const char* name, std::string path, std::string to = "");

  /// Whether it is to fail, with errno.
  bool fails(Room room = takes_none);
  std::size_t shortened(std::size_t bytes) const;

  // Behind it: what it gave, which they give back. Where it is to, the process ends here.
  long done(long result);
  /// The bytes of a file.
  long changed(int file, long result);
  int synced(int file, int result);
  /// Names in folders.
  int named(int result);
  /// A file, or one that was there and is emptied.
  int opened(int file, int flags, bool was_there);

  /// Before a file is removed: under another name, for who takes that back.
  void keep_removed();

 private:
  void note(const std::string& what) const;
  long end(long result) const;

  const char* name_;
  std::string path_, to_;
  long number_ = 0;  ///< 0: does not count
};

int open_at(int folder, const char* name, int flags, mode_t mode);

}  // namespace faulty
