#include "kernels/elementwise/copies.hpp"

#include <cstring>

#include "base/error.hpp"
#include "kernels/launch/pieces.hpp"

namespace ztrain::kernels {

namespace {

constexpr std::int64_t block_bytes = on_gpu ? 16 : 1 << 16;

struct CopyBlock {
  const char* in;
  char* out;
  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t begin, std::int64_t n) const {
    Piece<16>{begin, n}.copy(in, out);
  }
};

/// `line` bytes of every `every`, a power of two; equal: all.
struct FillBlock {
  char* out;
  unsigned char value;
  int line, every;
  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t begin, std::int64_t n) const {
    if constexpr (on_gpu) {
      if ((begin & (every - 1)) >= line) return;
      Pack<char, 16> bytes;
      for (int i = 0; i < 16; ++i) bytes.at[i] = static_cast<char>(value);
      bytes.store(out + begin, n);
    } else if (line == every) {
      std::memset(out + begin, value, static_cast<std::size_t>(n));
    } else {
      static_assert(on_gpu || block_bytes % poison_page == 0, "a block begins with a line");
      for (std::int64_t i = 0; i < n; i += every)
        std::memset(out + begin + i, value, static_cast<std::size_t>(n - i < line ? n - i : line));
    }
  }
};

/// A block, the first of which begins `shift` bytes before the array.
template <class Block>
struct Shifted {
  Block block;
  std::int64_t shift;
  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t begin, std::int64_t n) const {
    if (begin < shift)
      block(std::int64_t{0}, begin + n - shift);
    else
      block(begin - shift, n);
  }
};

/// block(begin, n) for pieces that together are [0, bytes); on a GPU cut where dst has a multiple of 16, so
/// that only the first and the last piece are moved byte by byte.
template <class Block>
void for_bytes(Exec& exec, const void* dst, std::int64_t bytes, const Block& block) {
  if (bytes <= 0) return;
  const std::int64_t shift =
      on_gpu ? static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(dst) % 16) : 0;
  for_blocks<block_bytes>(exec, bytes + shift, Shifted<Block>{block, shift});
}

void fill_bytes(Exec& exec, void* dst, unsigned char value, std::int64_t bytes) {
  for_bytes(exec, dst, bytes, FillBlock{static_cast<char*>(dst), value, 1, 1});
}

}  // namespace

void copy(Exec& exec, const void* src, void* dst, std::int64_t bytes) {
  for_bytes(exec, dst, bytes, CopyBlock{static_cast<const char*>(src), static_cast<char*>(dst)});
}

void zero(Exec& exec, void* dst, std::int64_t bytes) {
  fill_bytes(exec, dst, 0, bytes);
}

void fill_poison(Exec& exec, void* dst, std::int64_t bytes, std::int64_t every) {
  ASSERT(every >= poison_line && every <= poison_page && (every & (every - 1)) == 0, "poison every {} bytes",
         every);
  for_bytes(exec, dst, bytes,
            FillBlock{static_cast<char*>(dst), 0xFF, static_cast<int>(poison_line), static_cast<int>(every)});
}

template <class T>
void swap_blocks(Exec& exec, Vector<const T> x, std::int64_t outer, std::int64_t inner, Vector<T> y) {
  const std::int64_t blocks = outer * inner;
  REQUIRE(outer > 0 && inner > 0 && x.count % blocks == 0 && y.count == x.count,
          "swap_blocks: x has {} elements and y {}, which are not {} x {} blocks", x.count, y.count, outer,
          inner);
  const std::int64_t width = x.count / blocks;
  for_wide_rows(
      exec, blocks, width, KOKKOS_LAMBDA(const Lanes& lanes, const std::int64_t i) {
        const T* const from = x.data + i * width;
        T* const to = y.data + (i % inner * outer + i / inner) * width;
        lanes.each(width, [&](std::int64_t at, std::int64_t n) { RowPiece{at, n}.copy(from, to); });
      });
}

ZTRAIN_INSTANCES(swap_blocks)

}  // namespace ztrain::kernels
