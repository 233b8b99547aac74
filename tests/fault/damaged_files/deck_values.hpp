#pragma once
// Values for a field of the deck, as TOML.

#include <string>

#include "config/fields/fields.hpp"
#include "random.hpp"

namespace ztrain::damaged_files {

/// One that could be meant: a choice, or a number near the field's borders or near those of its type.
std::string plausible_value(const config::Field& field, Random& random);

/// One that could not, of any type.
std::string absurd_value(const config::Field& field, Random& random);

}  // namespace ztrain::damaged_files
