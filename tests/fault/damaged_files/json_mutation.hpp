#pragma once
// Damage to JSON that knows what JSON is: another type, another number, a member that is gone or there twice.

#include <string>

#include "random.hpp"

namespace ztrain::damaged_files {

/// Changes one place of the text, which is JSON or nearly so, and says what.
std::string damage_json(std::string& text, Random& random);

}  // namespace ztrain::damaged_files
