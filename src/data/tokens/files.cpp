#include "data/tokens/files.hpp"

#include <glob.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "files/file.hpp"

namespace ztrain::data {
namespace {

class Glob {
 public:
  explicit Glob(const std::string& pattern) : status_(::glob(pattern.c_str(), 0, stops, &found_)) {}
  Glob(const Glob&) = delete;
  Glob& operator=(const Glob&) = delete;
  ~Glob() { ::globfree(&found_); }

  bool failed() const { return status_ != 0 && status_ != GLOB_NOMATCH; }
  std::vector<std::string> paths() const {
    if (status_ != 0) return {};
    return {found_.gl_pathv, found_.gl_pathv + found_.gl_pathc};
  }

 private:
  /// A folder that is not there holds no match; one that may not be looked into might.
  static int stops(const char*, int error) { return error != ENOENT && error != ENOTDIR; }

  ::glob_t found_{};
  int status_;
};

std::vector<std::string> matches(const std::string& pattern, const std::string& key) {
  if (file_exists(pattern, key)) {
    require_readable(pattern, key);
    return {pattern};
  }
  REQUIRE(pattern.find("**") == std::string::npos,
          "{}: '{}': '**' is not supported; write one '*' for each level of folders", key, pattern);
  const Glob glob(pattern);
  REQUIRE(!glob.failed(), "{}: '{}' cannot be searched: a folder may not be read by this user", key,
          printable(pattern));
  std::vector<std::string> files;
  for (const auto& path : glob.paths()) {
    std::error_code unknown;
    if (std::filesystem::is_regular_file(path, unknown)) files.push_back(path);
  }
  return files;
}

}  // namespace

std::vector<std::string> expand_patterns(const std::vector<std::string>& patterns, const std::string& key) {
  std::vector<std::string> all;
  for (const auto& pattern : patterns) {
    const auto files = matches(pattern, key);
    const bool glob = pattern.find_first_of("*?[") != std::string::npos;
    REQUIRE(!files.empty(), "{}: '{}' {}", key, pattern, glob ? "matches no file" : "does not exist");
    all.insert(all.end(), files.begin(), files.end());
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  for (const std::string& file : all)
    REQUIRE(is_plain_text(file),
            "{}: '{}' is not a name in UTF-8 without control characters, which checkpoints could hold: "
            "rename the "
            "file",
            key, printable(file));
  return all;
}

}  // namespace ztrain::data
