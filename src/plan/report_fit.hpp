#pragma once
// The sections of a plan's report on what fits.

#include <string>

#include "plan/fit.hpp"
#include "plan/search.hpp"

namespace ztrain::plan {

/// What makes a job fit that does not.
std::string fixes_section(const Fixes& fixes);

/// What was found for so many ranks.
std::string search_section(const Search& search, int ranks);

}  // namespace ztrain::plan
