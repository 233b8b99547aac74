// One launch for all groups. Its blocks are as many as tiles could be, whatever the sizes of groups are; each
// finds its group from the offsets.

#include "kernels/grouped/grouped.hpp"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "kernel_interface/with_type.hpp"
#include "kernels/gemm/gemm_tile_cuda.hpp"
#include "kernels/grouped/tensor_tile_cuda.hpp"
#include "runtime/device/launch_cuda.hpp"

namespace ztrain::kernels {
namespace {

/// A product of all groups, or of one after choose(). The groups cut k where A is transposed, else m.
template <class In, class Out>
struct Task {
  GemmShape s;
  const In* a;
  const In* b;
  const In* bias;
  Out* c;
  const std::int32_t* offsets;
  std::int32_t groups;
};

/// Returns the number of tiles along `count` rows or columns.
__host__ __device__ constexpr std::int64_t tiles_of(std::int64_t count, int tile) {
  return (count + tile - 1) / tile;
}

/// Returns the number of rows of tiles. If groups cut m, group e has those from offsets[e] / tile + e on:
/// enough for its rows, wherever they begin.
__host__ __device__ constexpr std::int64_t tile_rows(const GemmShape& s, std::int64_t groups, int tile) {
  return s.trans_a ? groups * tiles_of(s.m, tile) : s.m / tile + groups;
}

/// Returns the group that has a row of tiles.
__device__ std::int32_t group_of(const std::int32_t* offsets, std::int32_t groups, std::int64_t row,
                                 int tile) {
  std::int32_t first = 0, last = groups - 1;
  while (first < last) {
    const std::int32_t middle = (first + last + 1) / 2;
    if (offsets[middle] / tile + middle <= row)
      first = middle;
    else
      last = middle - 1;
  }
  return first;
}

/// Makes the task that of this block's group. Returns the first row of the block's tile, which is not below m
/// where there is nothing to do.
template <int tile, class In, class Out>
__device__ std::int64_t choose(Task<In, Out>& t, std::int64_t row) {
  GemmShape& s = t.s;
  const std::int64_t per_group = tiles_of(s.m, tile);
  const auto group =
      s.trans_a ? static_cast<std::int32_t>(row / per_group) : group_of(t.offsets, t.groups, row, tile);
  const std::int64_t begin = t.offsets[group], rows = t.offsets[group + 1] - begin;
  t.a += begin * s.lda;
  if (s.bias) t.bias += group * s.n;
  if (s.trans_a) {
    t.b += begin * s.ldb;
    t.c += group * s.m * s.n;
    s.k = rows;
    return row % per_group * tile;
  }
  t.b += group * s.k * s.n;
  t.c += begin * s.ldc;
  s.m = rows;
  return (row - begin / tile - group) * tile;
}

template <class In, class Out>
__global__ void __launch_bounds__(gemm_tile::side* gemm_tile::side) multiply_groups(Task<In, Out> t) {
  const std::int64_t across = tiles_of(t.s.n, gemm_tile::tile);
  const std::int64_t i0 = choose<gemm_tile::tile>(t, blockIdx.x / across);
  if (i0 < t.s.m) gemm_tile::multiply(t.s, t.a, t.b, t.bias, t.c, i0, blockIdx.x % across * gemm_tile::tile);
}

template <bool trans_a, bool trans_b, class In, class Out>
__global__ void __launch_bounds__(tensor_tile::threads, 2) multiply_groups_by_tensor_cores(Task<In, Out> t) {
  const std::int64_t across = tiles_of(t.s.n, tensor_tile::tile);
  const std::int64_t i0 = choose<tensor_tile::tile>(t, blockIdx.x / across);
  if (i0 < t.s.m)
    tensor_tile::multiply<trans_a, trans_b>(t.s, t.a, t.b, t.bias, t.c, i0,
                                            blockIdx.x % across * tensor_tile::tile);
}

template <class In, class Out>
class GroupedOnGpu : public GroupedProduct {
 public:
  GroupedOnGpu(const GemmShape& shape, std::int64_t groups) : shape_(complete(shape)), groups_(groups) {
    REQUIRE(blocks(gemm_tile::tile) < std::int64_t{1} << 31,
            "products of {} groups: m = {} and n = {} are beyond this kernel", groups, shape.m, shape.n);
  }

  void run(Exec& exec, const GroupedOperands& o) override {
    const Task<In, Out> task{shape_,
                             static_cast<const In*>(o.a),
                             static_cast<const In*>(o.b),
                             static_cast<const In*>(o.bias),
                             static_cast<Out*>(o.c),
                             o.offsets,
                             static_cast<std::int32_t>(groups_)};
    const auto go = [&](auto kernel, int tile, int threads) {
      runtime::launch("products of groups", kernel, blocks(tile), threads, native_stream(exec), task);
    };
    const auto aligned = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; };
    if constexpr (sizeof(In) == 2) {
      using namespace tensor_tile;
      if (whole_vectors() && aligned(o.a) && aligned(o.b)) {
        if (shape_.trans_a) return go(multiply_groups_by_tensor_cores<true, false, In, Out>, tile, threads);
        if (shape_.trans_b) return go(multiply_groups_by_tensor_cores<false, true, In, Out>, tile, threads);
        return go(multiply_groups_by_tensor_cores<false, false, In, Out>, tile, threads);
      }
    }
    go(multiply_groups<In, Out>, gemm_tile::tile, gemm_tile::side * gemm_tile::side);
  }

  std::string implementation() const override {
    if (!whole_vectors())
      return fmt::format("plain loop: {} or {} is no multiple of 8", shape_.lda, shape_.ldb);
    return sizeof(In) == 2 ? "tensor cores" : "plain loop";
  }
  bool slow() const override { return sizeof(In) == 2 && !whole_vectors(); }

 private:
  bool whole_vectors() const {
    return shape_.lda % tensor_tile::vector == 0 && shape_.ldb % tensor_tile::vector == 0;
  }
  std::int64_t blocks(int tile) const { return tile_rows(shape_, groups_, tile) * tiles_of(shape_.n, tile); }

  GemmShape shape_;
  std::int64_t groups_;
};

}  // namespace

std::unique_ptr<GroupedProduct> make_grouped_product(const GemmShape& shape, std::int64_t groups, DType in,
                                                     DType out) {
  return with_gradient_types(in, out, [&]<class In, class Out>() -> std::unique_ptr<GroupedProduct> {
    return std::make_unique<GroupedOnGpu<In, Out>>(shape, groups);
  });
}

}  // namespace ztrain::kernels
