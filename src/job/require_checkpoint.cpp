#include "job/require_checkpoint.hpp"

#include <filesystem>
#include <system_error>

#include "base/error.hpp"
#include "checkpoint/checkpoint.hpp"
#include "config/hf/hf_config.hpp"
#include "files/file.hpp"

namespace ztrain::job {
namespace {

namespace fs = std::filesystem;

std::string what_it_is(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder, error)) {
    const auto beside = checkpoint::newest(folder.has_parent_path() ? folder.parent_path() : ".");
    return "there is no such folder" + (beside ? fmt::format(", but '{}'", beside->string()) : "");
  }
  if (!fs::is_directory(folder, error)) return "it is no folder";
  if (fs::exists(config::hf_config_path(folder.string()), error)) return "it is a Hugging Face model";
  if (fs::exists(folder / "adapter_config.json", error))
    return "it holds adapters alone: give the checkpoint step_N that they were exported from";
  for (const fs::path& inside : {folder, folder / "checkpoints"})
    if (const auto newest = checkpoint::newest(inside))
      return fmt::format("it holds checkpoints: give one of them, such as '{}'", newest->string());
  return "it has no index.h5";
}

}  // namespace

void require_checkpoint(const std::string& folder) {
  if (!file_exists(fs::path(folder) / "index.h5"))
    fail("'{}' is no checkpoint of ztrain (a folder step_N): {}", folder, what_it_is(folder));
}

void require_checkpoint_to_resume(const std::string& folder) {
  try {
    require_checkpoint(folder);
  } catch (const Error& e) {
    fail("checkpoint.resume: {}; \"auto\" takes the newest of this run, \"none\" starts anew", e.what());
  }
}

}  // namespace ztrain::job
