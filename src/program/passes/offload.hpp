#pragma once
// Offload: where what a job keeps lies between its uses, and the copies that bring it to them.
//
// A tensor has a home, Tensor::tier; an op works on the memory of one tier, Op::tier. Where an operand is at
// home elsewhere, a stay is made for it (stays.hpp). So all states and activations go the same way, under
// every strategy, no other pass knows, and no result changes.
//
// ZeRO-Offload (Ren et al., 2021) steps on the host what it keeps there; ZeRO-Infinity (Rajbhandari et al.,
// 2021) has all states on NVMe; the fractions are those of Twin-Flow (DeepSpeed, 2024).

#include <vector>

#include "program/ir/program.hpp"
#include "program/passes/unit_state.hpp"

namespace ztrain::program {

/// The home of one kind of state: of `fraction` of its elements, by whole units (activations: by blocks) that
/// are spread evenly over the model. The others are at home on the device.
struct Home {
  Tier tier = Tier::device;
  double fraction = 1;
  bool operator==(const Home&) const = default;
};

/// Where a unit's optimizer steps.
enum class StepOn : std::uint8_t {
  automatic,  ///< on the host, where the states of its rule, or its master weights, are not on the device
  host,
  device
};

struct OffloadOptions {
  Home parameters;   ///< what units are gathered from, or copied from where they are whole
  Home gradients;    ///< what micro-batches add up to, until it is stepped
  Home master;       ///< where they are not the parameters themselves
  Home optimizer;    ///< states of the rule
  Home activations;  ///< what a block's forward keeps for its backward
  StepOn step = StepOn::automatic;
  bool ahead_of_norm = false;  ///< what the host steps is stepped before the norm is known: early_steps.hpp
  bool any() const;
  bool operator==(const OffloadOptions&) const = default;
};

/// Whether an optimizer's op steps on the host.
bool steps_on_host(const Program& program, const Op& step, StepOn where);

/// Which of so many things, of these sizes, make up that fraction of all.
std::vector<bool> spread(const std::vector<std::int64_t>& sizes, double fraction);

/// Gives the persistent tensors of units their homes. Every Program of a job starts from these.
void give_homes(Program& program, const Cut& cut, const std::vector<UnitState>& units,
                const OffloadOptions& options);

/// Of a Program with all its ops: gives gradients and activations their homes, tells ops where to work, and
/// inserts fetches and evictions.
void offload(Program& program, const Layout& layout, const OffloadOptions& options);

}  // namespace ztrain::program
