#pragma once
// When each unit's parameters are gathered and released: the plan that the sharding pass carries out.

#include <vector>

#include "program/ir/program.hpp"

namespace ztrain::program {

/// What a backward gather waits for, as in FSDP's BackwardPrefetch: `pre` issues the next unit's before the
/// current unit's backward (two are alive, most overlap), `post` after it and the release of its parameters
/// (one is alive, overlaps with the reduction), `none` when the unit is needed.
enum class BackwardPrefetch : std::uint8_t { pre, post, none };

struct GatherOptions {
  int forward_prefetch = 1;  ///< gathers issued ahead of forward's need
  BackwardPrefetch backward_prefetch = BackwardPrefetch::pre;
  int max_units = 0;  ///< gathered units alive at once; 0: no limit. What is needed is always gathered
  std::int64_t max_elements = 0;  ///< the same in elements
  /// A unit stays gathered when fewer other elements than this are gathered before its next use.
  std::int64_t max_reuse_distance = 0;
  bool keep = false;  ///< from first use to last (reshard_after_forward = false)
};

/// Consecutive ops of one action. Where units are smaller than blocks, one action is several spans, so that
/// each waits for what it uses.
struct Span {
  Action action;
  std::size_t begin = 0, end = 0;  ///< ops
  std::vector<int> units;          ///< gathered units whose parameters it reads
};

/// One gathered copy of a unit (here: of all units that are gathered together), from the span that first
/// needs it to the one that last does.
struct Gather {
  int unit = 0;
  int first = 0, last = 0;  ///< spans
};

struct GatherPlan {
  std::vector<Gather> gathers;           ///< by first use
  std::vector<std::vector<int>> before;  ///< per span: gathers issued before its ops
  std::vector<std::vector<int>> after;   ///< per span: gathers issued after its releases
};

/// unit_read: per op, the gathered units that it reads. unit_elements: per unit.
std::vector<Span> cut_into_spans(const std::vector<Op>& ops, const std::vector<std::vector<int>>& unit_read);
GatherPlan plan_gathers(const std::vector<Span>& spans, const std::vector<std::int64_t>& unit_elements,
                        const GatherOptions& options);

}  // namespace ztrain::program
