#pragma once
// The one way in which files are opened that somebody else may have put there, or that a deck names. Opening
// never waits, and what is no regular file (a FIFO, a device, a folder) is refused: a reader of one would
// hang, or never come to an end. What a user types as an option of a command may also be a stream, such as
// /dev/stdout or <(...) of a shell.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/error.hpp"
#include "files/posix_file.hpp"

namespace ztrain {

/// Opens with the flags of open(2); the descriptor is the caller's. Throws Error "KEY: cannot read 'PATH':
/// ..." (or "write") with the reason, and what to do where that is known. key: the deck's or the command
/// line's, for messages; "": none.
int open_file(const std::string& path, int flags, std::string_view key = {});

/// The same for a file or a stream that a user typed; of a FIFO it waits for the other end.
int open_file_or_stream(const std::string& path, int flags, std::string_view key = {});

/// pread(2) and pwrite(2), begun again where a signal came first, and asked for no more bytes than Linux
/// moves in one call.
std::int64_t read_some(int descriptor, void* to, std::int64_t bytes, std::int64_t offset);
std::int64_t write_some(int descriptor, const void* from, std::int64_t bytes, std::int64_t offset);

/// All of the bytes to where the descriptor stands, begun again where a signal came first. False, with errno,
/// where that fails.
bool write_all(int descriptor, std::string_view bytes);

/// What the system says of an error, such as errno after write(2), and what to do: about the limit of this
/// process where that is why, else `otherwise`.
std::string text_of_errno(int error, std::string_view otherwise = {});

/// The same of a write that it has refused, where it depends on the reason what to do. comes_to: bytes of the
/// file with that write; 0: unknown. elsewhere: what else the user can do: "set KEY to another file system".
std::string text_of_failed_write(int error, std::int64_t comes_to, std::string_view elsewhere);

/// Of a file that comes to so many bytes, where this process may write so many: which limit would do.
std::string text_of_size_limit(std::int64_t comes_to, std::int64_t limit);

/// A write beyond the limit on file sizes then fails as others do: the signal that comes with it would end
/// the process without a word.
void let_large_files_fail();

/// What use() gives, in a folder that is made where it is not there. Where somebody is still removing it, it
/// can be gone before use() has come to it: then once more.
template <class Use>
auto in_folder(const std::filesystem::path& folder, const Use& use) {
  constexpr int most_tries = 100;
  for (int tries = 1;; ++tries) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    try {
      return use();
    } catch (const Error&) {
      if (tries == most_tries || std::filesystem::exists(folder, error)) throw;
    }
  }
}

/// A sentence on an address such as s3://bucket/name, which the system would take for a name in a folder
/// "s3:"; "" for other paths.
std::string why_not_local(const std::string& path);

/// False where nothing has that name. Throws Error where that cannot be known: std::filesystem::exists would
/// say false, and so "there is no such file" of one that may not be looked at.
bool file_exists(const std::string& path, std::string_view key = {});

/// The first of STEM + ENDING, STEM-2 + ENDING, STEM-3 + ENDING, ... that nothing has as its name.
std::string unused_name(const std::string& stem, const std::string& ending = {});

/// Throws Error as open_file does for a file that cannot be read. For libraries that open by name.
void require_readable(const std::string& path, std::string_view key = {});

/// All of a file. Throws Error where it cannot be read, or has more than `most` bytes.
std::string read_file(const std::string& path, std::int64_t most, std::string_view key = {});

/// The same for a file or a stream that a user typed.
std::string read_file_or_stream(const std::string& path, std::int64_t most, std::string_view key = {});

/// A file that is written from its beginning, or from its end on. Each failure, also one that shows when the
/// file is closed, is an Error that names key and path.
class OutputFile {
 public:
  static OutputFile create(const std::string& path, std::string_view key = {});
  static OutputFile create_or_stream(const std::string& path, std::string_view key = {});
  static OutputFile append(const std::string& path, std::string_view key = {});

  void write(std::string_view bytes);
  void sync();
  /// To be called by who wants to know that all was written: some file systems say so only now.
  void close();

 private:
  OutputFile(const std::string& path, int descriptor, std::string_view key)
      : path_(path), key_(key), descriptor_(descriptor) {}
  [[noreturn]] void cannot_write() const;

  std::string path_, key_;
  Descriptor descriptor_;
};

/// Opens and empties the file or stream that an option of a command names. Throws Error if the command reads
/// this file, or a folder that contains it: writing would destroy the input before it is read.
OutputFile create_output(const std::string& path, const std::string& option,
                         const std::vector<std::string>& read);

}  // namespace ztrain
