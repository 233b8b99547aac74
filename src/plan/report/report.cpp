#include "plan/report/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <future>

#include "base/shape.hpp"
#include "base/text.hpp"
#include "config/strategy.hpp"
#include "config/text/print.hpp"
#include "config/validate/validate.hpp"
#include "optim/optimizer.hpp"
#include "plan/published.hpp"
#include "plan/report/report_parts.hpp"
#include "plan/zero_paper.hpp"

namespace ztrain::plan {
namespace {

using program::Tier;

std::string seconds(double s) {
  return s < 1 ? fmt::format("{:.2f} ms", 1000 * s) : fmt::format("{:.3f} s", s);
}

std::string title(const Plan& p) {
  const int per_node = p.cost.machine.ranks_per_node;
  return fmt::format("plan of {} on {}, {} of {}\n", p.question.deck, count_text(p.cost.ranks, "rank"),
                     count_text(ceil_div(p.cost.ranks, per_node), "node"), per_node);
}

std::string model_section(const Cost& c) {
  const config::Deck& d = c.deck;
  std::string text = heading("Model and batch");
  text += line("model", fmt::format("{}, {} parameters{}", d.model.preset, format_count(c.parameters),
                                    active_note(c.active, c.parameters)));
  const std::string trained = config::trained_summary(d, c.trained, c.parameters);
  if (!trained.empty()) text += line("trained", trained);
  text += line("mesh", c.mesh.describe());
  const int per_node = std::min(c.ranks, c.machine.ranks_per_node);
  if (const AxisSet across = axes_across_nodes(c.mesh, [&](int rank) { return rank / per_node; });
      !across.empty())
    text += line("nodes", note_on_nodes(across));
  text += line("strategy", config::strategy_summary(d));
  if (const std::string attention = config::attention_summary(d); !attention.empty())
    text += line("attention", attention);
  text += line("precision", config::precision_summary(d));
  text += line("optimizer", config::optimizer_summary(d));
  if (const std::string offload = config::offload_summary(d); !offload.empty())
    text += line("offload", offload);
  text += line("tokens a step",
               fmt::format("{:.0f} = {} micro x {} data-parallel ranks x {} accumulation x {} sequence",
                           c.tokens_per_step(), d.batch.micro, config::data_parallel_degree(d),
                           config::accumulation_steps(d), d.data.sequence));
  text += line("FLOPs a step",
               fmt::format("{:.3g} = {:.4g} a token; each rank computes {:.3g}{}",
                           c.flops_per_token * c.tokens_per_step(), c.flops_per_token, c.step.flops,
                           d.recompute.mode == "none" ? "" : ", with what it recomputes"));
  return text;
}

const ProgramMemory& program_named(const RankMemory& m, const std::string& name) {
  return *std::find_if(m.programs.begin(), m.programs.end(),
                       [&](const ProgramMemory& p) { return p.name == name; });
}

/// Categories of the train step, then the arena.
std::string category_table(const RankMemory& m, Tier tier) {
  Table table({fmt::format("{} memory", name_of(tier)), "kept", "at the peak of a step"});
  for (const MemoryRow& row : program_named(m, "train step").rows[static_cast<std::size_t>(tier)])
    table.row({row.category, size(row.persistent_bytes), size(row.peak_bytes)});
  table.rule();
  table.row({"arena", size(m.persistent(tier)), size(m.transient(tier))});
  return table.text(2);
}

std::string program_table(const RankMemory& m, Tier tier) {
  Table table({"program", "kept", "transient", "total"});
  for (const ProgramMemory& p : m.programs) {
    const program::TierPlan& plan = p.tiers[static_cast<std::size_t>(tier)];
    table.row({p.name, size(plan.persistent_bytes), size(plan.transient_bytes),
               size(plan.persistent_bytes + plan.transient_bytes)});
  }
  table.row({"save", "", "",
             copied_bytes(m) > 0 ? "none: of copies in the host's memory" : "none: written in place"});
  return table.text(2);
}

std::string stage_table(const Cost& c) {
  if (!c.stages.empty()) return "";  // they have a table of their own
  const auto total = [](const RankMemory& m, Tier tier) { return m.total(tier); };
  const RankMemory& first = c.memory.front();
  const bool same = std::all_of(c.memory.begin(), c.memory.end(), [&](const RankMemory& m) {
    return total(m, Tier::device) == total(first, Tier::device) &&
           total(m, Tier::host) == total(first, Tier::host);
  });
  if (same) return "";
  Table table({"rank", "device", "host"});
  for (const RankMemory& m : c.memory)
    table.row({fmt::to_string(m.rank), size(total(m, Tier::device)), size(total(m, Tier::host))});
  return fmt::format("\n{}", table.text(2));
}

/// What of the peak the classic formula has no term for.
double beside_states(const RankMemory& m) {
  double bytes = 0;
  for (const MemoryRow& row : program_named(m, "train step").rows[static_cast<std::size_t>(Tier::device)])
    if (row.category == name_of(program::Category::gathered) ||
        row.category == name_of(program::Category::activation) ||
        row.category == name_of(program::Category::workspace))
      bytes += static_cast<double>(row.persistent_bytes + row.peak_bytes);
  return bytes;
}

std::string strategies_table(const std::vector<Cost>& costs) {
  Table table({"strategy", "formula", "kept between steps", "in all", "a step"});
  for (const Cost& c : costs) {
    const RankMemory& m = c.largest(Tier::device);
    table.row({c.deck.sharding.strategy, size(zero_paper_of(c)), size(m.persistent(Tier::device)),
               size(m.total(Tier::device)), seconds(c.step.seconds)});
  }
  return table.text(2);
}

std::string zero_paper_section(const Cost& c, const std::vector<Cost>& strategies) {
  const config::Precision& p = c.deck.precision;
  const RankMemory& m = c.largest(Tier::device);
  std::string text = heading("Beside the classic formula (16 bytes of state a parameter)");
  text += line("formula", size(zero_paper_of(c)) + ", states alone");
  text += line("this plan", fmt::format("{}; gathered units, activations, workspaces at its peak: {}",
                                        size(m.total(Tier::device)), size(beside_states(m))));
  text += line("bytes",
               fmt::format("{} + {} + {:.4g} of weight, gradient, master with {}; the formula has 2 + 2 + 12",
                           size_of(p.parameters), size_of(p.gradients), optimizer_bytes_of(c.deck),
                           c.deck.optimizer.name));
  text += line("gradients", "live from backward to the optimizer's step; the formula keeps them always");
  return strategies.empty() ? text : text + "\n" + strategies_table(strategies);
}

std::string memory_section(const Cost& c, const std::vector<Cost>& strategies) {
  const RankMemory& device = c.largest(Tier::device);
  const RankMemory& host = c.largest(Tier::host);
  std::string text = heading("Memory per rank (of the rank that needs most)");
  text += fmt::format("{}\n{}", category_table(device, Tier::device), program_table(device, Tier::device));
  if (host.total(Tier::host) > 0) text += fmt::format("\n{}", category_table(host, Tier::host));
  const RankMemory& nvme = c.largest(Tier::nvme);
  if (nvme.total(Tier::nvme) > 0) text += fmt::format("\n{}", category_table(nvme, Tier::nvme));
  return text + stage_table(c) + zero_paper_section(c, strategies);
}

/// Axes of one rank only say nothing.
std::string axes_text(const TrafficRow& row, const MeshShape& mesh) {
  AxisSet axes;
  for (int i = 0; i < axis_count; ++i) {
    const auto axis = static_cast<Axis>(i);
    if (row.axes.contains(axis) && mesh[axis] > 1) axes = axes | axis;
    if (row.axes.contains_outer(axis)) axes = axes | AxisSet::outer(axis);
    if (row.axes.contains_inner(axis) && mesh.inner_of(axis) > 1) axes = axes | AxisSet::inner(axis);
  }
  return row.axes == AxisSet::all() ? "all ranks" : to_string(axes);
}

/// The few sizes that carry most, "80 x 1.71 GB, 2 x 2.10 GB".
std::string sizes_text(const TrafficRow& row) {
  std::vector<std::pair<std::int64_t, std::int64_t>> sizes(row.sizes.begin(), row.sizes.end());
  std::stable_sort(sizes.begin(), sizes.end(),
                   [](const auto& a, const auto& b) { return a.first * a.second > b.first * b.second; });
  std::string text;
  for (std::size_t i = 0; i < sizes.size() && i < 2; ++i)
    text += fmt::format("{}{} x {}", i == 0 ? "" : ", ", sizes[i].second, size(sizes[i].first));
  return sizes.size() > 2 ? text + ", ..." : text;
}

std::string traffic_section(const Cost& c) {
  std::string text = heading("Traffic (bytes that each rank sends in a step)");
  if (c.traffic.empty()) return text + "  none\n" + text_of(c.tier_traffic);
  Table table({"axes", "collective", "ranks", "calls", "bytes", "out of node", "largest parts"});
  double out_of_node = 0;
  for (const TrafficRow& row : c.traffic) {
    out_of_node += row.out_of_node;
    table.row({axes_text(row, c.mesh), std::string(name_of(row.kind)), fmt::to_string(row.members),
               fmt::to_string(row.messages), size(row.bytes), size(std::llround(row.out_of_node)),
               sizes_text(row)});
  }
  table.rule();
  table.row({"total", "", "", fmt::to_string(total_messages(c.traffic)), size(total_bytes(c.traffic)),
             size(std::llround(out_of_node))});
  return text + table.text(2) + text_of(c.tier_traffic);
}

/// "forward 25.1%, backward 50.3%": shares of the seconds given, the largest first.
std::string shares(const ByAction& by, double whole) {
  std::vector<std::pair<double, std::string>> parts;
  for (std::size_t i = 0; i < by.size(); ++i)
    if (by[i] > 0.005 * whole)
      parts.emplace_back(by[i], std::string(name_of(static_cast<program::ActionKind>(i))));
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text;
  for (const auto& [value, name] : parts)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, percent(value / whole));
  return text.empty() ? "none" : text;
}

/// The stages of a pipeline, and what they wait for each other.
std::string pipeline_lines(const Cost& c) {
  std::string text = line("pipeline", fmt::format("{}: ranks wait for each other {} of the step on average",
                                                  c.deck.pipeline.schedule, percent(c.bubble())));
  Table table({"rank", "device", "host", "waits", "blocks"});
  for (std::size_t s = 0; s < c.stages.size(); ++s) {
    const StageCost& stage = c.stages[s];
    table.row({fmt::to_string(stage.rank), size(c.memory[s].total(Tier::device)),
               size(c.memory[s].total(Tier::host)), percent(stage.waiting / c.step.seconds), stage.blocks});
  }
  return fmt::format("{}\n{}\n", text, table.text(2));
}

/// What overlap of tensor communication gives.
std::string overlap_lines(const Cost& own, const Cost& other) {
  std::string text;
  for (const Cost* c : {&own, &other})
    text += line(c == &own ? "tensor.overlap" : "",
                 fmt::format("{}: {} a step, of which {} wait for communication", c->deck.tensor.overlap,
                             seconds(c->step.seconds), percent(c->step.exposed / c->step.seconds)));
  return text;
}

/// Faster ways of summing gradients.
std::string sums_lines(const std::vector<OtherSums>& others) {
  std::string text;
  for (const OtherSums& o : others) {
    text += line(text.empty() ? "faster sums" : "",
                 fmt::format("{}: {} a step, {} per rank, other {}", command_line(o.change.overrides),
                             seconds(o.cost.step.seconds), size(verdict_of(o.cost).device_needed),
                             o.change.effect == Effect::rounding ? "rounding" : "numerics"));
    text += line("", o.change.reason);
  }
  return text;
}

/// What others measured that comes nearest.
std::string published_line(const Cost& c) {
  const auto near = nearest_published(c);
  return near ? line("published", fmt::format("{} tokens/s per rank: {} ({} parameters, sequences of {})",
                                              grouped(near->tokens), near->source,
                                              format_count(near->parameters), grouped(near->sequence)))
              : "";
}

std::string time_section(const Plan& plan) {
  const Cost& c = plan.cost;
  const Machine& m = c.machine;
  const Simulation& s = c.step;
  std::string text = heading("Time (an estimate: a roofline over the step's ops, not a measurement)");
  text += line(
      "machine",
      fmt::format("{:.4g} TFLOP/s x {:.2f}, {:.0f} GB/s x {:.2f}; links {:.0f} GB/s in a node, {:.0f} out",
                  m.peak_flops / 1e12, m.compute_efficiency, m.memory_bandwidth / 1e9, m.memory_efficiency,
                  m.intra_node_bandwidth / 1e9, m.inter_node_bandwidth / 1e9));
  if (m.peak_assumed)
    text += line(
        "", fmt::format("the peak is assumed: an H100 SXM's for parameters in {}, until cluster.preset or "
                        "cluster.peak_tflops gives another",
                        name_of(c.deck.precision.parameters)));
  text += line("step", fmt::format("{}: {} tokens/s, {} per rank, MFU {}", seconds(s.seconds),
                                   grouped(c.tokens_per_second()), grouped(c.tokens_per_second() / c.ranks),
                                   percent(c.mfu())));
  text += published_line(c);
  text += run_line(c);
  ByAction communicating{};
  for (std::size_t i = 0; i < s.busy.size(); ++i)
    if (i != static_cast<std::size_t>(program::Stream::compute))
      for (std::size_t k = 0; k < communicating.size(); ++k) communicating[k] += s.busy[i][k];
  text += line("computing", shares(s.busy[static_cast<std::size_t>(program::Stream::compute)], s.seconds));
  text += line("other streams", shares(communicating, s.seconds));
  const std::string awaited = shares(s.exposed_by, s.seconds);
  text += line("exposed",
               percent(s.exposed / s.seconds) + (awaited == "none" ? "" : ", waiting for: " + awaited));
  if (s.seconds > 1.001 * c.seconds_without_reuse)
    text += line("memory reuse", fmt::format("{} of the step goes by waiting for bytes to become free",
                                             percent(1 - c.seconds_without_reuse / s.seconds)));
  if (!c.stages.empty()) text += pipeline_lines(c);
  if (plan.other_overlap) text += overlap_lines(c, *plan.other_overlap);
  text += sums_lines(plan.other_sums);
  if (c.extrapolated_from > 0)
    text += line("", fmt::format("extrapolated from {} of {} micro-batches", c.extrapolated_from,
                                 config::accumulation_steps(c.deck)));
  return text;
}

std::string against(double needed, double limit, bool fits) {
  if (limit <= 0)
    return fmt::format("{} needed; not checked: the deck does not say how much there is", size(needed));
  return fmt::format("{} of {} ({:.0f}%): {}", size(needed), size(limit), 100 * needed / limit,
                     fits ? "fits" : "does not fit");
}

std::string verdict_section(const Cost& c) {
  const Verdict v = verdict_of(c);
  std::string text = heading("Does it fit?");
  const std::string beside = fmt::format("; {} of it outside of the plan", size(c.machine.outside_memory));
  const bool has_device = c.machine.device_memory > 0;
  if (has_device) text += line("device", against(v.device_needed, v.device_limit, v.device_fits()) + beside);
  if (c.machine.device_assumed)
    text += line("", "assumed to be an H100: cluster.preset or cluster.device_memory gives another");
  text += line(has_device ? "node, host tier" : "node", against(v.node_needed, v.node_limit, v.node_fits()));
  text +=
      line("", fmt::format("{} of it to write and read checkpoints through", size(checkpoints_on_node(c))));
  if (const double snapshots = snapshots_on_node(c); snapshots > 0)
    text += line("", fmt::format("{} of it for snapshots (checkpoint.memory_copies)", size(snapshots)));
  text += line("checkpoints", config::saving_summary(c.deck, c.checkpoint_bytes));
  text += interval_lines(c);
  const auto on_nvme = static_cast<double>(c.largest(Tier::nvme).total(Tier::nvme));
  if (on_nvme > 0)
    text += line("node, NVMe", fmt::format("{} needed; a run reserves it when it starts",
                                           size(on_nvme * std::min(c.ranks, c.machine.ranks_per_node))));
  return text;
}

}  // namespace

std::vector<Cost> costs_by_strategy(const Question& question, const Cost& own) {
  // Each compiles Programs of its own, from nothing that the others write.
  std::vector<std::future<std::optional<Cost>>> others;
  for (const config::Strategy& s : config::strategies()) {
    if (s.within_node && s.name != own.deck.sharding.strategy) continue;
    others.push_back(std::async(std::launch::async, [&question, &own, &s]() -> std::optional<Cost> {
      if (s.name == own.deck.sharding.strategy) return own;
      return cost_with_strategy(question, own, s.name);
    }));
  }
  std::vector<Cost> costs;
  for (auto& other : others)
    if (auto cost = other.get()) costs.push_back(std::move(*cost));
  return costs;
}

double zero_paper_of(const Cost& c) {
  const config::Strategy& strategy = config::find_strategy(c.deck.sharding.strategy);
  const int shards = c.mesh.size(state_axes), slices = c.mesh[Axis::pipeline] * c.mesh[Axis::tensor];
  return zero_paper_bytes(static_cast<double>(c.trained) / slices, strategy, shards,
                          static_cast<double>(c.parameters - c.trained) / slices);
}

std::string report_text(const Plan& plan) {
  std::string text = title(plan) + model_section(plan.cost) + memory_section(plan.cost, plan.strategies) +
                     traffic_section(plan.cost) + time_section(plan) + verdict_section(plan.cost);
  if (plan.search) text += search_section(*plan.search, plan.question.ranks);
  if (plan.fixes) text += fixes_section(*plan.fixes);
  for (const std::string& note : plan.notes) text += fmt::format("note: {}\n", note);
  return text;
}

}  // namespace ztrain::plan
