#pragma once
// The machine files of presets, src/plan/machines/*.toml, and the published speeds, which the build compiles
// in.

#include <span>
#include <string_view>

namespace ztrain::plan {

struct PresetFile {
  std::string_view name, text;
};
extern const std::span<const PresetFile> preset_files;

/// src/plan/published.toml.
extern const std::string_view published_rows;

}  // namespace ztrain::plan
