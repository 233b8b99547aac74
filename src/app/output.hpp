#pragma once
// The files that a command writes because an option names them.

#include <string>
#include <vector>

#include "files/file.hpp"

namespace ztrain::app {

/// The file or stream, emptied. Throws Error where it is one of the files that the command reads, or lies in
/// a folder that it reads: writing would destroy these before they are read.
OutputFile create_output(const std::string& path, const std::string& option,
                         const std::vector<std::string>& read);

}  // namespace ztrain::app
