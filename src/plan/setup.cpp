#include "plan/setup.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>
#include <variant>

#include "base/error.hpp"
#include "base/preference_loss.hpp"
#include "base/text.hpp"
#include "config/architectures.hpp"
#include "config/block_layout.hpp"
#include "config/layers.hpp"
#include "config/recompute_pieces.hpp"
#include "config/strategy.hpp"
#include "config/validate/refusals.hpp"
#include "config/validate/validate.hpp"
#include "files/file.hpp"
#include "layout/sum_group.hpp"
#include "model/family.hpp"
#include "model/fp8.hpp"
#include "plan/parts_of_codes.hpp"
#include "program/jobs/pass_list.hpp"
#include "program/passes/place.hpp"
#include "program/schedules/csv.hpp"

namespace ztrain::plan {
namespace {

program::ShardOptions shard_options(const config::Deck& deck, const config::Strategy& strategy) {
  const config::Sharding& s = deck.sharding;
  program::ShardOptions options;
  options.gather.forward_prefetch = static_cast<int>(s.forward_prefetch);
  options.gather.backward_prefetch = s.backward_prefetch == "pre"    ? program::BackwardPrefetch::pre
                                     : s.backward_prefetch == "post" ? program::BackwardPrefetch::post
                                                                     : program::BackwardPrefetch::none;
  options.gather.max_units = static_cast<int>(s.max_gathered_units);
  options.gather.max_elements = s.max_live_parameters;
  options.gather.max_reuse_distance = s.max_reuse_distance;
  options.secondary_shards = config::reshard_group(deck) > 1;
  options.gather_bits = s.gather_codes == "int8" ? 8 : s.gather_codes == "int4" ? 4 : 0;
  options.reduce.code_bits = s.reduce_codes == "int8" ? 8 : s.reduce_codes == "int4" ? 4 : 0;
  options.reduce.sums_signs = optim::find(deck.optimizer.name).sums_signs;
  options.reduce.every_micro =
      s.gradient_accumulation == "auto" ? strategy.gradients_sharded : s.gradient_accumulation == "reduce";
  options.reduce.bucket_elements = s.reduce_bucket_size;
  options.reduce.overlap = s.overlap_reduce;
  return options;
}

program::UnitOptions unit_options(const config::Sharding& s, const config::Strategy& strategy) {
  using enum program::UnitGranularity;
  program::UnitOptions options;
  options.granularity = s.unit == "size"      ? size
                        : s.unit == "model"   ? model
                        : s.unit == "pattern" ? pattern
                                              : block;
  options.min_parameters = s.unit_min_parameters;
  options.patterns = s.unit_patterns;
  options.persistence_threshold = strategy.parameters_sharded ? s.persistence_threshold : 0;
  return options;
}

program::Recompute recompute_of(const config::Recompute& r) {
  program::Recompute recompute;
  if (r.mode == "full") recompute.every = static_cast<int>(r.every);
  if (r.mode == "selective")
    for (const std::string_view tag : config::recompute_tags(r.pieces)) recompute.tags.emplace_back(tag);
  recompute.tiles = static_cast<int>(r.tiles);
  if (r.tiles > 1)
    for (const char* tag : {"norm", "gate_up", "swiglu", "down"}) recompute.tags.emplace_back(tag);
  return recompute;
}

program::Home home_of(const config::OffloadHome& home) {
  using enum program::Tier;
  return {home.to == "cpu" ? host : home.to == "nvme" ? nvme : device, home.fraction};
}

program::OffloadOptions offload_options(const config::Deck& deck) {
  const config::Offload& o = deck.offload;
  program::OffloadOptions options;
  options.parameters = home_of(o.parameters);
  options.gradients = home_of(o.gradients);
  options.master = home_of(o.master);
  options.optimizer = home_of(o.optimizer);
  options.activations = home_of(o.activations);
  using enum program::StepOn;
  options.step = o.optimizer_on == "host" ? host : o.optimizer_on == "device" ? device : automatic;
  options.ahead_of_norm = o.optimizer_ahead;
  return options;
}

program::OptimizerSpec optimizer_of(const config::Deck& deck) {
  return {deck.optimizer, config::stochastic_rounding(deck), static_cast<std::uint64_t>(deck.run.seed)};
}

model::ContextMethod context_method(const config::Deck& deck) {
  using enum model::ContextMethod;
  return deck.context.method == "ulysses" ? heads : deck.context.method == "ring" ? ring : gather;
}

/// Among how many ranks heads can be exchanged: the most that divide mesh.context, so that each has equally
/// many of them and of those of keys; 1: none share them equally.
std::int64_t ranks_by_heads(const config::Deck& deck) {
  const config::Model& m = deck.model;
  std::int64_t ranks = std::max<std::int64_t>(1, deck.mesh.context);
  const auto divides = [&](std::int64_t heads) { return heads % (ranks * deck.mesh.tensor) == 0; };
  while (ranks > 1 && (deck.mesh.context % ranks != 0 || !divides(m.num_attention_heads) ||
                       !divides(m.num_key_value_heads)))
    --ranks;
  return ranks;
}

/// mesh.context, as the axes that it is in Programs: where it is more than the ranks that heads can be
/// exchanged among, these stand in a ring, round which keys and values go: a ring of all where heads cannot
/// be exchanged.
void set_context(const config::Deck& deck, MeshShape& shape) {
  const bool by_heads = context_method(deck) == model::ContextMethod::heads;
  const std::int64_t ranks = by_heads ? ranks_by_heads(deck) : deck.mesh.context;
  shape[Axis::context] = static_cast<int>(ranks);
  shape[Axis::ring] = static_cast<int>(by_heads ? deck.mesh.context / ranks : 1);
}

/// Number that divides the tokens of each rank of mesh.context. Its ranks of mesh.tensor share these tokens
/// in equal parts under sequence parallelism, and products of 8-bit codes take multiples of fp8_multiple.
int token_multiple(const config::Deck& deck) {
  const std::int64_t parts = deck.tensor.sequence_parallel ? std::max<std::int64_t>(1, deck.mesh.tensor) : 1;
  // Tiles of attention lie within blocks, and a rank has two chunks of tokens.
  const bool cuts_blocks = deck.sparse_attention.is_on() && deck.mesh.context > 1;
  const std::int64_t chunks = cuts_blocks ? 2 * deck.sparse_attention.block : 1;
  return static_cast<int>(
      std::lcm(std::lcm(parts, chunks), deck.precision.fp8 != "none" ? model::fp8_multiple : 1));
}

TokenOrder order_of(const config::Deck& deck) {
  MeshShape mesh;
  if (deck.mesh.context > 1) set_context(deck, mesh);
  return program::token_order(mesh, context_method(deck), token_multiple(deck));
}

/// Tokens of a micro-batch, with the padding that makes the parts of all ranks equal.
std::int64_t tokens_of(const config::Deck& deck) {
  return order_of(deck).padded(deck.batch.micro * deck.data.sequence);
}

/// Of a micro-batch, 0 where there is no limit. What is left of a sequence of packed documents is one more,
/// and so is padding.
std::int64_t most_documents(const config::Deck& deck) {
  const std::int64_t padding = tokens_of(deck) > deck.batch.micro * deck.data.sequence ? 1 : 0;
  if (deck.data.packing == "windows") return deck.batch.micro + padding;
  return deck.data.max_documents > 0 ? deck.batch.micro * (deck.data.max_documents + 1) + padding : 0;
}

/// What cannot be computed over mesh.tensor: told before the first step.
void require_tensor_support(const config::Deck& deck) {
  const config::Model& m = deck.model;
  if (deck.mesh.tensor > model::most_tensor_ranks(m))
    config::refuse(deck, "mesh.tensor model.num_attention_heads model.intermediate_size model.vocab_size",
                   {{"most", model::most_tensor_ranks(m)}});
  require_parts_of_codes(deck);
  if (deck.tensor.overlap && !deck.tensor.sequence_parallel)
    config::refuse(deck, "tensor.overlap tensor.sequence_parallel");
}

/// "mesh.pipeline (4) x pipeline.stages_per_rank (2)"
std::string stages_text(const config::Deck& deck, int chunks) {
  return chunks == 1
             ? fmt::format("mesh.pipeline ({})", deck.mesh.pipeline)
             : fmt::format("mesh.pipeline ({}) x {} stages on each of its ranks", deck.mesh.pipeline, chunks);
}

/// Of the table, or of a file that is for as many ranks.
program::Schedule named_schedule(const config::Deck& deck) {
  const std::string& name = deck.pipeline.schedule;
  if (!deck.pipeline.schedule_is_file()) return program::find_schedule(name);
  constexpr std::int64_t most_bytes = 1 << 26;
  program::Schedule file = program::schedule_from_csv(read_file(name, most_bytes, "pipeline.schedule"), name);
  if (file.ranks != deck.mesh.pipeline)
    config::refuse(deck, "pipeline.schedule mesh.pipeline",
                   {{"file", name}, {"ranks", count_text(file.ranks, "rank")}});
  return file;
}

/// What cannot be cut into stages: told before the first step.
program::Schedule schedule_of(const config::Deck& deck) {
  if (deck.mesh.pipeline <= 1) return program::find_schedule("sequential");
  const config::PipelineParallel& p = deck.pipeline;
  program::Schedule schedule = named_schedule(deck);
  const bool any_number = p.schedule == "interleaved";
  if (!any_number && p.stages_per_rank != 0 && p.stages_per_rank != schedule.chunks)
    config::refuse(deck, "pipeline.stages_per_rank pipeline.schedule", {{"chunks", schedule.chunks}});
  if (p.stages_per_rank > 0) schedule.chunks = static_cast<int>(p.stages_per_rank);
  const std::int64_t stages = deck.mesh.pipeline * schedule.chunks, layers = deck.model.num_hidden_layers;
  const config::Words cut{{"cut", stages_text(deck, schedule.chunks)}, {"stages", stages}};
  if (stages > layers)
    config::refuse(deck, "mesh.pipeline model.num_hidden_layers pipeline.stages_per_rank", cut);
  if (p.layers.empty()) return schedule;
  double sum = 0;
  for (const double count : p.layers) {
    REQUIRE(count == static_cast<double>(static_cast<std::int64_t>(count)) && count >= 1,
            "{}: pipeline.layers has {}: each is a whole number of layers, 1 or more",
            config::source_of(deck, "pipeline.layers"), count);
    sum += count;
  }
  config::Words given = cut;
  given.emplace_back("numbers", p.layers.size());
  if (std::ssize(p.layers) != stages)
    config::refuse(deck, "pipeline.layers mesh.pipeline pipeline.stages_per_rank", given);
  if (sum != static_cast<double>(layers))
    config::refuse(deck, "pipeline.layers model.num_hidden_layers", {{"sum", sum}});
  return schedule;
}

model::TensorPlan tensor_plan_of(const config::Deck& deck) {
  if (deck.mesh.tensor <= 1) return {};
  require_tensor_support(deck);
  const config::Model& m = deck.model;
  model::TensorPlan plan = model::find_family(m.family).tensor_plan(m, static_cast<int>(deck.mesh.tensor));
  plan.sequence_parallel = deck.tensor.sequence_parallel;
  return plan;
}

/// Only cuts of the head look at it, and no vocabulary is as small as a mesh.
constexpr std::int64_t some_vocabulary = 1 << 20;

/// Returns the job on so many ranks, or what speaks against it.
std::variant<program::JobSpec, std::string> job_on(config::Deck deck, int ranks, int ranks_per_node,
                                                   Target target) {
  try {
    config::validate_for_ranks(deck, ranks, std::min(ranks, ranks_per_node));
    return job_spec(deck, target);
  } catch (const Error& e) {
    return e.what();
  }
}

bool fixes_ranks(const config::Mesh& m) {
  return std::min({m.pipeline, m.replicate, m.shard, m.context, m.tensor}) > 0;
}

/// Divides the axis shard into the ranks of a node and the nodes, so that codes of gradients are added up
/// within nodes first. Does nothing if nodes hold unequal parts of the axis, or if
/// sharding.reshard_after_forward divides it already.
void set_hops(MeshShape& shape) {
  const SumGroup group = sum_group(shape, state_axes);
  const int others = shape.size(state_axes) / shape[Axis::shard], on_node = group.on_node / others;
  if (shape.inner_of(Axis::shard) > 1 || group.nodes() == 1 || on_node < 1) return;
  if (on_node * others == group.on_node && shape[Axis::shard] % on_node == 0)
    shape.inner_of(Axis::shard) = on_node;
}

}  // namespace

MeshShape mesh_shape(const config::Deck& deck) {
  MeshShape shape;
  shape[Axis::pipeline] = static_cast<int>(deck.mesh.pipeline);
  shape[Axis::replicate] = static_cast<int>(deck.mesh.replicate);
  shape[Axis::shard] = static_cast<int>(deck.mesh.shard / deck.mesh.expert);
  shape[Axis::expert] = static_cast<int>(deck.mesh.expert);
  set_context(deck, shape);
  shape[Axis::tensor] = static_cast<int>(deck.mesh.tensor);
  shape.inner_of(Axis::shard) = std::max(1, static_cast<int>(config::reshard_group(deck) / deck.mesh.expert));
  // NCCL's own sums have an order of NCCL's choice.
  if (deck.device.reduction != "nccl") shape.per_node = static_cast<int>(deck.mesh.per_node);
  if (deck.sharding.reduce_codes != "none") set_hops(shape);
  return shape;
}

program::JobSpec job_spec(const config::Deck& deck, Target target) {
  program::JobSpec spec;
  spec.target = target;
  if (target == Target::cuda && deck.sparse_attention.is_on())
    config::refuse(deck, "sparse_attention.mode cluster.preset");
  spec.mesh = mesh_shape(deck);
  spec.strategy = config::find_strategy(deck.sharding.strategy);
  spec.strategy.reshard_after_forward = config::reshard_after_forward(deck);
  spec.precision = {deck.precision.parameters, deck.precision.gradients, deck.precision.reduce,
                    deck.precision.master, deck.precision.moments};
  spec.optimizer = optimizer_of(deck);
  spec.micro_batches = static_cast<int>(config::accumulation_steps(deck));
  spec.schedule = schedule_of(deck);
  if (const int of_file = spec.schedule.micro_batches; of_file != 0 && of_file != spec.micro_batches)
    config::refuse(deck, "pipeline.schedule batch.global batch.micro",
                   {{"file", spec.schedule.name},
                    {"of_file", of_file},
                    {"of_step", spec.micro_batches},
                    {"legal", of_file * deck.batch.micro * config::data_parallel_degree(deck)}});
  for (const double count : deck.pipeline.layers)
    if (deck.mesh.pipeline > 1) spec.pipeline.layers.push_back(static_cast<int>(count));
  spec.pipeline.receive_ahead = static_cast<int>(deck.pipeline.max_outstanding);
  spec.pipeline.late_weights =
      deck.pipeline.late_weights == "kept" ? program::LateWeights::kept : program::LateWeights::all;
  spec.recompute = recompute_of(deck.recompute);
  spec.offload = offload_options(deck);
  if (config::copies_state(deck)) spec.snapshots = program::Snapshots::of_savers;
  if (deck.watchdog.audit_interval > 0) spec.snapshots = program::Snapshots::of_all;
  spec.saves_frozen = config::saves_frozen(deck);
  spec.units = unit_options(deck.sharding, spec.strategy);
  spec.sharding = shard_options(deck, spec.strategy);
  spec.context = context_method(deck);
  spec.expert_capacity = deck.mesh.expert > 1 ? deck.experts.capacity : 0;
  spec.token_multiple = token_multiple(deck);
  spec.tokens = deck.batch.micro * deck.data.sequence;
  spec.tensor = tensor_plan_of(deck);
  spec.overlap_tensor = deck.tensor.overlap;
  return spec;
}

program::JobSpec evaluation_spec(const config::Deck& deck, Target on) {
  program::JobSpec spec = job_spec(deck, on);
  spec.kind = program::JobKind::evaluation;
  spec.micro_batches = 1;
  const DType type = deck.precision.parameters;
  spec.precision = {type, type, type, type, type};
  spec.expert_capacity = 0;
  spec.snapshots = program::Snapshots::none;
  return spec;
}

model::Graph training_graph(const config::Deck& deck, std::int64_t likelihoods) {
  model::Request request;
  request.tokens = tokens_of(deck);
  request.compute = deck.precision.parameters;
  request.sequence = deck.data.sequence;
  request.documents = most_documents(deck);
  if (deck.sparse_attention.is_on())
    request.layout = config::block_layout(deck.sparse_attention, deck.data.sequence);
  request.deterministic = deck.device.deterministic;
  request.balanced_routing = deck.debug.balanced_routing;
  const std::string& balance = deck.experts.balance;
  request.balance_coefficient = balance == "none" ? 0 : deck.model.router_aux_loss_coef;
  request.balance_over = balance == "sequence" ? model::BalanceOver::layer
                         : balance == "global" ? model::BalanceOver::ranks
                                               : model::BalanceOver::micro_batch;
  request.z_coefficient = deck.experts.z_loss;
  request.bias_speed = deck.experts.bias_update_speed;
  request.label_smoothing = deck.loss.label_smoothing;
  request.head_z_loss = deck.loss.z_loss;
  if (const config::Preference& p = deck.preference; p.is_on())
    request.pairs = {deck.batch.micro * sequence_slots(deck.data.sequence),
                     {p.loss_type, p.beta, p.label_smoothing, p.simpo_gamma, p.desirable_weight,
                      p.undesirable_weight, p.center_rewards}};
  if (deck.distillation.is_on()) request.distillation = {deck.distillation.top_k, deck.distillation.weight};
  request.likelihoods = likelihoods;
  return program::model_graph(deck, request);
}

model::Graph logits_graph(const config::Deck& deck, DType compute, std::int64_t tokens,
                          std::int64_t capacity) {
  model::Request request{
      .tokens = tokens, .compute = compute, .objective = model::Objective::logits, .longest = capacity};
  if (deck.sparse_attention.is_on())
    request.layout = config::layout_of_cache(deck.sparse_attention, capacity);
  return program::model_graph(deck, request);
}

int largest_legal_ranks(const config::Deck& given, int most, int ranks_per_node, Target target) {
  config::Deck deck = given;
  if (deck.model.vocab_size == 0) deck.model.vocab_size = some_vocabulary;
  std::string first;
  for (int ranks = most; ranks > 0; --ranks) {
    const auto job = job_on(deck, ranks, ranks_per_node, target);
    const auto* const why = std::get_if<std::string>(&job);
    if (why == nullptr) return ranks;
    if (first.empty()) first = *why;
  }
  fail("{}: no number of ranks up to {} is legal{}. With {}: {}", given.path, most,
       fixes_ranks(given.mesh) ? ": the deck fixes its mesh, each of whose degrees it gives" : "", most,
       first);
}

program::JobSpec least_job(const config::Deck& deck, int ranks_per_node, Target target) {
  constexpr int multiples = 1024;  // more than strategies within a node, or cuts of a shard, ask for
  const config::Mesh& m = deck.mesh;
  std::int64_t least = 1;
  for (const std::int64_t degree : {m.pipeline, m.replicate, m.shard, m.context, m.tensor}) {
    least *= std::max<std::int64_t>(1, degree);
    REQUIRE(least <= most_job_ranks, "{}: the mesh has more than {} ranks", deck.path, most_job_ranks);
  }
  const std::int64_t most =
      fixes_ranks(m) ? least : std::min<std::int64_t>(most_job_ranks, multiples * least);
  std::string first;
  for (std::int64_t ranks = least; ranks <= most; ranks += least) {
    auto job = job_on(deck, static_cast<int>(ranks), ranks_per_node, target);
    if (auto* const spec = std::get_if<program::JobSpec>(&job)) return std::move(*spec);
    if (first.empty()) first = std::get<std::string>(job);
  }
  throw Error(first);
}

}  // namespace ztrain::plan
