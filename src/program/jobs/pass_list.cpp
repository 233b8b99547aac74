#include "program/jobs/pass_list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <span>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "model/fp8.hpp"
#include "model/kv_cache.hpp"
#include "model/lora.hpp"
#include "model/quantize.hpp"
#include "model/trainable.hpp"
#include "program/codes/quantized.hpp"
#include "program/codes/sign_sums.hpp"
#include "program/experts/expert_report.hpp"
#include "program/experts/spread_experts.hpp"
#include "program/jobs/preference_report.hpp"
#include "program/jobs/prove.hpp"
#include "program/loops/loop.hpp"
#include "program/loops/repeat.hpp"
#include "program/ops/emit.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/final_passes.hpp"
#include "program/passes/fusion.hpp"
#include "program/passes/join_products.hpp"
#include "program/passes/matrix_step.hpp"
#include "program/passes/offload.hpp"
#include "program/passes/optimizer.hpp"
#include "program/passes/overlap.hpp"
#include "program/passes/weight_codes.hpp"
#include "program/tiles/tile.hpp"

namespace ztrain::program {
namespace {

using ModelPass = void (*)(model::Graph&, const config::Deck&, const model::Request&);
using GraphPass = void (*)(RankGraph&);

/// The kinds of Programs that a pass is for.
class Kinds {
 public:
  constexpr Kinds(std::initializer_list<ProgramKind> members) {
    for (const ProgramKind kind : members) bits_ |= bit(kind);
  }
  constexpr bool contains(ProgramKind kind) const { return (bits_ & bit(kind)) != 0; }

 private:
  static constexpr unsigned bit(ProgramKind kind) { return 1U << static_cast<unsigned>(kind); }
  unsigned bits_ = 0;
};

struct ProgramPass {
  Kinds kinds;
  void (*apply)(Making&);
};

/// By chunk: its blocks. Of one stage they are cut as evenly as can be.
std::vector<std::pair<int, int>> chunks_of(const Base& base, const JobSpec& spec) {
  std::vector<std::pair<int, int>> chunks;
  const int count = spec.schedule.chunks, blocks = static_cast<int>(base.graph.blocks.size());
  for (int c = 0; c < count; ++c)
    chunks.push_back(base.stages.begins.empty()
                         ? std::pair{c * blocks / count, (c + 1) * blocks / count}
                         : base.stages.blocks(base.stages.map.stage_of(base.cut.at[Axis::pipeline], c)));
  return chunks;
}

void expand_step(Making& m) {
  ExpandOptions options;
  options.training = m.kind == ProgramKind::train;
  if (m.kind != ProgramKind::infer) options.chunks = chunks_of(m.base, m.spec);
  for (int c = 1; c < std::ssize(options.chunks); ++c) options.turns.push_back({TurnKind::forward, c, 0});
  if (options.training) {
    options.turns = turns_of(m.spec.schedule, {.micro_batches = m.micro_batches,
                                               .ranks = m.spec.mesh[Axis::pipeline],
                                               .rank = m.base.cut.at[Axis::pipeline],
                                               .chunks = m.spec.schedule.chunks});
    options.micro_batches = m.spec.micro_batches;
    options.recompute = m.spec.recompute;
    options.late_weights = m.spec.pipeline.late_weights;
    options.gradients = m.spec.precision.gradients;
    for (const ParameterShape& p : m.base.cut.layout.parameters())
      options.accumulate_locally.push_back(!m.spec.sharding.reduce.every_micro || p.unit < 0 ||
                                           !m.base.cut.is_cut(p.unit));
  }
  m.step = expand(std::move(m.program()), m.base.graph, options);
  if (!options.training) return;
  const int rank = m.base.cut.at[Axis::pipeline];
  if (!m.base.stages.begins.empty())
    m.step.turn_begins = place_messages(m.program(), m.step.turn_begins, m.base.stages.map, rank,
                                        m.base.steps->messages(m.micro_batches).of(rank));
  if (!m.repeats()) return;
  const Middle::Body& body = m.middle->bodies[at(rank)];
  const Turn& first = options.turns[at(body.begin)];
  m.body = {first.micro, options.chunks[at(first.chunk)]};
  declare_loop(m.step, m.base.graph, *m.middle, rank);
}

void shard_step(Making& m) {
  ShardOptions options = m.spec.sharding;
  options.gather.keep = !m.spec.strategy.reshard_after_forward;
  std::vector<TensorId> results = m.step.results;
  Sharded sharded = shard(std::move(m.step), m.base.cut, m.base.tensors.units, options);
  m.step = {std::move(sharded.program), {}, {}, std::move(results), {}};
  m.gradients = std::move(sharded.gradients);
}

/// Of a pipeline every rank is given those of the last.
void give_logits(Making& m) {
  const Action last{ActionKind::forward, static_cast<int>(m.base.graph.blocks.size()) - 1, 0};
  const int stages = m.spec.mesh[Axis::pipeline];
  if (m.base.graph.result >= 0) emit_copy(m.program(), "logits", m.step.results.at(0), m.logits, last);
  if (stages > 1) emit_broadcast(m.program(), "logits", m.logits, Axis::pipeline, stages - 1, last);
}

void step_parameters(Making& m) {
  const ReportedTensors reported = tensors_of(m.base.graph, m.step.results);
  StepTerms terms{reported.losses};
  if (m.spec.may_overflow()) terms.overflows = append_overflows(m.program(), reported.overflows);
  if (m.spec.offload.ahead_of_norm) terms.ahead = m.spec.offload.step;
  if (m.spec.sharding.reduce.sums_signs)
    append_sign_sums(m.program(), m.base.cut, m.base.tensors, m.spec.optimizer.options, m.gradients, terms);
  append_optimizer(m.program(), m.base.cut, m.base.tensors, m.spec.optimizer, m.gradients, terms);
  const model::ExpertReport& experts = m.base.graph.experts;
  const TensorId counts = append_expert_report(m.program(), experts, m.base.tensors, reported);
  move_biases(m.program(), m.base.cut, m.base.tensors, experts.bias_speed, counts);
  append_preference_report(m.program(), m.base.tensors.preference, reported.pairs);
  append_distillation_report(m.program(), m.base.tensors.teacher, reported.teacher);
}

void report_evaluation(Making& m) {
  const ReportedTensors reported = tensors_of(m.base.graph, m.step.results);
  append_partials(m.program(), m.base.cut, m.base.tensors, reported.losses, {});
  append_expert_report(m.program(), m.base.graph.experts, m.base.tensors, reported);
  append_preference_report(m.program(), m.base.tensors.preference, reported.pairs);
  give_logps(m.program(), m.base.tensors.preference, reported.pairs);
  give_likelihoods(m.program(), m.base.tensors.teacher, reported.teacher);
}

void code_weights(Making& m) {
  const auto append = [&](ActionKind action, bool trained) {
    append_weight_codes(m.program(), m.base.cut, m.base.tensors, {action, trained});
  };
  if (m.kind == ProgramKind::train) return append(ActionKind::optimize, true);
  append(ActionKind::load, true);
  append(ActionKind::load, false);
}

void give_addresses(Making& m) {
  if (m.repeats()) m.given_up = !set_slots(m.program());
  if (m.given_up) return;
  m.given_up = !plan_memory(m.program(), m.spec.repeat_slack) || !repeat_fault(m.program()).empty();
}

/// What can be proven of one rank's Program by itself.
void prove_rank(Making& m) {
  if (!m.spec.proven) return;
  prove(m.spec, [&] {
    for (const Op& op : m.program().ops) check_record(op);
    verify_rank(m.program());
    verify_placements(m.program());
  });
}

void give_cache(model::Graph& graph, const CachedGraph& cache) {
  model::add_kv_cache(graph, cache.capacity);
  for (model::Value& v : graph.values)
    if (v.role == model::Role::input) v.name = fmt::format("{}.{}", cache.inputs, v.name);
}

using enum ProgramKind;

/// Over the family's graph, the same on every rank.
constexpr ModelPass model_passes[] = {
    [](model::Graph& graph, const config::Deck& deck, const model::Request&) {
      model::add_adapters(graph, deck.lora, static_cast<std::uint64_t>(deck.run.seed));
    },
    [](model::Graph& graph, const config::Deck& deck, const model::Request&) {
      model::mark_trainable(graph, deck.model);
    },
    [](model::Graph& graph, const config::Deck& deck, const model::Request& request) {
      if (request.objective == model::Objective::loss) model::use_fp8(graph, deck.precision.fp8);
    },
    [](model::Graph& graph, const config::Deck& deck, const model::Request& request) {
      if (request.objective == model::Objective::loss) model::quantize_weights(graph, deck.lora);
    },
};

/// Over the graph of one rank.
constexpr GraphPass graph_passes[] = {
    [](RankGraph& w) {
      for (const auto& own : w.spec.graph_passes) own(w.graph, w.at);
    },
    [](RankGraph& w) {
      if (w.training()) spread_experts(w.graph, w.at, w.spec.expert_capacity);
    },
    [](RankGraph& w) {
      if (w.training())
        w.placed = place(w.graph, w.at, w.spec.tensor, w.spec.context);
      else
        place_over_tensor(w.graph, w.at, w.spec.tensor);
    },
    [](RankGraph& w) {
      if (!w.stages.begins.empty()) keep_stages(w.graph, w.stages, w.at, w.placed);
    },
    [](RankGraph& w) {
      if (w.cache != nullptr) give_cache(w.graph, *w.cache);
    },
    [](RankGraph& w) { join_products(w.graph); },
    [](RankGraph& w) {
      if (w.training() && w.spec.kind == JobKind::training) mark_matrices(w.graph, w.spec.optimizer);
    },
    [](RankGraph& w) { group_parameters(w.graph, w.spec.units, w.placed.summed_over); },
    [](RankGraph& w) {
      if (w.training()) require_patterns_match(w.graph, w.spec.optimizer);
    },
};

constexpr Kinds all{load, train, evaluate, infer}, forward{train, evaluate, infer};

/// Over the Program of one rank, which starts as the persistent tensors.
constexpr ProgramPass step_passes[] = {
    {forward, expand_step},
    {forward, [](Making& m) { drop_dead_ops(m.program(), m.step.results); }},
    {{train, evaluate}, [](Making& m) { number_ops(m.program()); }},
    {forward, [](Making& m) { fuse_residual_norms(m.program()); }},
    {forward, [](Making& m) { overlay_in_place(m.program(), m.step.results); }},
    {{train, evaluate},
     [](Making& m) { tile_feed_forward(m.program(), m.base.graph, m.spec.recompute.tiles); }},
    {{train, evaluate},
     [](Making& m) {
       if (m.spec.overlap_tensor) overlap_products(m.program(), Axis::tensor);
     }},
    {forward, shard_step},
    {forward, [](Making& m) { locate_codes(m.program(), m.base.cut); }},
    {{load}, [](Making& m) { derive_copies(m.program(), m.base.cut.layout, m.base.tensors); }},
    {{train}, step_parameters},
    {{evaluate}, report_evaluation},
    {{infer}, give_logits},
    {{load, train}, code_weights},
    {{load, train, evaluate}, [](Making& m) { offload(m.program(), m.base.cut.layout, m.spec.offload); }},
};

/// Over the Program with all its ops.
constexpr ProgramPass final_passes[] = {
    {all,
     [](Making& m) {
       for (const auto& own : m.spec.program_passes) own(m.program());
     }},
    {{train},
     [](Making& m) {
       if (m.repeats()) m.given_up = !set_body(m.program(), m.body);
     }},
    {all, [](Making& m) { link_dependencies(m.program()); }},
    {all, [](Making& m) { plan_lifetimes(m.program()); }},
    {all, give_addresses},
    {all, prove_rank},
};

void run(std::span<const ProgramPass> passes, Making& making) {
  for (const ProgramPass& pass : passes)
    if (pass.kinds.contains(making.kind) && !making.given_up) pass.apply(making);
}

}  // namespace

model::Graph model_graph(const config::Deck& deck, const model::Request& request) {
  model::Graph graph = model::find_family(deck.model.family).emit(deck.model, request);
  for (const ModelPass pass : model_passes) pass(graph, deck, request);
  return graph;
}

void run_graph_passes(RankGraph& work) {
  for (const GraphPass pass : graph_passes) pass(work);
}

Making start(const Base& base, const JobSpec& spec, ProgramKind kind, std::string_view name) {
  Making making{base, spec, kind};
  making.program() = base.program;
  making.program().name = name;
  return making;
}

void run_step_passes(Making& making) {
  run(step_passes, making);
}

void run_final_passes(Making& making) {
  run(final_passes, making);
}

Program make(Making making) {
  run_step_passes(making);
  run_final_passes(making);
  return std::move(making.program());
}

}  // namespace ztrain::program
