#include "runtime/comm/sum_steps.hpp"

#include "runtime/comm/peers.hpp"

namespace ztrain::runtime {
namespace {

/// Makes the steps of one rank. Each rank begins with its right-hand neighbour, so that not all send to the
/// same rank at once.
class Steps {
 public:
  Steps(SumGroup group, int rank, const Reduction& reduction, const Slices& slices)
      : group_(group),
        rank_(rank),
        index_(rank % group.on_node),
        node_(rank / group.on_node),
        reduction_(reduction),
        slices_(slices) {}

  /// Sums all contributions to this rank's slice, in rank order.
  SumStep over_ranks() const {
    SumStep step;
    const std::int64_t own = bytes_of(rank_);
    for (int k = 1; k < group_.ranks; ++k) {
      const int to = (rank_ + k) % group_.ranks, from = (rank_ + group_.ranks - k) % group_.ranks;
      step.sends.push_back({to, slice(to), bytes_of(to)});
      step.receives.push_back({from, moved(reduction_.workspace, exchange_slot(from, rank_) * own), own});
    }
    step.sums.push_back({reduction_.in,
                         reduction_.out,
                         reduction_.accumulate,
                         {slice(rank_), reduction_.workspace, own, rank_, group_.ranks},
                         reduction_.to,
                         slices_.length(rank_)});
    return step;
  }

  /// Sums this node's contributions to the slices of this rank's counterparts on all nodes.
  SumStep within_node() const {
    SumStep step;
    const int members = group_.on_node;
    const std::int64_t slot = slices_.longest * size_of(reduction_.in), row = group_.nodes() * slot;
    for (int k = 1; k < members; ++k) {
      const int to = (index_ + k) % members, from = (index_ + members - k) % members;
      for (int node = 0; node < group_.nodes(); ++node) {
        const int theirs = node * members + to, ours = node * members + index_;
        step.sends.push_back({node_ * members + to, slice(theirs), bytes_of(theirs)});
        step.receives.push_back({node_ * members + from,
                                 arrivals() + exchange_slot(from, index_) * row + node * slot,
                                 bytes_of(ours)});
      }
    }
    for (int node = 0; node < group_.nodes(); ++node) {
      const int ours = node * members + index_;
      step.sums.push_back({reduction_.in,
                           DType::f32,
                           false,
                           {slice(ours), arrivals() + node * slot, row, index_, members},
                           partial(node),
                           slices_.length(ours)});
    }
    return step;
  }

  /// Sums the partial sums of this rank's slice, in node order.
  SumStep over_nodes() const {
    SumStep step;
    const int nodes = group_.nodes();
    const std::int64_t own = partial_sum_bytes(slices_.length(rank_));
    for (int k = 1; k < nodes; ++k) {
      const int to = (node_ + k) % nodes, from = (node_ + nodes - k) % nodes;
      const int theirs = to * group_.on_node + index_;
      step.sends.push_back({theirs, partial(to), partial_sum_bytes(slices_.length(theirs))});
      step.receives.push_back(
          {from * group_.on_node + index_, arrivals() + exchange_slot(from, node_) * own, own});
    }
    step.sums.push_back({DType::f32,
                         reduction_.out,
                         reduction_.accumulate,
                         {partial(node_), arrivals(), own, node_, nodes},
                         reduction_.to,
                         slices_.length(rank_)});
    return step;
  }

 private:
  std::int64_t bytes_of(int rank) const { return slices_.length(rank) * size_of(reduction_.in); }
  const std::byte* slice(int rank) const {
    return moved(reduction_.from, rank * slices_.step * size_of(reduction_.in));
  }
  std::byte* partial(int node) const {
    return moved(reduction_.workspace, node * partial_sum_bytes(slices_.longest));
  }
  /// Returns where contributions of the node's members arrive, and later the partial sums of other nodes.
  std::byte* arrivals() const { return partial(group_.nodes()); }

  SumGroup group_;
  int rank_, index_, node_;  ///< index_ counts among the members on the node
  const Reduction& reduction_;
  const Slices& slices_;
};

}  // namespace

std::vector<SumStep> sum_steps(SumGroup group, int rank, const Reduction& reduction, const Slices& slices) {
  rank_sum(reduction.in, reduction.out, reduction.accumulate);  // refuses types that only partial sums take
  const Steps steps(group, rank, reduction, slices);
  if (!group.by_node(reduction.in)) return {steps.over_ranks()};
  return {steps.within_node(), steps.over_nodes()};
}

}  // namespace ztrain::runtime
