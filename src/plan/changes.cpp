#include "plan/changes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/shape.hpp"
#include "config/validate/validate.hpp"
#include "program/schedules/schedule.hpp"

namespace ztrain::plan {
namespace {

std::string key_of(const std::string& override_text) {
  return override_text.substr(0, override_text.find('='));
}

/// A row that is one of the most frugal setting.
Change frugal(std::vector<std::string> overrides, Effect effect, std::string reason) {
  return {std::move(overrides), effect, std::move(reason), true};
}

// A row: overrides, effect on the numbers, reason. A new knob that saves memory is a row here; one whose
// value depends on the deck goes into changes_for. precision.fp8 is none: what is gathered halves, but codes
// are kept beside the weights, which on few ranks takes more.
std::vector<Change> table() {
  return {
      frugal(recompute_overrides("full"), Effect::none,
             "keeps only each unit's input, and runs its forward again"),
      {recompute_overrides("full", 2), Effect::none, "keeps the activations of every second block"},
      {recompute_overrides("selective", 1, R"(["norm", "swiglu"])"), Effect::none,
       "runs norms and gated activations again"},
      {recompute_overrides("selective", 1, R"(["norm", "qkv", "attention", "ffn"])"), Effect::none,
       "runs all again but the output projection and the feed-forward's last product"},
      {{"sharding.backward_prefetch=post"}, Effect::none, "one gathered unit at a time in backward"},
      frugal({"sharding.forward_prefetch=0", "sharding.backward_prefetch=none"}, Effect::none,
             "one gathered unit at a time; gathers are not hidden"),
      frugal({"sharding.overlap_reduce=false"}, Effect::none,
             "one gradient buffer; reductions are not hidden"),
      frugal({"sharding.reduce_bucket_size=100000000"}, Effect::none, "smaller workspaces of reductions"),
      frugal({"sharding.reshard_after_forward=true"}, Effect::none, "drops gathered units after forward"),
      frugal({"sharding.strategy=FULL_SHARD"}, Effect::rounding,
             "shards parameters, gradients and optimizer"),
      frugal({"sharding.gradient_accumulation=reduce"}, Effect::rounding,
             "accumulates gradients as shards; more traffic"),
      frugal({"mesh.replicate=1", "mesh.shard=-1"}, Effect::rounding, "shards over all ranks, no copies"),
      {{"optimizer.name=adamw_8bit"}, Effect::numerics, "Adam's moments in 1 byte each"},
      {{"precision.preset=deepspeed-bf16"}, Effect::numerics, "gradients and their reduction in 2 bytes"},
      {{"precision.preset=bf16-pure"}, Effect::numerics, "all states in 2 bytes, stochastic rounding"},
      {{"precision.gradients=bf16"}, Effect::numerics, "gradients in 2 bytes instead of 4"},
      {{"precision.moments=bf16"}, Effect::numerics, "Adam's moments in 2 bytes each instead of 4"},
      {{"precision.master=bf16"}, Effect::numerics, "no fp32 master weights"},
      {{"precision.preset=bf16"}, Effect::numerics, "parameters and activations in 2 bytes instead of 4"},
  };
}

/// One sequence at a time, and what halving gives before it: each row multiplies the sets that are tried.
std::vector<Change> micro_rows(const config::Deck& deck) {
  constexpr std::int64_t smallest_part = 8;
  std::vector<Change> rows;
  const std::int64_t micro = deck.batch.micro;
  if (micro > 1)
    rows.push_back(frugal({"batch.micro=1"}, Effect::rounding, "the fewest activations at once"));
  for (std::int64_t part = 2; part <= smallest_part && micro % part == 0 && part < micro; part *= 2)
    rows.push_back({{fmt::format("batch.micro={}", micro / part)},
                    Effect::rounding,
                    fmt::format("1/{} of the activations at once", part)});
  return rows;
}

/// Parts of a micro-batch's tokens, each long enough to fill products.
std::vector<Change> tile_rows(const config::Deck& deck) {
  constexpr std::int64_t least_tokens = 1024;
  if (deck.model.num_experts > 0 || deck.tensor.overlap) return {};
  const std::int64_t tokens =
      deck.batch.micro * deck.data.sequence / std::max<std::int64_t>(1, deck.mesh.context);
  std::vector<Change> rows;
  for (const std::int64_t parts : {8, 32})
    if (parts > deck.recompute.tiles && tokens % parts == 0 && tokens / parts >= least_tokens)
      rows.push_back({{fmt::format("recompute.tiles={}", parts)},
                      Effect::rounding,
                      fmt::format("feed-forwards for 1/{} of the tokens at once, run again", parts)});
  if (!rows.empty()) rows.back().frugal = true;
  return rows;
}

std::vector<Change> offload_rows() {
  return {
      {{"offload.optimizer=cpu", "offload.master=cpu"},
       Effect::none,
       "moments and master weights in the host's memory, stepped there"},
      frugal(
          {"offload.optimizer=cpu", "offload.master=cpu", "offload.gradients=cpu", "offload.parameters=cpu"},
          Effect::none, "all states in the host's memory; parameters are fetched for each gather"),
      frugal({"offload.activations=cpu"}, Effect::none, "activations wait for backward in the host's memory"),
  };
}

/// Only where units may be stepped before the norm is known.
std::vector<Change> early_rows(const config::Deck& deck) {
  if (deck.optimizer.max_norm > 0 || deck.mesh.pipeline != 1 || deck.precision.parameters == DType::f16)
    return {};
  return {
      frugal({"optimizer.during_backward=true"}, Effect::none,
             "gradients go as units are stepped during backward; a step that is not finite ends the run")};
}

/// Returns the schedules that hold less, as far as the model has layers for their stages.
std::vector<Change> schedule_rows(const config::Deck& deck) {
  std::vector<Change> rows{
      {{"pipeline.schedule=1f1b"}, Effect::rounding, "few micro-batches' activations, no late gradients"}};
  const config::PipelineParallel& p = deck.pipeline;
  const bool two_stages = p.layers.empty() && (p.stages_per_rank == 0 || p.stages_per_rank == 2);
  if (!two_stages || 2 * deck.mesh.pipeline > deck.model.num_hidden_layers) return rows;
  rows.push_back({{"pipeline.schedule=v-half"},
                  Effect::rounding,
                  "half of the activations of 1f1b's first rank; late gradients of weights"});
  rows.push_back({{"pipeline.schedule=v-min"},
                  Effect::rounding,
                  "a third of the activations of 1f1b's first rank; more waiting"});
  return rows;
}

std::vector<Change> pipeline_rows(const config::Deck& deck) {
  const std::string& name = deck.pipeline.schedule;
  if (deck.mesh.pipeline == 1) return {};
  std::vector<Change> rows = schedule_rows(deck);
  const auto late = [](const program::Turn& turn) {
    return turn.kind == program::TurnKind::backward_weights;
  };
  if (!deck.pipeline.schedule_is_file()) {
    const program::Schedule schedule = program::find_schedule(name);
    if (std::ranges::none_of(schedule.turns({.micro_batches = 2, .ranks = 2, .chunks = schedule.chunks}),
                             late))
      return rows;
  }
  rows.push_back({{"sharding.gradient_accumulation=no_sync"},
                  Effect::rounding,
                  "one gradient of all blocks; late ones would each wait for their reduction"});
  rows.push_back(frugal({"pipeline.late_weights=kept"}, Effect::none,
                        "gradients of weights at once if their inputs are recomputed"));
  return rows;
}

/// Only where there is room for a copy of the state.
std::vector<Change> snapshot_rows(const config::Deck& deck) {
  if (deck.checkpoint.memory_copies > 0)
    return {frugal(
        {"checkpoint.memory_copies=0"}, Effect::none,
        "no snapshots in the nodes' memory; after a failure the run goes on from its newest checkpoint")};
  if (deck.watchdog.audit_interval > 0)
    return {
        frugal({"watchdog.audit_interval=0", "checkpoint.async=false"}, Effect::none,
               "no copy of the state in the host's memory; no audits, and training waits for checkpoints")};
  if (!config::saves_behind_training(deck)) return {};
  return {frugal({"checkpoint.async=false"}, Effect::none,
                 "no copy of the state in the host's memory; training waits for checkpoints")};
}

/// The same deck but for the mesh, which stays open, would come out.
bool changes(const config::Deck& deck, const Change& change) {
  for (const std::string& text : change.overrides) {
    const std::string key = key_of(text), value = text.substr(key.size() + 1);
    for (const config::Origin& origin : deck.origins)
      if (origin.key == key && origin.value != value && origin.value != '"' + value + '"') return true;
  }
  return false;
}

}  // namespace

std::string_view name_of(Effect effect) {
  constexpr std::array names{"same numbers", "same up to rounding", "other numerics"};
  return names.at(at(effect));
}

std::vector<std::string> recompute_overrides(std::string_view mode, int every, std::string_view pieces) {
  return {fmt::format("recompute.mode={}", mode), fmt::format("recompute.every={}", every),
          fmt::format("recompute.pieces={}", pieces)};
}

bool is_offload(const Change& change) {
  return change.overrides.front().starts_with("offload.");
}

bool is_tiling(const Change& change) {
  return change.overrides.front().starts_with("recompute.tiles=");
}

std::vector<Change> changes_for(const config::Deck& deck) {
  std::vector<Change> all = table();
  for (const auto& rows : {tile_rows(deck), offload_rows(), pipeline_rows(deck), early_rows(deck),
                           snapshot_rows(deck), micro_rows(deck)})
    all.insert(all.end(), rows.begin(), rows.end());
  std::erase_if(all, [&](const Change& change) { return !changes(deck, change); });
  return all;
}

bool compatible(const Change& a, const Change& b) {
  return std::ranges::none_of(a.overrides, [&](const std::string& x) {
    return std::ranges::count(b.overrides, key_of(x), key_of) > 0;
  });
}

std::string command_line(const std::vector<std::string>& overrides) {
  std::string text;
  for (const std::string& o : overrides) {
    const bool plain = o.find_first_of("\" []{}*?$") == std::string::npos;
    text += fmt::format("{}{}", text.empty() ? "" : " ", plain ? "--" + o : "'--" + o + "'");
  }
  return text;
}

}  // namespace ztrain::plan
