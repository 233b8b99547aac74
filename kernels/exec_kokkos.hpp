#pragma once
// Included by kernel sources only.

#include <Kokkos_Core.hpp>

#include "kernels/exec.hpp"

namespace ztrain::kernels {

struct Exec {
  Kokkos::DefaultExecutionSpace space;
  std::shared_ptr<AttentionPlans> attention = nullptr;
};

}  // namespace ztrain::kernels
