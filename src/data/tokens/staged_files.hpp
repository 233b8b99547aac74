#pragma once
// Copies of token files on a node's own drive (data.stage), which are read in the place of the files.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "files/posix_file.hpp"

namespace ztrain::data {

/// Returns the path of the file's copy in the folder. Files with the same name in different folders have
/// different copies.
std::string copy_of(const std::string& file, const std::string& folder);

/// Returns the path of the file's copy if the copy is whole: it has the file's size and time of change.
/// Otherwise, and if `folder` is "", returns the path of the file.
std::string copy_or_itself(const std::string& file, const std::string& folder);

/// Copies files to a folder, in turns. One process of a node does this. A copy has a name of its own until it
/// was read back with the hash of the bytes that were written, so two jobs on a node may copy at once.
class FileCopies {
 public:
  /// Takes the files, and the indices of Megatron's, that have no whole copy yet. Makes the folder. Throws
  /// Error naming data.stage if the folder cannot be made, or if its file system has too little room.
  FileCopies(const std::vector<std::string>& files, std::string folder);
  FileCopies(FileCopies&&) = default;
  ~FileCopies();

  /// Copies for about `seconds`. Returns whether all files are copied. Throws Error naming data.stage and the
  /// file if a copy cannot be written, or if the file has changed meanwhile.
  bool work(double seconds);
  std::int64_t done() const { return done_; }    ///< bytes copied so far
  std::int64_t bytes() const { return bytes_; }  ///< bytes to copy
  std::int64_t found() const { return found_; }  ///< bytes of the copies that were there before

 private:
  struct UnderWay {
    PosixFile from, to;
    std::string unfinished;
    std::int64_t at = 0;
    std::uint64_t hash = 0;
  };
  void begin_next();
  void copy_some();
  void finish_one();

  std::vector<std::string> files_;  ///< files without a copy; the last is next
  std::string folder_;
  std::int64_t bytes_ = 0, done_ = 0, found_ = 0;
  std::vector<char> piece_;
  std::optional<UnderWay> now_;
};

}  // namespace ztrain::data
