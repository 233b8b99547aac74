#pragma once
// Opens the files that a command writes because an option names them.

#include <string>
#include <vector>

#include "files/file.hpp"

namespace ztrain::app {

/// Opens and empties the file or stream. Throws Error if the command reads this file, or a folder that
/// contains it: writing would destroy the input before it is read.
OutputFile create_output(const std::string& path, const std::string& option,
                         const std::vector<std::string>& read);

}  // namespace ztrain::app
