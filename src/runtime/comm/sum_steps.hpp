#pragma once
// Describes a reduction over exchanged slices as data: messages and sums, which MPI or NCCL carries out. Sums
// of 16-bit elements over several nodes take two steps. Each node first sums its contributions in rank order;
// then ranks exchange these partial sums in fp32 and add them in node order, so less leaves the node. The
// order follows from the mesh and from the ranks per node (SumGroup).

#include <cstddef>
#include <cstdint>
#include <vector>

#include "layout/comm_cost.hpp"
#include "runtime/comm/rank_sum.hpp"

namespace ztrain::runtime {

/// Says how the elements of all ranks are cut: rank r has length(r) elements, which begin at r * step.
struct Slices {
  /// Elements between the starts of slices; of the longest slice; of all slices.
  std::int64_t step, longest, total;

  std::int64_t length(int rank) const {
    const std::int64_t left = total - rank * longest;
    return left < 0 ? 0 : left < longest ? left : longest;
  }
};
inline Slices reduce_scatter_slices(int ranks, std::int64_t count, std::int64_t stride) {
  return {stride > 0 ? stride : count, count, ranks * count};
}
inline Slices all_reduce_slices(int ranks, std::int64_t count) {
  const std::int64_t slice = all_reduce_slice(ranks, count);
  return {slice, slice, count};
}

struct SumSend {
  int to;
  const void* data;
  std::int64_t bytes;
};
struct SumReceive {
  int from;
  void* data;
  std::int64_t bytes;
};

/// Sums what `sources` names, count elements of `in` each, into `to`.
struct SumWork {
  DType in, out;
  bool accumulate;
  RankSources sources;
  void* to;
  std::int64_t count;
};

/// Messages, then sums of what has arrived. Messages between two ranks are received in the order sent.
struct SumStep {
  std::vector<SumReceive> receives;
  std::vector<SumSend> sends;
  std::vector<SumWork> sums;
};

/// Names what a reduction reads and writes. `to` gets `out`, and is added to with accumulate.
struct Reduction {
  const void* from;  ///< the slices of all ranks
  DType in;
  void* to;  ///< this rank's sum
  DType out;
  bool accumulate;
  void* workspace;  ///< reduce_scatter_workspace of the longest slice
};

/// Returns the steps of rank `rank` of the group: one, or two if SumGroup::by_node says so. Throws Error for
/// the types that rank_sum refuses.
std::vector<SumStep> sum_steps(SumGroup group, int rank, const Reduction& reduction, const Slices& slices);

}  // namespace ztrain::runtime
