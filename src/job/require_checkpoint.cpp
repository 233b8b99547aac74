#include "job/require_checkpoint.hpp"

#include <filesystem>
#include <system_error>

#include "base/error.hpp"
#include "checkpoint/checkpoint.hpp"
#include "config/hf/hf_config.hpp"
#include "config/hf/peft_config.hpp"
#include "config/hf/starting_point.hpp"
#include "files/file.hpp"

namespace ztrain::job {
namespace {

namespace fs = std::filesystem;

/// Checkpoints beside a folder that is not there, or in one that is; "" for none.
std::string checkpoints_near(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder, error)) {
    const auto beside = checkpoint::newest(folder.has_parent_path() ? folder.parent_path() : ".");
    return beside ? fmt::format("there is no such folder, but '{}'", beside->string()) : "";
  }
  for (const fs::path& inside : {folder, folder / "checkpoints"})
    if (const auto newest = checkpoint::newest(inside)) {
      const auto best = checkpoint::best(inside, {});
      return fmt::format("it holds checkpoints: give one of them, such as '{}'{}", newest->string(),
                         !best || *best == *newest
                             ? ""
                             : fmt::format(", or '{}' with the lowest validation loss", best->string()));
    }
  return "";
}

std::string what_it_is(const fs::path& folder) {
  std::error_code error;
  const std::string other = checkpoints_near(folder);
  if (!fs::exists(folder, error)) return other.empty() ? "there is no such folder" : other;
  if (!fs::is_directory(folder, error)) return "it is no folder";
  if (fs::exists(config::hf_config_path(folder.string()), error)) return "it is a Hugging Face model";
  if (fs::exists(folder / "adapter_config.json", error))
    return "it holds adapters of PEFT's: give the checkpoint step_N that they were exported from";
  return other.empty() ? "it has no index.h5" : other;
}

}  // namespace

void require_checkpoint(const std::string& folder) {
  if (!file_exists(fs::path(folder) / "index.h5"))
    fail("'{}' is no checkpoint of ztrain (a folder step_N): {}", folder, what_it_is(folder));
}

void require_checkpoint_or_model(const std::string& folder) {
  if (file_exists(fs::path(folder) / "index.h5") || file_exists(config::hf_config_path(folder)) ||
      config::is_peft_folder(folder))
    return;
  const std::string other = checkpoints_near(folder);
  fail(
      "'{}' is neither a checkpoint of ztrain (a folder step_N) nor a Hugging Face model (config.json and "
      "safetensors files): {}",
      folder, other.empty() ? config::instead_of_model(fs::absolute(folder).lexically_normal()) : other);
}

void require_checkpoint_to_resume(const std::string& folder) {
  try {
    require_checkpoint(folder);
  } catch (const Error& e) {
    fail("checkpoint.resume: {}; \"auto\" takes the newest of this run, \"none\" starts anew", e.what());
  }
}

std::string unneeded_base(const std::string& folder) {
  return fmt::format("--base: '{}' holds all of its weights, and none is read from elsewhere: leave it out",
                     folder);
}

}  // namespace ztrain::job
