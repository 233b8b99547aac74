#include "app/output.hpp"

#include <filesystem>

#include "base/error.hpp"
#include "base/plain_text.hpp"

namespace ztrain::app {
namespace {

namespace fs = std::filesystem;

/// Returns whether both exist, and the file is the other one or lies below it.
bool is_within(const std::string& file, const std::string& other) {
  std::error_code missing;
  const fs::path inner = fs::canonical(file, missing);
  const fs::path outer = missing ? fs::path() : fs::canonical(other, missing);
  return !missing && *inner.lexically_relative(outer).begin() != "..";
}

}  // namespace

OutputFile create_output(const std::string& path, const std::string& option,
                         const std::vector<std::string>& read) {
  for (const std::string& one : read)
    REQUIRE(!is_within(path, one),
            "{}: '{}' would be written over, and this command reads '{}': give another file", option,
            printable(path), printable(one));
  return OutputFile::create_or_stream(path, option);
}

}  // namespace ztrain::app
