#pragma once
// What a Program is compiled for. Kernels, their workspaces and their libraries differ.

#include <string_view>

namespace ztrain {

enum class Target { cpu, cuda };

constexpr std::string_view name_of(Target target) {
  return target == Target::cuda ? "cuda" : "cpu";
}

/// That of the kernels in this build.
Target build_target();

}  // namespace ztrain
