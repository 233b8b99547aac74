#pragma once
// Glob patterns into files.

#include <string>
#include <vector>

namespace ztrain::data {

/// The files that the patterns name, sorted by path, each once. A pattern is a path, or a glob(7) pattern.
/// Throws Error naming key and pattern for one that matches no file, or that holds "**".
std::vector<std::string> expand_patterns(const std::vector<std::string>& patterns, const std::string& key);

}  // namespace ztrain::data
