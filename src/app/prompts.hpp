#pragma once
// The prompts of `ztrain generate` as token ids: a text byte by byte, ids as they are typed, or a file of
// them.

#include <cstdint>
#include <vector>

#include "app/generate_request.hpp"

namespace ztrain::app {

/// One or more, each of tokens in [0, vocabulary). Throws Error that names the option, and of a file the
/// line.
std::vector<Tokens> prompts_of(const GenerateArguments& arguments, std::int64_t vocabulary);

}  // namespace ztrain::app
