#include "kernels/gemm/half_unit_cpu.hpp"

#ifdef ZTRAIN_HALF_TILES

#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/gemm/gemm_library.hpp"

namespace ztrain::kernels {
namespace {

/// Asks Linux for the state of AMX's tiles, which a process has to (since 5.16).
bool system_gives_tiles() {
#if defined(__AMX_BF16__)
  constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool permitted = ::syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
  return permitted;
#else
  return false;
#endif
}

}  // namespace

std::optional<half::Unit> half_unit(Exec& exec) {
  // A launch allocates nothing, so it does not make the library.
  const auto& library = gemm_library_slot(exec);
  const auto chosen = library ? library->bf16.value_or(Bf16Products::widened) : Bf16Products::widened;
  if (chosen == Bf16Products::widened || !multiplies_bf16()) return std::nullopt;
  if (!multiplies_tiles()) return half::Unit::vectors;
  return system_gives_tiles() ? std::optional(half::Unit::tiles) : std::nullopt;
}

bool may_use_tiles() {
  return multiplies_tiles() && system_gives_tiles();
}

}  // namespace ztrain::kernels

#endif
