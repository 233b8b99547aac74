#include <glob.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <memory>

#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "data/tokens/token_source.hpp"
#include "files/file.hpp"

namespace ztrain::data {
namespace {

/// Returns whether a search must stop. A missing folder holds no match; one that may not be read might.
int stops(const char*, int error) {
  return error != ENOENT && error != ENOTDIR;
}

/// Returns the path of the tokens where a path is that of an index beside them.
std::string without_index(const std::string& path) {
  const std::filesystem::path tokens = std::filesystem::path(path).replace_extension(".bin");
  return path.ends_with(".idx") && file_exists(tokens) ? tokens.string() : path;
}

std::vector<std::string> matches(const std::string& pattern, const std::string& key) {
  const bool exists = file_exists(pattern, key);
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(pattern, unknown) && file_exists(pattern + ".bin") &&
      file_exists(pattern + ".idx"))
    return {pattern + ".bin"};
  if (exists) {
    require_readable(pattern, key);
    return {pattern};
  }
  REQUIRE(pattern.find("**") == std::string::npos,
          "{}: '{}': '**' is not supported; write one '*' for each level of folders", key, pattern);
  ::glob_t found{};
  const int status = ::glob(pattern.c_str(), 0, stops, &found);
  const std::unique_ptr<::glob_t, void (*)(::glob_t*)> owner(&found, ::globfree);
  REQUIRE(status == 0 || status == GLOB_NOMATCH,
          "{}: '{}' cannot be searched: a folder may not be read by this user", key, printable(pattern));
  std::vector<std::string> files;
  for (std::size_t i = 0; status == 0 && i < found.gl_pathc; ++i)
    if (std::filesystem::is_regular_file(found.gl_pathv[i], unknown)) files.emplace_back(found.gl_pathv[i]);
  return files;
}

}  // namespace

std::vector<std::string> expand_patterns(const std::vector<std::string>& patterns, const std::string& key) {
  std::vector<std::string> all;
  for (const auto& pattern : patterns) {
    const auto files = matches(pattern, key);
    const bool glob = pattern.find_first_of("*?[") != std::string::npos;
    REQUIRE(!files.empty(), "{}: '{}' {}", key, pattern, glob ? "matches no file" : "does not exist");
    std::ranges::transform(files, std::back_inserter(all), without_index);
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  for (const std::string& file : all)
    REQUIRE(is_plain_text(file),
            "{}: '{}' is not a name in UTF-8 without control characters, which checkpoints could hold: "
            "rename the file",
            key, printable(file));
  return all;
}

}  // namespace ztrain::data
