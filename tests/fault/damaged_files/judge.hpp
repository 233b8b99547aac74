#pragma once
// What may reach a user, and what may not.

#include <filesystem>
#include <string>

#include "command.hpp"

namespace ztrain::damaged_files {

/// What is wrong with how a command ended, apart from what it should have noticed; "" where nothing is. A
/// refusal is short, of printable characters, free of the words of libraries, and names a key or a file of
/// the folder; what is accepted has no number that is none.
std::string wrong_in(const Outcome& outcome, const std::filesystem::path& folder);

/// The same of a text that stood on stderr when a process ended itself.
std::string wrong_in_refusal(const std::string& text, const std::filesystem::path& folder,
                             const Words& words);

}  // namespace ztrain::damaged_files
