// The table of refused combinations, in the order of the deck's sections.

#include <algorithm>
#include <numeric>
#include <vector>

#include "config/architectures.hpp"
#include "config/fields/model_keys.hpp"
#include "config/strategy.hpp"
#include "config/validate/refusals.hpp"
#include "config/validate/validate.hpp"
#include "config/validate/validate_rules.hpp"

namespace ztrain::config {
namespace {

bool steps_in_backward(const Deck& d) {
  return d.optimizer.during_backward;
}
bool sums_signs(const Deck& d) {
  return optim::find(d.optimizer.name).sums_signs;
}
/// Returns whether any unit's optimizer steps on the host.
bool steps_on_host(const Offload& o) {
  return o.optimizer_on == "host" ||
         (o.optimizer_on == "auto" && (o.optimizer.to != "none" || o.master.to != "none"));
}
/// Returns whether layers of the deck's family have experts, however many.
bool is_mixture(const Deck& d) {
  return find_key(find_architecture(d.model.family), "model.num_experts") != nullptr;
}
/// Returns the legal degrees of mesh.expert nearest to the deck's: divisors of the ranks of mesh.shard, if
/// these are known, and of the experts that a rank of mesh.tensor has.
Words legal_of_expert(const Deck& d) {
  const std::int64_t experts = d.model.num_experts, tensor = std::max<std::int64_t>(1, d.mesh.tensor),
                     shard = std::max<std::int64_t>(0, d.mesh.shard);
  // Ranks of mesh.tensor that do not divide the experts cut each of them, which needs mesh.expert = 1.
  const std::int64_t dealt = experts % tensor == 0 ? experts / tensor : 1;
  return {{"legal", nearest_divisors(std::gcd(dealt, shard), d.mesh.expert)}};
}
/// Returns the key that sends a kind of state to NVMe; "": none.
std::string_view sent_to_nvme(const Offload& o) {
  for (const auto& [key, home] :
       {std::pair("offload.parameters", &o.parameters), std::pair("offload.gradients", &o.gradients),
        std::pair("offload.master", &o.master), std::pair("offload.optimizer", &o.optimizer),
        std::pair("offload.activations", &o.activations)})
    if (home->to == "nvme") return key;
  return "";
}
std::int64_t multiple_of_interval(const Checkpoint& c) {
  return std::max<std::int64_t>(1, c.keep_every / std::max<std::int64_t>(1, c.interval)) * c.interval;
}

constexpr Refusal table[]{
    // These concern batch, mesh, pipeline and sharding.
    {"batch.global batch.micro mesh.replicate mesh.shard",
     "{at}: batch.global ({batch.global}) = batch.micro ({batch.micro}) x data-parallel ranks ({ranks}) x "
     "accumulation ({accumulation}): the accumulation must be whole; nearest legal: batch.global = {legal}"},
    {"batch.global batch.micro",
     "{at}: batch.global ({batch.global}) is {accumulation} micro-batches of batch.micro ({batch.micro}) for "
     "each of {ranks} data-parallel ranks, more than the {most} that a step may have: take a larger "
     "batch.micro, or at most batch.global = {legal}"},
    {"mesh.expert model.family",
     "{at}: mesh.expert = {mesh.expert} is of experts, and models of family {model.family} have none; "
     "nearest legal: 1",
     [](const Deck& d) { return d.mesh.expert > 1 && !is_mixture(d); }},
    {"mesh.expert mesh.shard",
     "{at}: mesh.expert = {mesh.expert} does not divide mesh.shard ({mesh.shard}), some of whose ranks share "
     "the experts; nearest legal: {legal}",
     [](const Deck& d) { return d.mesh.expert > 1 && d.mesh.shard > 0 && d.mesh.shard % d.mesh.expert != 0; },
     legal_of_expert},
    {"mesh.expert tensor.sequence_parallel",
     "{at}: with mesh.expert = {mesh.expert}, ranks of mesh.tensor ({mesh.tensor}) send each its own tokens "
     "to experts: set tensor.sequence_parallel = true, or mesh.expert = 1",
     [](const Deck& d) { return d.mesh.expert > 1 && d.mesh.tensor > 1 && !d.tensor.sequence_parallel; }},
    {"mesh.expert mesh.tensor model.num_experts",
     "{at}: mesh.expert x mesh.tensor ({mesh.expert} x {mesh.tensor}) does not divide model.num_experts "
     "({model.num_experts}), which are dealt to the ranks of both; nearest legal: mesh.expert = {legal}",
     [](const Deck& d) {
       return d.mesh.expert > 1 && d.mesh.tensor > 1 && d.model.num_experts > 0 &&
              d.model.num_experts % (d.mesh.expert * d.mesh.tensor) != 0;
     },
     legal_of_expert},
    {"mesh.expert model.num_experts",
     "{at}: mesh.expert = {mesh.expert} does not divide model.num_experts ({model.num_experts}); nearest "
     "legal: {legal}",
     [](const Deck& d) { return d.mesh.expert > 1 && d.model.num_experts % d.mesh.expert != 0; },
     legal_of_expert},
    {"mesh.pipeline mesh.replicate mesh.shard mesh.context mesh.tensor",
     "{open} are both -1; at most one degree of the mesh may be"},
    {"mesh.tensor model.num_attention_heads model.intermediate_size model.vocab_size",
     "{at}: mesh.tensor = {mesh.tensor}: each rank needs a head of attention (the model has "
     "{model.num_attention_heads}), a column of the feed-forward (model.intermediate_size = "
     "{model.intermediate_size}; of experts {model.moe_intermediate_size}) and a word (model.vocab_size = "
     "{model.vocab_size}): legal are 1 to {most}"},
    {"mesh.tensor precision.fp8",
     "{at}: mesh.tensor = {mesh.tensor}: precision.fp8 = {precision.fp8} needs heads and columns of the "
     "feed-forward in parts whose sizes are multiples of {multiple}{keys}; nearest legal: {nearest} (legal "
     "for this model: {legal}), or precision.fp8 = \"none\""},
    {"tensor.overlap tensor.sequence_parallel",
     "{at}: tensor.overlap = true cuts what tokens that are split over mesh.tensor send: set "
     "tensor.sequence_parallel = true, or tensor.overlap = false"},
    {"pipeline.schedule mesh.pipeline",
     "{at}: {file} has lines for {ranks}, and mesh.pipeline is {mesh.pipeline}"},
    {"pipeline.schedule batch.global batch.micro",
     "{at}: {file} is a schedule of {of_file} micro-batches, and a step has {of_step}: a batch.global of "
     "{legal} has as many"},
    {"pipeline.stages_per_rank pipeline.schedule",
     "{at}: pipeline.stages_per_rank = {pipeline.stages_per_rank}, but with pipeline.schedule = "
     "{pipeline.schedule} every rank has {chunks}: leave it out, or take \"interleaved\""},
    {"mesh.pipeline model.num_hidden_layers pipeline.stages_per_rank",
     "{at}: {cut} makes {stages} stages, and the model has {model.num_hidden_layers} layers "
     "(model.num_hidden_layers): each stage needs one"},
    {"pipeline.layers mesh.pipeline pipeline.stages_per_rank",
     "{at}: pipeline.layers has {numbers} numbers, and {cut} makes {stages} stages: give one for each"},
    {"pipeline.layers model.num_hidden_layers",
     "{at}: pipeline.layers has {sum} layers in all, and the model has {model.num_hidden_layers} "
     "(model.num_hidden_layers)"},
    {"sharding.strategy mesh.shard mesh.pipeline",
     "sharding.strategy = {strategy} ({source}): {ranks} ranks{stages} are not whole nodes of {node}; give "
     "mesh.shard, a divisor of {ranks}: {legal}"},
    {"sharding.strategy mesh.tensor mesh.context",
     "sharding.strategy = {strategy} ({source}): mesh.tensor x mesh.context ({beside}) does not divide a "
     "node's {node} ranks{stages}; give mesh.shard"},
    {"sharding.reshard_after_forward mesh.shard",
     "{at}: sharding.reshard_after_forward ({group}) does not divide mesh.shard ({mesh.shard}); nearest "
     "legal: {legal}"},
    {"sharding.reshard_after_forward mesh.expert",
     "{at}: sharding.reshard_after_forward ({group}) is not a multiple of mesh.expert ({mesh.expert}); "
     "nearest legal: true"},
    {"sharding.gather_codes sharding.strategy",
     "{at}: sharding.gather_codes = {sharding.gather_codes} is for weights that are gathered in each step, "
     "and sharding.strategy = {sharding.strategy} keeps them whole: give FULL_SHARD, SHARD_GRAD_OP or "
     "HYBRID_SHARD, or sharding.gather_codes = \"none\"",
     [](const Deck& d) {
       return d.sharding.gather_codes != "none" && !find_strategy(d.sharding.strategy).parameters_sharded;
     }},
    {"sharding.unit sharding.unit_patterns",
     "{at}: sharding.unit = \"pattern\" needs sharding.unit_patterns, the patterns of modules' names, such "
     "as [\"model.layers.*.mlp\"]",
     [](const Deck& d) { return d.sharding.unit == "pattern" && d.sharding.unit_patterns.empty(); }},
    {"sharding.unit_patterns sharding.unit",
     "{at}: sharding.unit_patterns is used by sharding.unit = \"pattern\" only, and that is {sharding.unit}; "
     "choose one of them",
     [](const Deck& d) { return d.sharding.unit != "pattern" && !d.sharding.unit_patterns.empty(); }},
    {"sharding.unit_patterns model.*",
     "sharding.unit_patterns: '{pattern}' matches {parameter}, which is one product with {leader} and lies "
     "beside it: name the latter's module, or one that holds both"},
    // These concern precision, recomputation, offload and optimizer.
    {"precision.parameters precision.gradients precision.reduce precision.master precision.moments "
     "precision.preset",
     "{at}: fp64 is legal for all five dtypes of [precision] together only; {doubles} fp64: write "
     "precision.preset = \"fp64\" alone"},
    {"precision.* precision.parameters",
     "{at}: {key} = \"{type}\" does not go with precision.parameters = {precision.parameters}: expected "
     "{legal}; nearest legal: {nearest}"},
    {"precision.rounding precision.master precision.preset",
     "{at}: precision.rounding = \"stochastic\" needs precision.master = \"bf16\", but that is "
     "{precision.master}; nearest legal: auto",
     [](const Deck& d) { return d.precision.rounding == "stochastic" && d.precision.master != DType::bf16; }},
    {"precision.fp8 precision.parameters precision.preset",
     "{at}: precision.fp8 = {precision.fp8} needs precision.parameters = \"bf16\", but that is "
     "{precision.parameters}; nearest legal: none",
     [](const Deck& d) { return d.precision.fp8 != "none" && d.precision.parameters != DType::bf16; }},
    {"precision.fp8 model.hidden_size model.intermediate_size",
     "precision.fp8 = \"{scaling}\": no linear layer of the model has sizes that are multiples of "
     "{multiple}"},
    {"precision.moments optimizer.name",
     "{at}: precision.moments = {precision.moments} does not go with optimizer.name = \"adamw_8bit\" "
     "({source}), whose moments have 8 bits; leave it out"},
    {"loss_scaling.* precision.parameters",
     "{at}: {key} = {value} is for fp16 parameters only, and precision.parameters = {precision.parameters}; "
     "leave it out, or write precision.preset = \"deepspeed-fp16\""},
    {"loss_scaling.min_scale loss_scaling.initial_scale_power",
     "{at}: loss_scaling.min_scale ({loss_scaling.min_scale}) is above the scale to begin with, 2 to the "
     "power of loss_scaling.initial_scale_power ({loss_scaling.initial_scale_power}); nearest legal: "
     "{legal}"},
    {"recompute.mode recompute.pieces",
     "{at}: recompute.mode = \"selective\" needs recompute.pieces, what is run again, such as [\"norm\", "
     "\"swiglu\"]",
     [](const Deck& d) { return d.recompute.mode == "selective" && d.recompute.pieces.empty(); }},
    {"recompute.pieces recompute.mode",
     "{at}: recompute.pieces is used by recompute.mode = \"selective\" only, and that is {recompute.mode}; "
     "choose one of them",
     [](const Deck& d) { return d.recompute.mode != "selective" && !d.recompute.pieces.empty(); }},
    {"recompute.every recompute.mode",
     "{at}: recompute.every = {recompute.every} needs recompute.mode = \"full\", and that is "
     "{recompute.mode}; nearest legal: 1",
     [](const Deck& d) { return d.recompute.every != 1 && d.recompute.mode != "full"; }},
    {"recompute.tiles model.num_experts",
     "{at}: recompute.tiles = {recompute.tiles} divides the tokens of dense feed-forwards only, and the "
     "model has {model.num_experts} experts; leave it out",
     [](const Deck& d) { return d.recompute.tiles > 1 && d.model.num_experts > 0; }},
    {"recompute.tiles tensor.overlap",
     "{at}: recompute.tiles = {recompute.tiles} does not go with tensor.overlap, which cuts the same "
     "products by ranks; leave one of them out",
     [](const Deck& d) { return d.recompute.tiles > 1 && d.tensor.overlap; }},
    {"recompute.tiles batch.micro",
     "recompute.tiles = {tiles} does not divide the {tokens} tokens of a micro-batch that a rank has "
     "(batch.micro and mesh decide them); nearest legal: {legal}"},
    {"recompute.tiles pipeline.schedule",
     "recompute.tiles = {tiles} needs a pipeline.schedule whose backward is one turn, such as \"1f1b\""},
    {"recompute.tiles precision.fp8",
     "recompute.tiles = {tiles}: '{op}' of {name} has one scale for all tokens, so a part of them cannot be "
     "computed alone; nearest legal: precision.fp8 = \"rowwise\""},
    {"recompute.tiles lora.dropout",
     "recompute.tiles = {tiles}: the dropout of {name} counts the tokens of whole micro-batches; set "
     "lora.dropout = 0, or lora.targets without the feed-forward"},
    {"recompute.tiles model.family",
     "recompute.tiles = {tiles}: '{op}' of {name} does not work for only a part of the tokens in this "
     "model; leave it out"},
    {"offload.* offload.nvme_path",
     "{at}: {key} = \"nvme\" needs offload.nvme_path, folders on drives of the node",
     [](const Deck& d) { return !sent_to_nvme(d.offload).empty() && d.offload.nvme_path.empty(); },
     [](const Deck& d) {
       const std::string_view key = sent_to_nvme(d.offload);
       return Words{{"at", source_of(d, key)}, {"key", key}};
     }},
    {"offload.optimizer_ahead offload.optimizer_on offload.optimizer offload.master",
     "{at}: offload.optimizer_ahead = true has no effect, because no optimizer step runs on the host: set "
     "offload.optimizer or offload.master to \"cpu\", with offload.optimizer_on = \"auto\" or \"host\"; "
     "nearest legal: false",
     [](const Deck& d) { return d.offload.optimizer_ahead && !steps_on_host(d.offload); }},
    {"offload.optimizer_ahead offload.optimizer offload.master",
     "{at}: offload.optimizer_ahead = true keeps all optimizer states in host memory, so they cannot be on "
     "nvme; nearest legal: false",
     [](const Deck& d) {
       return d.offload.optimizer_ahead &&
              (d.offload.optimizer.to == "nvme" || d.offload.master.to == "nvme");
     }},
    {"offload.optimizer_ahead optimizer.during_backward",
     "{at}: offload.optimizer_ahead = true has no effect, because with optimizer.during_backward = true the "
     "norm of the gradients changes no step; nearest legal: false",
     [](const Deck& d) { return d.offload.optimizer_ahead && steps_in_backward(d); }},
    {"offload.optimizer_ahead optimizer.name",
     "{at}: offload.optimizer_ahead = true does not work with optimizer.name = {optimizer.name}, {why}; "
     "nearest legal: false",
     [](const Deck& d) { return d.offload.optimizer_ahead && (d.optimizer.name == "muon" || sums_signs(d)); },
     [](const Deck& d) {
       return Words{{"at", source_of(d, "offload.optimizer_ahead")},
                    {"why", sums_signs(d) ? "whose gradients are summed after the whole backward"
                                          : "whose step needs whole matrices from several ranks"}};
     }},
    {"offload.optimizer_ahead mesh.pipeline",
     "{at}: offload.optimizer_ahead = true does not work with mesh.pipeline = {mesh.pipeline}: a stage "
     "learns the number of tokens only at the end of the step; nearest legal: false",
     [](const Deck& d) { return d.offload.optimizer_ahead && d.mesh.pipeline != 1; }},
    {"optimizer.name optimizer.freeze_step",
     "{at}: optimizer.name = {optimizer.name} needs optimizer.freeze_step, the steps of its warm-up; nearest "
     "legal: a fifth of the run's steps",
     [](const Deck& d) { return sums_signs(d) && d.optimizer.freeze_step == 0; }},
    {"optimizer.name experts.capacity",
     "{at}: optimizer.name = {optimizer.name} cannot take a step of its warm-up again, as those are that "
     "have "
     "no room for some rows (experts.capacity = {experts.capacity}); nearest legal: experts.capacity = 0",
     [](const Deck& d) { return sums_signs(d) && d.mesh.expert > 1 && d.experts.capacity > 0; }},
    {"optimizer.during_backward optimizer.name",
     "{at}: optimizer.during_backward = true does not work with optimizer.name = {optimizer.name}, whose "
     "gradients are summed after the whole backward; nearest legal: false",
     [](const Deck& d) { return steps_in_backward(d) && sums_signs(d); }},
    {"optimizer.nesterov optimizer.momentum",
     "{at}: optimizer.nesterov = true needs a momentum, and optimizer.momentum = 0; nearest legal: false",
     [](const Deck& d) { return d.optimizer.nesterov && d.optimizer.momentum <= 0; }},
    {"optimizer.during_backward optimizer.max_norm",
     "{at}: optimizer.during_backward = true steps before the gradient's norm is known, and "
     "optimizer.max_norm = {optimizer.max_norm} clips by it; nearest legal: false",
     [](const Deck& d) { return steps_in_backward(d) && d.optimizer.max_norm != 0; }},
    {"optimizer.during_backward precision.parameters precision.preset",
     "{at}: optimizer.during_backward = true takes steps that cannot be skipped, and precision.parameters = "
     "\"fp16\" finds its loss scale by skipping some; nearest legal: false",
     [](const Deck& d) { return steps_in_backward(d) && d.precision.parameters == DType::f16; }},
    {"optimizer.during_backward mesh.pipeline",
     "{at}: optimizer.during_backward = true is not there for stages of a pipeline (mesh.pipeline = "
     "{mesh.pipeline}); nearest legal: false",
     [](const Deck& d) { return steps_in_backward(d) && d.mesh.pipeline != 1; }},
    {"optimizer.during_backward experts.capacity",
     "{at}: optimizer.during_backward = true takes steps that cannot be taken again, as those are that have "
     "no room for some rows (experts.capacity = {experts.capacity}); nearest legal: experts.capacity = 0",
     [](const Deck& d) { return steps_in_backward(d) && d.mesh.expert > 1 && d.experts.capacity > 0; }},
    // These concern learning rate, checkpoints, watchdog and machine.
    {"schedule.warmup run.steps run.tokens run.epochs",
     "{at}: schedule.warmup ({schedule.warmup}) is not below the run's {steps} steps; nearest legal: "
     "{legal}"},
    {"schedule.name schedule.decay",
     "{at}: schedule.name = {schedule.name} needs schedule.decay, the steps of its final decay",
     [](const Deck& d) { return optim::needs_decay(d.schedule) && d.schedule.decay <= 0; }},
    {"schedule.decay schedule.warmup run.steps",
     "{at}: schedule.warmup ({schedule.warmup}) + schedule.decay ({schedule.decay}) = {sum} exceeds the "
     "run's {steps} steps; nearest legal decay: {legal}"},
    {"run.steps run.tokens run.epochs batch.global data.sequence",
     "{at}: {steps} steps of batch.global x data.sequence = {tokens} tokens are more tokens than can be "
     "counted; nearest legal: {legal} steps"},
    {"checkpoint.keep_every checkpoint.interval",
     "{at}: checkpoint.keep_every = {checkpoint.keep_every} is no multiple of checkpoint.interval = "
     "{checkpoint.interval}, so that few steps of the one are of the other; nearest legal: {legal}",
     [](const Deck& d) {
       const Checkpoint& c = d.checkpoint;
       return c.keep_every != 0 && c.interval > 0 && c.keep_every % c.interval != 0;
     },
     [](const Deck& d) {
       return Words{{"legal", multiple_of_interval(d.checkpoint)}};
     }},
    {"checkpoint.keep_best evaluation.interval",
     "{at}: checkpoint.keep_best = {checkpoint.keep_best} needs validation losses, and evaluation.interval = "
     "0 computes none; nearest legal: 0",
     [](const Deck& d) { return d.checkpoint.keep_best != 0 && d.evaluation.interval <= 0; }},
    {"checkpoint.export_from evaluation.interval",
     "{at}: checkpoint.export_from = \"best\" needs validation losses, and evaluation.interval = 0 computes "
     "none; nearest legal: last",
     [](const Deck& d) { return d.checkpoint.export_from == "best" && d.evaluation.interval <= 0; }},
    {"checkpoint.export_from checkpoint.export",
     "{at}: checkpoint.export_from = \"best\" says what checkpoint.export writes, and that names no folder; "
     "nearest legal: last",
     [](const Deck& d) { return d.checkpoint.export_from == "best" && d.checkpoint.export_to.empty(); }},
    {"evaluation.patience evaluation.interval",
     "{at}: evaluation.patience = {evaluation.patience} counts evaluations, and evaluation.interval = 0 "
     "makes none; nearest legal: 0",
     [](const Deck& d) { return d.evaluation.patience != 0 && d.evaluation.interval <= 0; }},
    {"evaluation.min_delta evaluation.patience",
     "{at}: evaluation.min_delta = {evaluation.min_delta} says what evaluation.patience counts as an "
     "improvement, and that is 0; nearest legal: 0",
     [](const Deck& d) { return d.evaluation.min_delta != 0 && d.evaluation.patience == 0; }},
    {"checkpoint.memory_copies checkpoint.interval",
     "{at}: checkpoint.memory_copies = {checkpoint.memory_copies} goes on from snapshots as from "
     "checkpoints, and checkpoint.interval = -1 writes none; nearest legal: 0",
     [](const Deck& d) { return d.checkpoint.memory_copies != 0 && d.checkpoint.interval < 0; }},
    {"checkpoint.export checkpoint.interval",
     "{at}: checkpoint.export needs the checkpoint at the end of the run, and checkpoint.interval = -1 "
     "writes none; set checkpoint.interval = 0, or leave checkpoint.export out",
     [](const Deck& d) { return !d.checkpoint.export_to.empty() && d.checkpoint.interval < 0; }},
    {"checkpoint.export_adapter lora.rank",
     "{at}: checkpoint.export_adapter = true needs adapters, and lora.rank = 0; nearest legal: false",
     [](const Deck& d) { return d.checkpoint.export_adapter && d.lora.rank <= 0; }},
    {"checkpoint.export lora.quantization model.from",
     "{at}: checkpoint.export merges the adapters into the weights of model.from, and lora.quantization = "
     "{lora.quantization} stands beside weights that are drawn, which nothing would hold; set "
     "checkpoint.export_adapter = true",
     [](const Deck& d) {
       return !d.checkpoint.export_to.empty() && !d.checkpoint.export_adapter && d.model.from.empty() &&
              d.lora.quantization != "none";
     }},
    {"watchdog.audit_interval device.deterministic",
     "{at}: watchdog.audit_interval = {watchdog.audit_interval} needs device.deterministic = true: steps are "
     "computed twice, and are to have the same bits",
     [](const Deck& d) { return d.watchdog.audit_interval != 0 && !d.device.deterministic; }},
    {"watchdog.non_finite optimizer.during_backward",
     "{at}: watchdog.non_finite = \"stop\" saves the state before the step, which optimizer.during_backward "
     "= true does not keep (such a step ends the run there anyway, unsaved); nearest legal: skip",
     [](const Deck& d) { return d.watchdog.non_finite == "stop" && steps_in_backward(d); }},
    {"watchdog.non_finite precision.parameters precision.preset",
     "{at}: watchdog.non_finite = \"stop\" does not go with precision.parameters = \"fp16\", whose loss "
     "scale is found by steps that are not finite; nearest legal: skip",
     [](const Deck& d) { return d.watchdog.non_finite == "stop" && d.precision.parameters == DType::f16; }},
    {"cluster.outside_memory cluster.device_memory cluster.preset",
     "{at}: cluster.outside_memory ({cluster.outside_memory} GB) leaves nothing of cluster.device_memory "
     "({cluster.device_memory} GB); it is a part of it",
     [](const Deck& d) {
       return d.cluster.device_memory != 0 && d.cluster.outside_memory >= d.cluster.device_memory;
     }},
    {"device.cuda_graphs offload.*",
     "device.cuda_graphs = \"step\": the host reads and writes NVMe ({op}), so the step cannot be one graph: "
     "set device.cuda_graphs = \"compute\", or send nothing to nvme in [offload]",
     [](const Deck& d) { return d.device.cuda_graphs == "step" && !sent_to_nvme(d.offload).empty(); },
     [](const Deck& d) {
       return Words{{"op", sent_to_nvme(d.offload)}};
     }},
    {"device.cuda_graphs device.communicator",
     "device.cuda_graphs = \"step\": the host drives the communication of {op}, so the step cannot be one "
     "graph: set device.communicator = \"nccl\", or device.cuda_graphs = \"compute\""},
};

}  // namespace

std::span<const Refusal> refusals() {
  static const std::vector<Refusal> all = [] {
    std::vector<Refusal> rows;
    for (const auto first : {model_refusals(), tuning_refusals()})
      rows.insert(rows.end(), first.begin(), first.end());
    rows.insert(rows.end(), std::begin(table), std::end(table));
    return rows;
  }();
  return all;
}

}  // namespace ztrain::config
