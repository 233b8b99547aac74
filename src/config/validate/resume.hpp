#pragma once
// Says which keys may differ between a checkpoint and the run that resumes from it.

#include <string>
#include <vector>

#include "config/deck.hpp"

namespace ztrain::config {

/// Returns one message for each key that changed and may not change on resume. saved_resolved_toml is the
/// resolved deck of the checkpoint; keys that it lacks, and keys that no longer exist, are passed over.
/// Patterns of data files are compared without their folders: data may move, and their content has its own
/// identity. Throws Error, with `where`, if the saved text is not a deck.
std::vector<std::string> changes_forbidden_on_resume(const Deck& now, const std::string& saved_resolved_toml,
                                                     const std::string& where = "the checkpoint's deck");

}  // namespace ztrain::config
