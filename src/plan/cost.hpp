#pragma once
// What a deck costs on a number of ranks: compiled and simulated, without executing anything.

#include <optional>
#include <string>
#include <vector>

#include "config/deck.hpp"
#include "kernel_interface/target.hpp"
#include "plan/memory.hpp"
#include "plan/rates/machine.hpp"
#include "plan/rates/traffic.hpp"
#include "plan/step_time.hpp"

namespace ztrain::plan {

/// What the machine has, where it is known better than the deck knows it.
struct Limits {
  std::optional<int> ranks_per_node;
  std::optional<double> device_memory, host_memory, outside_memory;  ///< bytes
  std::string machine;           ///< machine file or preset; "": the deck's
  std::optional<Target> target;  ///< of a run that asks: its CPU ranks hold all in their node's memory
};

/// What is asked: a deck, as `ztrain DECK OVERRIDES` would run it on so many ranks.
struct Question {
  std::string deck;
  std::vector<std::string> overrides;
  int ranks = 1;
  std::int64_t vocabulary = 0;  ///< of the data, for a deck that leaves model.vocab_size to them
  Limits limits{};
};

/// The deck with `more` overrides on top, not yet resolved for its ranks. Files and folders that the deck
/// names are not looked at, and variables in their names need not be set.
config::Deck deck_of(const Question& question, const std::vector<std::string>& more = {});

Machine machine_for(const Question& question, const config::Deck& deck);

/// The question's limits where this build runs the job itself: one without GPU kernels computes in the memory
/// of its nodes, unless the deck tells of devices.
Limits limits_of_build(const Question& question);

/// deck_of, and the mesh resolved. Throws Error where deck and ranks do not go together.
config::Deck resolved_deck(const Question& question, const std::vector<std::string>& more = {});

/// How much of a Cost is filled in.
enum class Detail : std::uint8_t {
  memory,  ///< what a verdict takes
  step,    ///< also the time of a step
  all      ///< also what the reuse of bytes takes of that
};

struct CostOptions {
  /// How often the micro-batches in the middle of a step are simulated where they are alike, at least twice;
  /// each further one takes what the last one did.
  int most_times = 3;
  /// Takes another batch.global where the deck's cannot be divided among the ranks.
  bool any_batch = false;
  Detail detail = Detail::all;
  bool proven = true;  ///< false: without JobSpec's proofs
};

/// Of a pipeline: a rank that stands for those at its place of the axis.
struct StageCost {
  int rank = 0;
  std::string blocks;  ///< "embedding to model.layers.3"; of several chunks with commas
  Simulation step;     ///< together with the others
  double waiting = 0;  ///< seconds of the step without work because of the others: its bubble
};

struct Cost {
  config::Deck deck;  ///< resolved for the ranks
  Machine machine;
  MeshShape mesh;
  int ranks = 1;
  std::int64_t parameters = 0, trained = 0;  ///< trained: those of them that are not frozen
  std::int64_t active = 0;                   ///< model::Graph::active_parameters
  double flops_per_token = 0;                ///< model::flops_per_token
  double checkpoint_bytes = 0;               ///< plan::checkpoint_bytes
  std::size_t ops = 0;                       ///< issued in rank 0's train step
  /// Of a rank of each stage; those of micro-batches that are alike count once.
  std::size_t compiled_ops = 0;
  /// Micro-batches simulated, where the rest is extrapolated; 0: all.
  int extrapolated_from = 0;
  std::vector<RankMemory> memory;  ///< of the first rank of each pipeline stage: the others hold the same
  Simulation step;                 ///< of the rank that takes longest
  /// Seconds of that step for which all wait because ranks differ in speed: the slowest of N.
  double slowest = 0;
  std::vector<StageCost> stages;  ///< of a pipeline; else none
  /// Seconds of that step if no bytes were reused: with the dependencies of data alone.
  double seconds_without_reuse = 0;
  std::vector<TrafficRow> traffic;        ///< of rank 0
  std::vector<TierTraffic> tier_traffic;  ///< of rank 0

  const RankMemory& largest(program::Tier tier) const;  ///< the rank that holds most of this tier
  /// Of a pipeline: the share of a step in which ranks wait for each other, on average.
  double bubble() const;
  double tokens_per_step() const;
  double tokens_per_second() const { return tokens_per_step() / step.seconds; }
  double mfu() const;
};

/// Returns ", of which a token uses 3.3B"; "" if a token uses all parameters.
std::string active_note(std::int64_t active, std::int64_t parameters);

/// Throws Error where deck and ranks do not go together.
Cost cost_of(const Question& question, const std::vector<std::string>& more = {},
             const CostOptions& options = {});

/// The cost under another strategy, of which `own` is the deck's under its own: that of its Programs where
/// both strategies come to the same. Nothing where the keys, or deck and ranks, do not go together.
std::optional<Cost> cost_with_strategy(const Question& question, const Cost& own, std::string_view strategy);

/// The cost with tensor.overlap as the deck does not have it; nothing where it makes no difference.
std::optional<Cost> cost_with_other_overlap(const Question& question, const Cost& own);

/// The cost; nothing where the keys, or deck and ranks, do not go together.
std::optional<Cost> cost_if_legal(const Question& question, const std::vector<std::string>& more = {},
                                  const CostOptions& options = {});

/// What the bytes that are alive at once leave of the limits.
enum class Room : std::uint8_t {
  none,    ///< it does not fit, or deck and ranks do not go together
  little,  ///< it may fit: the plan decides
  ample    ///< an eighth or more of each limit: places of their own for these bytes need less than that
};
/// In a fraction of try_fit's time. any_batch: as CostOptions has it.
Room room_for(const Question& question, const std::vector<std::string>& more, bool any_batch = false);

/// Whether deck and ranks go together, and what it costs where it fits.
struct Trial {
  bool legal = false;
  std::optional<Cost> cost;
};
Trial try_fit(const Question& question, const std::vector<std::string>& more,
              const CostOptions& options = {});

/// Needed and available bytes. On machines without device memory all counts in the node.
struct Verdict {
  double device_needed = 0, device_limit = 0;  ///< of the rank that needs most; limit 0: not checked
  double node_needed = 0, node_limit = 0;      ///< of a full node
  bool device_fits() const { return device_limit <= 0 || device_needed <= device_limit; }
  bool node_fits() const { return node_limit <= 0 || node_needed <= node_limit; }
  bool fits() const { return device_fits() && node_fits(); }
  /// The same with every need so many times as large.
  bool fits(double times) const {
    return Verdict{times * device_needed, device_limit, times * node_needed, node_limit}.fits();
  }
};
Verdict verdict_of(const Cost& cost);
/// Whether the step's time is worth multiplying: not on processors of unknown speed.
bool knows_its_machine(const Cost& cost);
/// Whether it says how long the run takes: not where the data decide how many steps an epoch has either.
bool knows_its_time(const Cost& cost);
/// Bytes of a full node's need that its ranks write and read checkpoints through.
double checkpoints_on_node(const Cost& cost);
/// Bytes of a full node's need that are for snapshots in its memory, where all its ranks save.
double snapshots_on_node(const Cost& cost);

}  // namespace ztrain::plan
