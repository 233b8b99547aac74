#pragma once
// Which keys may differ between a checkpoint and the run that resumes from it.

#include <string>
#include <vector>

#include "config/deck.hpp"

namespace ztrain::config {

/// One message for each key that may not change on resume and did; empty: the run may go on.
/// saved_resolved_toml is the resolved deck of the checkpoint; keys it lacks, and keys unknown by now, are
/// passed over. Patterns of data files are compared without their folders: data may move, and their content
/// has an identity of its own. Throws Error, with `where`, when the saved text is not a deck.
std::vector<std::string> changes_forbidden_on_resume(const Deck& now, const std::string& saved_resolved_toml,
                                                     const std::string& where = "the checkpoint's deck");

}  // namespace ztrain::config
