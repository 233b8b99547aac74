#include "plan/cost.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "config/fields.hpp"
#include "config/load.hpp"
#include "config/validate.hpp"
#include "model/family.hpp"
#include "plan/setup.hpp"
#include "program/passes.hpp"

namespace ztrain::plan {
namespace {

/// Overrides that leave no path in the sections that only a run reads.
std::vector<std::string> without_paths() {
  std::vector<std::string> overrides;
  for (const config::Field& f : config::fields()) {
    const std::string section = f.section();
    if (f.path == config::PathKind::none ||
        (section != "run" && section != "data" && section != "checkpoint"))
      continue;
    const bool list = config::type_name(f) == "list of strings";
    overrides.push_back(f.key + "=" + (list ? "[\"none\"]" : f.standard));
  }
  overrides.emplace_back("data.weights=[]");  // of the files that were there
  return overrides;
}

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

std::vector<int> ranks_to_compile(const MeshShape& mesh, bool last_rank) {
  std::vector<int> ranks;
  const int stages = mesh[Axis::pipeline], stage = mesh.ranks() / stages;
  for (int s = 0; s < stages; ++s) ranks.push_back(s * stage);
  if (last_rank && ranks.back() != mesh.ranks() - 1) ranks.push_back(mesh.ranks() - 1);
  return ranks;
}

/// A step of n micro-batches, from steps of `fewer` and of fewer + 1.
Simulation extrapolate(const Simulation& a, const Simulation& b, std::int64_t fewer, std::int64_t n) {
  const auto further = static_cast<double>(n - fewer);
  const auto line = [&](double x, double y) { return std::max(0.0, x + further * (y - x)); };
  Simulation s = b;
  s.seconds = line(a.seconds, b.seconds);
  s.flops = line(a.flops, b.flops);
  s.exposed = line(a.exposed, b.exposed);
  const auto lines = [&](ByAction& to, const ByAction& x, const ByAction& y) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = line(x[i], y[i]);
  };
  for (std::size_t i = 0; i < s.busy.size(); ++i) lines(s.busy[i], a.busy[i], b.busy[i]);
  lines(s.exposed_by, a.exposed_by, b.exposed_by);
  lines(s.critical_by, a.critical_by, b.critical_by);
  return s;
}

/// Inputs are kept for every micro-batch: what is kept grows by what the last one added.
void extrapolate(const RankMemory& a, RankMemory& b, std::int64_t further) {
  for (std::size_t p = 0; p < b.programs.size(); ++p)
    for (std::size_t t = 0; t < b.programs[p].tiers.size(); ++t) {
      std::int64_t& kept = b.programs[p].tiers[t].persistent_bytes;
      kept += further * (kept - a.programs[p].tiers[t].persistent_bytes);
      for (MemoryRow& row : b.programs[p].rows[t])
        for (const MemoryRow& less : a.programs[p].rows[t])
          if (less.category == row.category)
            row.persistent_bytes += further * (row.persistent_bytes - less.persistent_bytes);
    }
}

/// The step as if no bytes were reused.
Simulation simulate_without_reuse(program::Program step, const Machine& machine) {
  for (program::Op& op : step.ops) op.after.clear();
  link_dependencies(step);
  return simulate(step, machine);
}

/// One rank's step, simulated.
struct RankStep {
  Simulation step, without_reuse;
  std::vector<TrafficRow> traffic;
};

class Compiler {
 public:
  Compiler(Cost& cost, const CostOptions& options)
      : cost_(cost),
        options_(options),
        graph_(training_graph(cost.deck)),
        spec_(job_spec(cost.deck, cost.machine.target)) {
    for (const model::Parameter& p : graph_.parameters) {
      cost.parameters += elements(p.shape);
      cost.trained += p.trainable ? elements(p.shape) : 0;
    }
    cost.mesh = spec_.mesh;
    cost.flops_per_token = model::flops_per_token(cost.deck.model, graph_, cost.deck.data.sequence);
  }

  void run() {
    const int n = spec_.micro_batches, most = std::max(2, options_.most_micro_batches);
    if (n > most) cost_.extrapolated_from = spec_.micro_batches = most;
    for (const int rank : ranks_to_compile(cost_.mesh, options_.last_rank)) add(rank, n);
  }

 private:
  void add(int rank, int micro_batches) {
    const program::Job job = program::compile(graph_, spec_, rank);
    cost_.memory.push_back(memory_of(job));
    if (rank == 0) cost_.ops = job.train.ops.size();
    RankStep all = simulated(job);
    if (cost_.extrapolated_from > 0) {
      program::JobSpec fewer = spec_;
      const int less = --fewer.micro_batches;
      const program::Job fewer_job = program::compile(graph_, fewer, rank);
      extrapolate(memory_of(fewer_job), cost_.memory.back(), micro_batches - spec_.micro_batches);
      const RankStep before = simulated(fewer_job);
      all.step = extrapolate(before.step, all.step, less, micro_batches);
      all.without_reuse = extrapolate(before.without_reuse, all.without_reuse, less, micro_batches);
      all.traffic = plan::extrapolate(before.traffic, all.traffic, less, micro_batches);
    }
    if (rank == 0) cost_.traffic = std::move(all.traffic);
    if (all.step.seconds <= cost_.step.seconds) return;
    cost_.step = std::move(all.step);
    cost_.seconds_without_reuse = all.without_reuse.seconds;
  }

  RankStep simulated(const program::Job& job) const {
    RankStep step{simulate(job.train, cost_.machine), simulate_without_reuse(job.train, cost_.machine),
                  traffic_of(job.train)};
    // With fewer dependencies collectives may take the links in a worse order; a runner need not do that.
    step.without_reuse.seconds = std::min(step.without_reuse.seconds, step.step.seconds);
    return step;
  }

  Cost& cost_;
  const CostOptions& options_;
  model::Graph graph_;
  program::JobSpec spec_;
};

}  // namespace

config::Deck deck_of(const Question& q, const std::vector<std::string>& more) {
  std::vector<std::string> overrides = q.overrides;
  overrides.insert(overrides.end(), more.begin(), more.end());
  const std::vector<std::string> paths = without_paths();
  overrides.insert(overrides.end(), paths.begin(), paths.end());
  config::Deck deck = config::load_deck(q.deck, overrides, config::Files::elsewhere);
  if (deck.model.vocab_size == 0) deck.model.vocab_size = q.vocabulary;
  return deck;
}

Machine machine_for(const Question& q, const config::Deck& deck) {
  Machine m = machine_of(deck);
  m.ranks_per_node = q.limits.ranks_per_node.value_or(m.ranks_per_node);
  m.device_memory = q.limits.device_memory.value_or(m.device_memory);
  // The assumed device's context goes with the device.
  if (m.device_memory <= 0) m.outside_memory = deck.cluster.outside_memory * 1e9;
  m.host_memory = q.limits.host_memory.value_or(m.host_memory);
  m.outside_memory = q.limits.outside_memory.value_or(m.outside_memory);
  m.target = q.limits.target.value_or(m.target);
  return m;
}

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

double Cost::mfu() const {
  return flops_per_token * tokens_per_second() / (ranks * machine.peak_flops);
}

Cost cost_of(const Question& q, const std::vector<std::string>& more, const CostOptions& options) {
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
  Compiler(cost, options).run();
  return cost;
}

std::optional<Cost> cost_if_legal(const Question& q, const std::vector<std::string>& more,
                                  const CostOptions& options) {
  try {
    return cost_of(q, more, options);
  } catch (const Error&) {
    return std::nullopt;
  }
}

Verdict verdict_of(const Cost& c) {
  const Machine& m = c.machine;
  const auto held = [&](program::Tier tier) { return static_cast<double>(c.largest(tier).total(tier)); };
  const double device = held(program::Tier::device) + m.outside_memory, host = held(program::Tier::host);
  const double on_node = std::min(c.ranks, m.ranks_per_node);
  Verdict v;
  v.device_limit = m.device_memory;
  v.node_limit = m.host_memory;
  v.device_needed = device;
  v.node_needed = on_node * (m.device_memory > 0 ? host : host + device);
  return v;
}

}  // namespace ztrain::plan
