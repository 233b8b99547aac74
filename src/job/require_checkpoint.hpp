#pragma once
// Folders that a user names as a checkpoint.

#include <string>

namespace ztrain::job {

/// Throws Error that says what the folder is instead, where it is no checkpoint of ztrain.
void require_checkpoint(const std::string& folder);

/// Throws Error that says what the folder is instead, unless it is a checkpoint of ztrain or has the
/// config.json of a Hugging Face model.
void require_checkpoint_or_model(const std::string& folder);

/// The same as require_checkpoint, for checkpoint.resume, which the message names.
void require_checkpoint_to_resume(const std::string& folder);

/// Returns the message on --base, given for a folder that holds all of its weights.
std::string unneeded_base(const std::string& folder);

}  // namespace ztrain::job
