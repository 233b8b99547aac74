#pragma once
// Folders that a user names as a checkpoint.

#include <string>

namespace ztrain::job {

/// Throws Error that says what the folder is instead, where it is no checkpoint of ztrain.
void require_checkpoint(const std::string& folder);

/// The same for checkpoint.resume, which the message names.
/// The same of a folder that may as well be a Hugging Face model, and is none.
void require_checkpoint_or_model(const std::string& folder);

void require_checkpoint_to_resume(const std::string& folder);

}  // namespace ztrain::job
