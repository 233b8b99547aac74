#pragma once
// The table of optimizers. A rule is one header of update mathematics and one entry of the list in rules.hpp;
// this table, the kernels (kernels/optimizer/optimizer_step.hpp) and the states that a job keeps follow from
// the list.
//
// A rule R is a struct of
// - name, doc: what a deck calls it, and a sentence for its readers;
// - whole: what of a parameter one rank has to step;
// - states(settings): what it keeps per parameter element. All-zero bytes are the state before the first
// step;
// - Coefficients<A>: the step's constants, made from (StepScalars, Settings, Group);
// - step<A>(value, gradient, coefficients, state&...): returns the stepped value and updates the states,
// where A is float, or double for fp64 parameters. gradient is the summed one: step applies
// gradient_multiplier. The states have the type of precision.moments, and step is called with as many of them
// (at most two) as states() returns. A rule whose states are stored as codes names its Codecs instead of a
// step, and the rule that steps what they decode to (adamw_8bit.hpp). A rule of whole matrices names the rule
// of all other parameters, `others`, and its step has two halves (muon.hpp). A rule with a momentum that is
// summed up in signs says `sums_signs` (onebit_adam.hpp).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/axes.hpp"
#include "base/dtype.hpp"

namespace ztrain::optim {

/// Settings that a deck makes for the whole job. A rule reads those that it needs.
struct Settings {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double momentum = 0;
  bool nesterov = false;
  double ema_decay = 0;          ///< of the averages of parameters; 0: none are kept
  std::int64_t freeze_step = 0;  ///< steps after which a rule that sums signs does so
};

/// Factors that differ between groups of parameters.
struct Group {
  double lr_scale = 1;      ///< factor of the learning rate
  double weight_decay = 0;  ///< factor of the decay, as the rule defines it
};

/// A state that is kept beside each parameter.
struct StateInfo {
  std::string name;
  std::optional<DType> dtype;  ///< none: the type of precision.moments
  std::int64_t granule = 1;    ///< parameter elements per item, counted from the parameter's start
  /// Whether ranks that hold copies of a shard have values of their own in this state. Checkpoints save all.
  bool of_each_copy = false;
};

struct Info {
  std::string_view name;
  std::string_view doc;
  Whole whole = Whole::element;  ///< what of a parameter one rank has to step
  /// Throws Error if the settings contradict each other.
  std::vector<StateInfo> (*states)(const Settings&);
  /// Rule of parameters that are no matrices of hidden layers; "": this rule steps all parameters.
  std::string_view others;
  /// After Settings::freeze_step copies of a shard sum up the first state, a momentum, in signs.
  bool sums_signs = false;
};

/// Elements that an item with a granule above 1 covers. It is the quantum on which parameters start and
/// shards are cut, so no item straddles ranks.
inline constexpr std::int64_t block = 256;

/// Name of the state that is the moving average of the parameters (ema.hpp).
inline constexpr std::string_view average_state = "ema";

/// Name of the state that is what sums of signs have rounded away.
inline constexpr std::string_view error_state = "error";

/// Returns the states that are kept of a parameter that the rule steps: those of the rule, the errors of its
/// sums of signs if there are `copies` of its shards, and the average as the last if there is one. stepped:
/// type of what the rule steps.
std::vector<StateInfo> kept_states(const Info& rule, const Settings& settings, DType stepped, bool copies);

const std::vector<Info>& table();

/// Returns the rule of this name, in StepRules (rules.hpp). Throws Error that lists the known ones.
const Info& find(std::string_view name);

std::vector<std::string> names();

}  // namespace ztrain::optim
