#include "kernels/bytes.hpp"

#include <cstring>

#include "kernels/rows.hpp"

namespace ztrain::kernels {
namespace {

constexpr std::int64_t block_bytes = 1 << 16;

void fill_bytes(Exec& exec, void* dst, int value, std::int64_t bytes) {
  auto* const out = static_cast<char*>(dst);
  for_blocks<block_bytes>(
      exec, bytes, KOKKOS_LAMBDA(const std::int64_t begin, const std::int64_t n) {
        std::memset(out + begin, value, static_cast<std::size_t>(n));
      });
}

}  // namespace

void copy(Exec& exec, const void* src, void* dst, std::int64_t bytes) {
  const auto* const in = static_cast<const char*>(src);
  auto* const out = static_cast<char*>(dst);
  for_blocks<block_bytes>(
      exec, bytes, KOKKOS_LAMBDA(const std::int64_t begin, const std::int64_t n) {
        std::memcpy(out + begin, in + begin, static_cast<std::size_t>(n));
      });
}

void zero(Exec& exec, void* dst, std::int64_t bytes) {
  fill_bytes(exec, dst, 0, bytes);
}

void fill_poison(Exec& exec, void* dst, std::int64_t bytes) {
  fill_bytes(exec, dst, 0xFF, bytes);
}

}  // namespace ztrain::kernels
