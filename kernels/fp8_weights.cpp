#include "kernels/fp8_weights.hpp"

#include "base/error.hpp"
#include "base/kernel_workspace.hpp"
#include "kernels/fp8_scale.hpp"

namespace ztrain::kernels {
namespace {

/// The part of row i that the run has: elements [begin, end) of the run.
struct Part {
  std::int64_t begin, end;
};
KOKKOS_INLINE_FUNCTION Part part_of(std::int64_t i, std::int64_t run_begin, std::int64_t count,
                                    std::int64_t row) {
  const std::int64_t begin = (run_begin / row + i) * row - run_begin, end = begin + row;
  return {begin < 0 ? 0 : begin, end > count ? count : end};
}

struct LargestOfPart {
  const bf16* values;
  std::int64_t run_begin, count, row;
  float* largest;
  template <class L>
  KOKKOS_INLINE_FUNCTION void operator()(const L& lanes, std::int64_t i) const {
    const Part part = part_of(i, run_begin, count, row);
    const bf16* from = values + part.begin;
    const auto bits = lanes.template maximum<std::uint32_t>(
        part.end - part.begin, 0,
        [=](std::int64_t begin, std::int64_t n) { return largest_of(from + begin, n); });
    lanes.once([&] { largest[i] = std::bit_cast<float>(bits); });
  }
};

struct LargestOfAll {
  const float* values;
  std::int64_t count;
  float* largest;
  template <class L>
  KOKKOS_INLINE_FUNCTION void operator()(const L& lanes, std::int64_t) const {
    const float* from = values;
    const auto bits = lanes.template maximum<std::uint32_t>(
        count, 0, [=](std::int64_t begin, std::int64_t n) { return largest_of_found(from + begin, n); });
    lanes.once([&] { *largest = std::bit_cast<float>(bits); });
  }
};

struct EncodePart {
  const bf16* values;
  std::int64_t run_begin, count, row;
  const float* scales;
  bool one_scale;
  f8e4m3* codes;
  template <class L>
  KOKKOS_INLINE_FUNCTION void operator()(const L& lanes, std::int64_t i) const {
    const Part part = part_of(i, run_begin, count, row);
    const bf16* from = values + part.begin;
    f8e4m3* to = codes + part.begin;
    const float factor = inverse_scale(scales[one_scale ? 0 : i]);
    lanes.each(part.end - part.begin,
               [=](std::int64_t begin, std::int64_t n) { encode(from + begin, factor, to + begin, n); });
  }
};

struct ScaleOfRow {
  Fp8Slots at;
  float* scales;
  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t row) const {
    const std::int64_t begin = at.weight_begin + row * at.row;
    const std::int64_t home = at.weight_begin / at.shard, last = (begin + at.row - 1) / at.shard;
    std::uint32_t largest = 0;
    for (std::int64_t shard = begin / at.shard; shard <= last; ++shard) {
      const std::int64_t slot =
          shard == home ? at.first + row : row - (shard * at.shard - at.weight_begin) / at.row;
      const std::uint32_t bits = magnitude_bits(at.slots[shard * at.stride + slot]);
      largest = bits > largest ? bits : largest;
    }
    scales[row] = fp8_scale<f8e4m3>(largest);
  }
};

void check(const Fp8Run& run) {
  REQUIRE(run.values.count > 0 && run.row % 16 == 0 && run.begin % 16 == 0 && run.values.count % 16 == 0,
          "fp8 weights: a run of {} elements from {}, in rows of {}: all must be multiples of 16",
          run.values.count, run.begin, run.row);
}

}  // namespace

void fp8_largest(Exec& exec, const Fp8Run& run, float* slots, float* partials) {
  check(run);
  const std::int64_t count = run.values.count, rows = run.rows(), chunk = fp8_weight_chunk;
  if (rows > 1 || count <= chunk) {
    for_wide_rows(exec, rows, run.row < count ? run.row : count,
                  LargestOfPart{run.values.data, run.begin, count, run.row, slots});
    return;
  }
  const std::int64_t chunks = ceil_div(count, chunk);
  for_wide_rows(exec, chunks, chunk, LargestOfPart{run.values.data, 0, count, chunk, partials});
  for_wide_rows(exec, 1, chunks, LargestOfAll{partials, chunks, slots});
}

void fp8_scales(Exec& exec, const Fp8Slots& slots, Vector<float> scales) {
  for_rows(exec, scales.count, ScaleOfRow{slots, scales.data});
}

void fp8_encode(Exec& exec, const Fp8Run& run, const float* scales, f8e4m3* codes) {
  check(run);
  const std::int64_t count = run.values.count, rows = run.rows(), chunk = fp8_weight_chunk;
  const float* const first = scales + run.first_row();
  if (rows > 1) {
    for_wide_rows(exec, rows, run.row,
                  EncodePart{run.values.data, run.begin, count, run.row, first, false, codes});
  } else {
    for_wide_rows(exec, ceil_div(count, chunk), chunk,
                  EncodePart{run.values.data, 0, count, chunk, first, true, codes});
  }
}

}  // namespace ztrain::kernels
