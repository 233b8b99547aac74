#include "plan/cost.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <set>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "base/shape.hpp"
#include "base/text.hpp"
#include "config/validate/validate.hpp"
#include "layout/comm_cost.hpp"
#include "model/family.hpp"
#include "plan/setup.hpp"
#include "program/passes/final_passes.hpp"
#include "program/passes/matrix_step.hpp"

namespace ztrain::plan {
namespace {

int ranks_per_node(const Question& q, const config::Deck& deck) {
  return std::min(q.ranks, machine_for(q, deck).ranks_per_node);
}

/// The batch of as many micro-batches as the deck's comes to, 3 at most.
void take_any_batch(config::Deck& deck, const Question& q) {
  const std::int64_t wanted = deck.batch.global;
  deck.batch.global = deck.batch.micro * q.ranks;
  config::validate_for_ranks(deck, q.ranks, ranks_per_node(q, deck));
  const std::int64_t once = deck.batch.micro * config::data_parallel_degree(deck);
  deck.batch.global = once * std::clamp<std::int64_t>(wanted / once, 1, 3);
}

/// Of each pipeline stage.
std::vector<int> first_ranks(const MeshShape& mesh) {
  std::vector<int> ranks;
  const int stages = mesh[Axis::pipeline], stage = mesh.ranks() / stages;
  for (int s = 0; s < stages; ++s) ranks.push_back(s * stage);
  return ranks;
}

/// Makes it the step as if no bytes were reused.
void forget_reuse(program::Program& step) {
  for (program::Op& op : step.ops) op.after.clear();
  link_dependencies(step);
}

double exposed_to(const Simulation& step, program::ActionKind kind) {
  return step.exposed_by[static_cast<std::size_t>(kind)];
}

/// What the rank has of the model, chunk by chunk.
std::string blocks_text(const program::Program& train) {
  std::set<int> own;
  for (const program::Op& op : train.ops)
    if (program::is_compute(op.action.kind)) own.insert(op.action.part);
  std::string text;
  for (auto first = own.begin(); first != own.end();) {
    auto last = first, next = std::next(first);
    while (next != own.end() && *next == *last + 1) last = next++;
    const auto name = [&](int block) { return train.blocks[static_cast<std::size_t>(block)]; };
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", name(*first),
                        last == first ? "" : " to " + name(*last));
    first = next;
  }
  return text;
}

class Compiler {
 public:
  Compiler(Cost& cost, const CostOptions& options)
      : cost_(cost),
        options_(options),
        graph_(training_graph(cost.deck)),
        spec_(with_stages(graph_, job_spec(cost.deck, cost.machine.target))) {
    spec_.proven = options.proven;
    std::int64_t saved = 0, by_matrix = 0;
    program::mark_matrices(graph_, spec_.optimizer);
    for (const model::Parameter& p : graph_.parameters) {
      saved += p.form.any() ? 0 : elements(p.shape);
      by_matrix += p.by_matrix ? elements(p.shape) : 0;
      cost.parameters += elements(p.shape);
      cost.trained += p.trainable ? elements(p.shape) : 0;
    }
    cost.active = graph_.active_parameters();
    cost.checkpoint_bytes = checkpoint_bytes(cost.deck, saved, {cost.trained, by_matrix});
    cost.mesh = spec_.mesh;
    Machine& machine = cost.machine;
    const int left = product_multiprocessors(machine.multiprocessors, cost.mesh, cost.deck.device);
    if (left > 0 && machine.rates.beside_collectives == 1 && cost.deck.device.communicator != "mpi")
      machine.computing_share = static_cast<double>(left) / machine.multiprocessors;
    cost.flops_per_token = model::flops_per_token(cost.deck.model, graph_, cost.deck.data.sequence);
  }

  void run() {
    const std::vector<int> ranks = first_ranks(cost_.mesh);
    std::vector<std::optional<Compiled>> compiled(ranks.size());
    in_parallel(static_cast<int>(ranks.size()),
                [&](int s) { compiled[at(s)] = needed_of(program::compile(graph_, spec_, ranks[at(s)])); });
    add(ranks, std::move(compiled));
  }

  Room room() const {
    constexpr double with_places = 8.0 / 7;  // of an eighth of a limit that is to be left
    const std::vector<int> ranks = first_ranks(cost_.mesh);
    std::atomic<bool> all_may = true, ample = true;
    const auto may_fit = [&](const Tiers& least) {
      const Verdict verdict = verdict_of(holding(least));
      if (!verdict.fits(with_places)) ample = false;
      return verdict.fits();
    };
    in_parallel(static_cast<int>(ranks.size()), [&](int s) {
      if (all_may && !program::job_may_fit(graph_, spec_, ranks[at(s)], may_fit)) all_may = false;
    });
    return !all_may ? Room::none : ample ? Room::ample : Room::little;
  }

  /// Whether it fits; compiles no further than that takes.
  bool run_if_it_fits() {
    const std::vector<int> ranks = first_ranks(cost_.mesh);
    std::vector<std::optional<Compiled>> compiled(ranks.size());
    std::atomic<bool> all_fit = true;
    in_parallel(static_cast<int>(ranks.size()), [&](int s) {
      if (!all_fit) return;
      if (auto job = program::compile_if(graph_, spec_, ranks[at(s)], at_least()))
        compiled[at(s)] = needed_of(std::move(*job));
      else
        all_fit = false;
    });
    if (!all_fit) return false;
    add(ranks, std::move(compiled));
    return verdict_of(cost_).fits();
  }

 private:
  using Tiers = std::array<program::TierPlan, program::tier_count>;

  program::MayFit at_least() const {
    return [this](const Tiers& least) { return verdict_of(holding(least)).fits(); };
  }

  Cost holding(const Tiers& least) const {
    Cost cost;
    cost.machine = cost_.machine;
    cost.ranks = cost_.ranks;
    cost.memory.push_back({0, {{"", least, {}}}});
    return cost;
  }

  /// What is needed of a job once it is compiled. Of many stages the rest would be much.
  struct Compiled {
    RankMemory memory;
    program::Program train;
  };
  static Compiled needed_of(program::Job job) {
    return {memory_of(job.programs.all()), std::move(job.programs.at(program::train_name))};
  }

  void add(const std::vector<int>& ranks, std::vector<std::optional<Compiled>> compiled) {
    for (std::size_t s = 0; s < ranks.size(); ++s) {
      cost_.memory.push_back(std::move(compiled[s]->memory));
      if (options_.detail != Detail::memory) add(ranks[s], std::move(compiled[s]->train));
    }
    simulate_pipeline();
    share_cores();
    wait_for_slowest();
  }

  /// Ranks that outnumber the cores of their node take turns: a step is no shorter than all that the node's
  /// ranks compute is on its cores. Of collectives the rates say what they take with so many ranks.
  void share_cores() {
    const double cores = cost_.machine.rates.cores;
    const int ranks = std::min(cost_.ranks, cost_.machine.ranks_per_node);
    if (cores <= 0 || ranks <= cores) return;
    double computing = 0, moving = 0;
    for (const StageCost& stage : cost_.stages)
      computing += stage.step.computing, moving += stage.step.moving;
    const auto stages = std::max(1.0, static_cast<double>(cost_.stages.size()));
    if (cost_.stages.empty()) computing = cost_.step.computing, moving = cost_.step.moving;
    const double least = (computing * ranks / cores + moving) / stages;
    cost_.step.seconds = std::max(cost_.step.seconds, least);
    cost_.seconds_without_reuse = std::min(cost_.step.seconds, std::max(cost_.seconds_without_reuse, least));
  }

  /// Collectives join all ranks in each step, and so it takes as long as it does on the slowest.
  void wait_for_slowest() {
    const double longer = cost_.machine.rates.jitter * largest_of(cost_.ranks);
    cost_.slowest = longer * cost_.step.seconds;
    cost_.step.seconds += cost_.slowest;
    cost_.step.exposed += cost_.slowest;
    cost_.seconds_without_reuse *= 1 + longer;
  }

  /// The other ranks of the stage hold and send the same.
  void add(int rank, program::Program train) {
    cost_.compiled_ops += train.ops.size();
    if (rank == 0) {
      cost_.ops = static_cast<std::size_t>(train.issues());
      cost_.traffic = traffic_of(train, cost_.machine.ranks_per_node);
      cost_.tier_traffic = tier_traffic_of(train);
    }
    if (const int times = std::max(2, options_.most_times);
        cost_.mesh[Axis::pipeline] == 1 && train.repeat.times > times)
      cost_.extrapolated_from = spec_.micro_batches - train.repeat.times + times;
    if (cost_.mesh[Axis::pipeline] > 1) return stages_.push_back(std::move(train));
    simulate_alone(std::move(train));
  }

  /// The step of the rank that takes longest: the first, or the last, whose node may have fewer.
  void simulate_alone(program::Program train) {
    std::vector<int> ranks{train.rank};
    if (cost_.ranks > cost_.machine.ranks_per_node && cost_.ranks % cost_.machine.ranks_per_node != 0)
      ranks.push_back(cost_.mesh.ranks() - 1);
    int longest = train.rank;
    for (const int rank : ranks) {
      train.rank = rank;
      Simulation step = simulate(train, cost_.machine, options_.most_times);
      if (step.seconds <= cost_.step.seconds) continue;
      cost_.step = std::move(step);
      longest = rank;
    }
    if (options_.detail != Detail::all) return;
    // With fewer dependencies collectives may take the links in a worse order; a runner need not do that.
    train.rank = longest;
    forget_reuse(train);
    cost_.seconds_without_reuse =
        std::min(cost_.step.seconds, simulate(train, cost_.machine, options_.most_times).seconds);
  }

  /// A rank of each stage, which wait for each other: the step is that of the last to end.
  void simulate_pipeline() {
    if (stages_.empty()) return;
    std::vector<const program::Program*> programs;
    for (const program::Program& stage : stages_) programs.push_back(&stage);
    std::vector<Simulation> steps = simulate_stages(programs, cost_.machine);
    for (const Simulation& step : steps)
      if (step.seconds > cost_.step.seconds) cost_.step = step;
    for (std::size_t s = 0; s < steps.size(); ++s) {
      // The norm is of all stages: whoever is ready for it earlier waits there.
      const double early = cost_.step.seconds - steps[s].seconds;
      const double waiting = early + exposed_to(steps[s], program::ActionKind::recv) +
                             exposed_to(steps[s], program::ActionKind::send);
      cost_.stages.push_back({stages_[s].rank, blocks_text(stages_[s]), std::move(steps[s]), waiting});
    }
    cost_.seconds_without_reuse = cost_.step.seconds;
    if (options_.detail != Detail::all) return;
    in_parallel(static_cast<int>(stages_.size()), [&](int s) { forget_reuse(stages_[at(s)]); });
    double seconds = 0;
    for (const Simulation& stage : simulate_stages(programs, cost_.machine))
      seconds = std::max(seconds, stage.seconds);
    cost_.seconds_without_reuse = std::min(cost_.step.seconds, seconds);
  }

  Cost& cost_;
  const CostOptions& options_;
  model::Graph graph_;
  program::JobSpec spec_;
  std::vector<program::Program> stages_;  ///< of a pipeline: a rank's of each
};

/// Returns the cost as far as it is known before anything is compiled.
Cost cost_to_compile(const Question& q, const std::vector<std::string>& more, const CostOptions& options) {
  Cost cost;
  if (options.any_batch) {
    cost.deck = deck_of(q, more);
    take_any_batch(cost.deck, q);
  } else {
    cost.deck = resolved_deck(q, more);
  }
  REQUIRE(cost.deck.model.vocab_size > 0, "{}: model.vocab_size is not known without the data: give it",
          q.deck);
  cost.ranks = q.ranks;
  cost.machine = machine_for(q, cost.deck);
  return cost;
}

/// Whether the strategies of both decks, which have all else in common, cut nothing, and so come to the same
/// Programs.
bool cut_nothing(const Cost& a, const Cost& b) {
  const program::JobSpec x = job_spec(a.deck, a.machine.target), y = job_spec(b.deck, b.machine.target);
  return x.mesh == y.mesh && x.mesh.size(state_axes) == 1 &&
         x.units.persistence_threshold == y.units.persistence_threshold &&
         x.sharding.secondary_shards == y.sharding.secondary_shards;
}

}  // namespace

config::Deck resolved_deck(const Question& q, const std::vector<std::string>& more) {
  config::Deck deck = deck_of(q, more);
  config::validate_for_ranks(deck, q.ranks, ranks_per_node(q, deck));
  return deck;
}

const RankMemory& Cost::largest(program::Tier tier) const {
  return *std::max_element(memory.begin(), memory.end(), [&](const RankMemory& a, const RankMemory& b) {
    return a.total(tier) < b.total(tier);
  });
}

double Cost::tokens_per_step() const {
  return static_cast<double>(config::tokens_per_step(deck));
}

double Cost::bubble() const {
  double waiting = 0;
  for (const StageCost& stage : stages) waiting += stage.waiting;
  return stages.empty() ? 0 : waiting / (static_cast<double>(stages.size()) * step.seconds);
}

std::string active_note(std::int64_t active, std::int64_t parameters) {
  return active == parameters ? "" : fmt::format(", of which a token uses {}", format_count(active));
}

double Cost::mfu() const {
  return flops_per_token * tokens_per_second() / (ranks * machine.peak_flops);
}

Cost cost_of(const Question& q, const std::vector<std::string>& more, const CostOptions& options) {
  Cost cost = cost_to_compile(q, more, options);
  Compiler(cost, options).run();
  return cost;
}

Trial try_fit(const Question& q, const std::vector<std::string>& more, const CostOptions& options) {
  Trial trial;
  try {
    Cost cost = cost_to_compile(q, more, options);
    Compiler compiler(cost, options);
    trial.legal = true;
    if (compiler.run_if_it_fits()) trial.cost = std::move(cost);
  } catch (const Error&) {
    return {};
  }
  return trial;
}

Room room_for(const Question& q, const std::vector<std::string>& more, bool any_batch) {
  try {
    const CostOptions options{.any_batch = any_batch, .detail = Detail::memory, .proven = false};
    Cost cost = cost_to_compile(q, more, options);
    return Compiler(cost, options).room();
  } catch (const Error&) {
    return Room::none;
  }
}

std::optional<Cost> cost_with_strategy(const Question& q, const Cost& own, std::string_view strategy) {
  const CostOptions options{.detail = Detail::step, .proven = false};
  try {
    Cost cost = cost_to_compile(q, {fmt::format("sharding.strategy={}", strategy)}, options);
    if (cut_nothing(cost, own)) {
      config::Deck deck = std::move(cost.deck);
      cost = own;
      cost.deck = std::move(deck);
    } else {
      Compiler(cost, options).run();
    }
    return cost;
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::optional<Cost> cost_with_other_overlap(const Question& q, const Cost& own) {
  const config::Deck& deck = own.deck;
  if (deck.mesh.tensor == 1 || !deck.tensor.sequence_parallel) return std::nullopt;
  return cost_if_legal(q, {fmt::format("tensor.overlap={}", !deck.tensor.overlap)},
                       {.detail = Detail::step, .proven = false});
}

std::optional<Cost> cost_if_legal(const Question& q, const std::vector<std::string>& more,
                                  const CostOptions& options) {
  try {
    return cost_of(q, more, options);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace ztrain::plan
