#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "base/text.hpp"
#include "config/fields/value.hpp"
#include "config/strategy.hpp"
#include "config/validate/refusals.hpp"
#include "config/validate/validate.hpp"
#include "config/validate/validate_rules.hpp"

namespace ztrain::config {
namespace {

struct AxisDegree {
  const char* key;
  std::int64_t& degree;
};
std::array<AxisDegree, 5> axes(Mesh& mesh) {
  return {AxisDegree{"mesh.pipeline", mesh.pipeline}, AxisDegree{"mesh.replicate", mesh.replicate},
          AxisDegree{"mesh.shard", mesh.shard}, AxisDegree{"mesh.context", mesh.context},
          AxisDegree{"mesh.tensor", mesh.tensor}};
}

std::string mesh_equation(Deck& deck) {
  std::vector<std::string> factors;
  for (const auto& axis : axes(deck.mesh)) factors.push_back(fmt::format("{} ({})", axis.key, axis.degree));
  return fmt::format("{}", fmt::join(factors, " x "));
}

/// Returns cluster.ranks_per_node if the deck itself gives it, else `launched`. A preset's number describes
/// the nodes of its maker.
int ranks_per_node_of(const Deck& deck, int launched) {
  const auto given =
      is_explicit(deck, "cluster.ranks_per_node") ? static_cast<int>(deck.cluster.ranks_per_node) : 0;
  return given > 0 ? given : launched;
}

/// Places a strategy that stays within a node, if the deck leaves shard or replicate open: copies fill the
/// rest.
void place_hybrid(Deck& deck, int ranks) {
  const bool replicate_given = is_explicit(deck, "mesh.replicate") && deck.mesh.replicate != -1;
  if (!find_strategy(deck.sharding.strategy).within_node || replicate_given) return;
  if (!is_explicit(deck, "mesh.shard")) {
    // The ranks of a stage are neighbours, and share no state with those of another.
    const std::int64_t stages = std::max<std::int64_t>(1, deck.mesh.pipeline);
    if (ranks % stages != 0) return;  // resolve_mesh reports this
    const int own = static_cast<int>(ranks / stages);
    const int per_node = std::min(static_cast<int>(deck.mesh.per_node), own);
    const std::string source = source_of(deck, "sharding.strategy");
    if (per_node <= 0 || own % per_node != 0)
      refuse(deck, "sharding.strategy mesh.shard mesh.pipeline",
             {{"strategy", deck.sharding.strategy},
              {"source", source},
              {"ranks", own},
              {"stages", stages > 1 ? fmt::format(" of each of mesh.pipeline's {} stages", stages) : ""},
              {"node", per_node},
              {"legal", nearest_divisors(own, std::max(per_node, 1))}});
    const std::int64_t beside =
        std::max<std::int64_t>(1, deck.mesh.tensor) * std::max<std::int64_t>(1, deck.mesh.context);
    if (per_node % beside != 0)
      refuse(deck, "sharding.strategy mesh.tensor mesh.context",
             {{"strategy", deck.sharding.strategy},
              {"source", source},
              {"beside", beside},
              {"node", per_node},
              {"stages", stages > 1 ? " of a stage" : ""}});
    deck.mesh.shard = per_node / beside;
    set_source(deck, "mesh.shard",
               fmt::format("{}, {} ranks per node{}", deck.sharding.strategy, per_node,
                           stages > 1 ? " and stage" : ""));
  }
  const auto all = axes(deck.mesh);
  if (std::none_of(all.begin(), all.end(), [](const AxisDegree& a) { return a.degree == -1; })) {
    deck.mesh.replicate = -1;
  }
}

void resolve_mesh(Deck& deck, int ranks) {
  const std::string equation = mesh_equation(deck);
  const AxisDegree* open = nullptr;
  std::int64_t product = 1;
  const auto all = axes(deck.mesh);
  for (const auto& axis : all) {
    if (axis.degree == -1)
      open = &axis;
    else
      product *= axis.degree;
  }
  if (open != nullptr) {
    const std::int64_t below = ranks / product * product, above = round_up(ranks, product);
    REQUIRE(ranks % product == 0,
            "{}: {} = -1 cannot be resolved: the other degrees of {} multiply to {}, which does not divide "
            "the job's {} ranks; nearest legal numbers of ranks: {}{}",
            source_of(deck, open->key), open->key, equation, product, ranks,
            below > 0 ? fmt::format("{} or ", below) : "", above);
    open->degree = ranks / product;
    set_source(deck, open->key, fmt::format("{} ranks / {}", ranks, product));
    return;
  }
  REQUIRE(product == ranks,
          "{} = {}, but the job has {}: launch {}, or set one degree to -1 and it becomes what is left",
          equation, product, count_text(ranks, "rank"), product);
}

/// Each micro-batch has inputs of its own in a step. The limit is far beyond any training.
constexpr std::int64_t most_accumulation = 1 << 16;

void check_batch(const Deck& deck) {
  const std::int64_t per_micro = deck.batch.micro * data_parallel_degree(deck);
  const std::string ranks = fmt::to_string(data_parallel_degree(deck));
  if (deck.batch.global / per_micro > most_accumulation)
    refuse(deck, "batch.global batch.micro",
           {{"accumulation", deck.batch.global / per_micro},
            {"ranks", ranks},
            {"most", most_accumulation},
            {"legal", most_accumulation * per_micro}});
  if (deck.batch.global % per_micro == 0) return;
  const std::int64_t below = deck.batch.global / per_micro * per_micro, above = below + per_micro;
  const std::int64_t of_rank = deck.batch.global / data_parallel_degree(deck);
  const std::string micro =
      deck.batch.global % data_parallel_degree(deck) != 0
          ? ""
          : fmt::format(", or batch.micro = {}", nearest_divisors(of_rank, deck.batch.micro, 2));
  const double accumulation = static_cast<double>(deck.batch.global) / static_cast<double>(per_micro);
  refuse(deck, "batch.global batch.micro mesh.replicate mesh.shard",
         {{"ranks", ranks},
          {"accumulation", fmt::format("{:.4g}", accumulation)},
          {"legal", fmt::format("{}{}{}", below > 0 ? fmt::format("{} or ", below) : "", above, micro)}});
}

/// Checks reshard_after_forward = N: groups of N ranks within the shard group.
void check_reshard(const Deck& deck) {
  const std::int64_t group = reshard_group(deck), shard = deck.mesh.shard;
  if (group % deck.mesh.expert != 0)
    refuse(deck, "sharding.reshard_after_forward mesh.expert", {{"group", group}});
  if (group == 0 || shard % group == 0) return;
  refuse(deck, "sharding.reshard_after_forward mesh.shard",
         {{"group", group}, {"legal", shard == 1 ? "true" : nearest_divisors(shard, group, 2)}});
}

}  // namespace

void check_mesh(Deck& deck) {
  std::vector<std::string> open;
  for (const auto& axis : axes(deck.mesh)) {
    if (axis.degree == -1) open.push_back(fmt::format("{} ({})", axis.key, source_of(deck, axis.key)));
  }
  // The default of mesh.shard is -1. It gives way to another degree that was set to -1.
  if (open.size() == 2 && deck.mesh.shard == -1 && !is_explicit(deck, "mesh.shard")) {
    deck.mesh.shard = 1;
    set_source(deck, "mesh.shard", "another degree is -1");
    return;
  }
  if (open.size() >= 2)
    refuse(deck, "mesh.pipeline mesh.replicate mesh.shard mesh.context mesh.tensor",
           {{"open", fmt::join(open, " and ")}});
}

void validate_for_ranks(Deck& deck, int ranks, int ranks_per_node) {
  REQUIRE(ranks > 0, "a job needs at least one rank, not {}", ranks);
  deck.mesh.per_node = ranks_per_node_of(deck, ranks_per_node);
  place_hybrid(deck, ranks);
  resolve_mesh(deck, ranks);
  // Degrees that were -1 are known now.
  for (const Refusal& row : refusals())
    if (row.keys.starts_with("mesh.")) check_refusal(row, deck);
  check_batch(deck);
  check_reshard(deck);
  for (std::size_t i = 0; i < deck.origins.size(); ++i) deck.origins[i].value = render(fields()[i], deck);
}

}  // namespace ztrain::config
