#include "kernel_interface/target.hpp"

namespace ztrain {

Target build_target() {
  return Target::cuda;
}

}  // namespace ztrain
