
#include <sys/resource.h>

#include <filesystem>
#include <new>
#include <string_view>
#include <system_error>

#include "base/error.hpp"
#include "base/plain_text.hpp"

namespace ztrain {
namespace {

constexpr std::size_t longest_reason = 500;  ///< bytes; libraries quote what they read at any length

/// Removes the library's class name from "[json.exception.parse_error.101] parse error at line 1: ...".
std::string without_class(std::string_view what) {
  const std::size_t end = what.starts_with("[json.exception.") ? what.find("] ") : std::string_view::npos;
  if (end != std::string_view::npos) what.remove_prefix(end + 2);
  constexpr std::string_view parse_error = "parse error ";
  if (what.starts_with(parse_error)) what.remove_prefix(parse_error.size());
  return printable(what, longest_reason);
}

}  // namespace

std::string limit_on_memory() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return fmt::format("; this process may have {} bytes of address space: raise that limit (ulimit -v)",
                     limit.rlim_cur);
}

std::string reason_of(const std::exception& error) {
  if (dynamic_cast<const Error*>(&error) != nullptr) return error.what();
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      dynamic_cast<const std::length_error*>(&error) != nullptr)
    return "it takes more memory than there is" + limit_on_memory();
  if (const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&error))
    return fmt::format("'{}': {}", printable(file->path1().native()), file->code().message());
  if (const auto* system =
          dynamic_cast<const std::system_error*>(&error))  // of a thread, whose stack takes memory
    return system->code().message() + limit_on_memory();
  return without_class(error.what());
}

}  // namespace ztrain
