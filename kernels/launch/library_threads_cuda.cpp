#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

void use_one_library_thread() {}

}  // namespace ztrain::kernels
