#include "kernels/backend.hpp"

#include <omp.h>

#include "base/error.hpp"
#include "kernels/exec_kokkos.hpp"

namespace ztrain::kernels {

void initialize_backend() {
  if (Kokkos::is_initialized()) return;
  // Ranks, not threads, fill the cores: a library that starts one thread per core in every rank only
  // oversubscribes.
  omp_set_num_threads(1);
  Kokkos::initialize(Kokkos::InitArguments(1));
}

void finalize_backend() {
  if (Kokkos::is_initialized()) Kokkos::finalize();
}

void ExecDeleter::operator()(Exec* exec) const {
  std::default_delete<Exec>{}(exec);
}

ExecHandle make_exec() {
  REQUIRE(Kokkos::is_initialized(), "the kernel backend is not initialised: call initialize_backend() first");
  return ExecHandle(std::make_unique<Exec>().release());
}

}  // namespace ztrain::kernels
