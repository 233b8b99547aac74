#pragma once
// Included by kernel sources only, which make their instances by it.

#include <Kokkos_Core.hpp>

#include "kernels/launch/exec.hpp"
#include "kernels/launch/instances.hpp"

namespace ztrain::kernels {

struct Exec {
  Kokkos::DefaultExecutionSpace space;
  std::shared_ptr<GemmLibrary> gemm = nullptr;
  std::shared_ptr<AttentionPlans> attention = nullptr;
};

}  // namespace ztrain::kernels
