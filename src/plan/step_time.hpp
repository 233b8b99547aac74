#pragma once
// When each op of a Program would run: one time line per stream, without executing anything. An op starts
// when its predecessor on its stream and all of Op::after have ended and the host has issued it.
//
// Durations are those of op_time.hpp; what computes while a collective runs is slower by a share.
// Collectives share their rank's links, whatever their streams: one occupies the links that it uses, in the
// node, out of it or both, for as long as it takes. In the order of issue each gets the first time at which
// they are free, also between others that are later.
// Ranks that compute on their node's cores have one time line, on which collectives are too.
// A message between stages of a pipeline takes its time from when both sides have begun it: the stages are
// simulated together.
// Not modelled: the other ranks of a stage (all are taken to arrive together), messages on the links of
// collectives.

#include <array>
#include <limits>
#include <vector>

#include "plan/rates/machine.hpp"
#include "plan/rates/traffic.hpp"
#include "program/ir/program.hpp"
#include "program/ir/step_times.hpp"
#include "program/ir/work.hpp"

namespace ztrain::plan {

/// Seconds by action kind.
using ByAction = std::array<double, program::action_kind_count>;

struct Simulation {
  double seconds = 0;  ///< from the first op's start to the last op's end
  double flops = 0;    ///< of products and attention, with what is recomputed
  /// Seconds of the compute stream: kernels, and collectives of ranks that compute on cores.
  double computing = 0, moving = 0;
  std::array<ByAction, program::stream_count> busy{};
  double exposed = 0;     ///< seconds in which nothing computes
  ByAction exposed_by{};  ///< those, by the action waited for
  /// A chain of ops, each started by the end of the one before, that ends last. Counted as they are issued.
  std::vector<program::OpId> critical;
  ByAction critical_by{};    ///< seconds along that chain
  program::WorkList work{};  ///< of stages: what the rank computes and when
};

/// most_times: how often what is repeated is walked, at least twice. Where it is issued more often each
/// further time adds what the last one did, and `critical` is that of the times walked.
Simulation simulate(const program::Program& program, const Machine& machine,
                    int most_times = std::numeric_limits<int>::max());

/// Of the stages of a pipeline, a rank of each, from the first rank of the axis to the last. What each
/// computes is told as well. times: gets when the ops of each are; may be null.
std::vector<Simulation> simulate_stages(const std::vector<const program::Program*>& programs,
                                        const Machine& machine,
                                        std::vector<program::StepTimes>* times = nullptr);

}  // namespace ztrain::plan
