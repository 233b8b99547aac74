#pragma once
// Included by kernel sources only.

#include <Kokkos_Core.hpp>

#include "kernels/exec.hpp"
#include "kernels/gemm_library.hpp"

namespace ztrain::kernels {

struct Exec {
  Kokkos::DefaultExecutionSpace space;
  GemmLibrary gemm{};
};

}  // namespace ztrain::kernels
