#include "kernels/launch/library_threads.hpp"

namespace ztrain::kernels {

void use_one_library_thread() {}

}  // namespace ztrain::kernels
