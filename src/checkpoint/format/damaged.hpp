#pragma once
// Tells a checkpoint with damaged files from one that a run cannot use.

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace ztrain::checkpoint {

/// A file of a checkpoint is missing, or its bytes are not those that were written. Another checkpoint may be
/// sound.
class Damaged : public Error {
 public:
  using Error::Error;
};

template <class... Args>
[[noreturn]] void fail_damaged(fmt::format_string<Args...> format, Args&&... args) {
  throw Damaged(fmt::format(format, std::forward<Args>(args)...));
}

/// Tells a user what to do about a checkpoint that cannot be read.
inline constexpr const char* advice =
    "take another checkpoint, one that `ztrain verify` finds sound (for a run its path as "
    "checkpoint.resume), or start anew (checkpoint.resume = \"none\")";

/// Returns whether this process cannot read the file, whatever the file is: the user may not, or the process
/// can open no more files.
inline bool lies_with_the_process(const std::filesystem::path& path) {
  if (::access(path.c_str(), R_OK) != 0 && (errno == EACCES || errno == EPERM)) return true;
  const int other = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (other >= 0) ::close(other);
  return other < 0;
}

/// Reads a file. Throws Damaged if the disk does not give it or it is not a file: another checkpoint may be
/// sound.
template <class Read>
auto read_or_damaged(const std::filesystem::path& path, const Read& read) {
  try {
    return read();
  } catch (const Damaged&) {
    throw;
  } catch (const Error& error) {
    if (lies_with_the_process(path)) throw;
    fail_damaged("{}; {}", error.what(), advice);
  }
}

/// Returns the text without the advice, for a caller that follows it already.
inline std::string without_advice(std::string text) {
  const std::string end = std::string("; ") + advice;
  for (std::size_t at = text.find(end); at != text.npos; at = text.find(end)) text.erase(at, end.size());
  return text;
}

}  // namespace ztrain::checkpoint
