#include "base/error.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/experts/routing.hpp"
#include "kernels/experts/sort_rows.hpp"

namespace ztrain::kernels {

void sort_by_expert(Exec& exec, Vector<const std::int32_t> experts, Vector<std::int32_t> slots,
                    Vector<std::int32_t> offsets, void* workspace) {
  const std::int64_t count = offsets.count - 1;
  REQUIRE(slots.count == experts.count && count >= 1 && count <= most_experts,
          "sort by expert: {} choices of {} experts, but {} slots; at most {} experts are possible",
          experts.count, count, slots.count, most_experts);
  const std::int64_t block = expert_block(experts.count, build_target()),
                     blocks = ceil_div(experts.count, block);
  const SortBlocks b{experts.data, experts.count, block, count, static_cast<std::int32_t*>(workspace),
                     slots.data};
  const SumCounts sum{b, blocks, offsets.data};
  static_assert(carried<CountOne, PlaceOne>);
  if constexpr (on_gpu) {
    for_rows(exec, blocks * count, CountOne{b});
    for_shared_rows(exec, 1, static_cast<int>(round_up(count, warp_lanes)), sum);
    for_rows(exec, blocks * count, PlaceOne{b});
  } else {
    for_rows(exec, blocks, CountBlock{b});
    for_shared_rows(exec, 1, 1, sum);
    for_rows(exec, blocks, PlaceBlock{b});
  }
}

}  // namespace ztrain::kernels
