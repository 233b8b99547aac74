#include <omp.h>

#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

void use_one_library_thread() {
  omp_set_num_threads(1);
}

}  // namespace ztrain::kernels
