// Remarks for docs/coming-from.md on settings whose values need no conversion, or more than it says.
#include "config/text/suggest.hpp"
#include "translate/conversions.hpp"

namespace ztrain::translate {
namespace {

struct Remark {
  std::string_view names;  ///< as in config::OtherName
  std::string_view text;
};

constexpr Remark remark_rows[] = {
    {"gradient_clipping", "the norm is exact; 0 turns it off, which is the default there"},
    {"max_grad_norm", "the norm is exact; 0 turns it off"},
    {"zero_optimization.stage",
     "stage N is `\"zeroN\"`. `zero2` reduces every micro-batch, `zero1` once a step: see "
     "`sharding.gradient_accumulation`"},
    {"overlap_comm", "on by default"},
    {"reduce_scatter", "always: an all-reduce is a reduce-scatter and an all-gather"},
    {"reduce_bucket_size",
     "elements; it cuts a unit's reduction into buckets that share one workspace, and never joins units. 0: "
     "no cut"},
    {"allgather_partitions", "gathers are per unit"},
    {"allgather_bucket_size", "gathers are per unit, so it is not taken over"},
    {"contiguous_gradients", "always: flat buffers at planned addresses"},
    {"round_robin_gradients", "shards are contiguous"},
    {"stage3_prefetch_bucket_size",
     "in units, not in elements, so it is not taken over; `sharding.backward_prefetch` too"},
    {"stage3_max_live_parameters", "units in use do not count; 0: no limit"},
    {"stage3_max_reuse_distance", "the default is 0"},
    {"stage3_param_persistence_threshold", "the default is 0, not 1e5"},
    {"stage3_use_all_reduce_for_fetch_params",
     "a unit is one flat buffer: nothing is copied into or out of a bucket"},
    {"sub_group_size", "the optimizer steps unit by unit"},
    {"offload_optimizer.device offload_optimizer_device",
     "with `offload.master`; under every strategy, and memory is always pinned"},
    {"super_offload",
     "the same bits as without; up to 18 bytes a parameter more of the host's memory; not with Muon, "
     "pipelines or NVMe"},
    {"zero_hpz_partition_size",
     "the secondary copy is made at a unit's first use in a step, for that step; it takes W / N bytes beside "
     "the shards"},
    {"zero_quantized_weights",
     "`true` is `\"int8\"`, with stage 3 only; here every 64 elements have a scale, and a run on one rank "
     "computes with the rounded weights too"},
    {"zero_quantized_gradients",
     "`true` is `\"int4\"`, with stage 3 only; here every 64 elements have a scale, sums are in fp32, and a "
     "run on one rank rounds its gradients too"},
    {"mics_shard_size", "as `HYBRID_SHARD`, with `mesh.replicate = -1`"},
    {"load_from_fp32_weights", "always: checkpoints hold the master weights"},
    {"min_loss_scale",
     "at the minimum a run goes on with a warning, writes no checkpoint once 20 steps in a row were skipped, "
     "and is no success if it ends so"},
    {"partition_activations",
     "each rank keeps its part of the tokens of what is checkpointed, by default with `mesh.tensor`, and "
     "with "
     "`mesh.context` too"},
    {"cpu_checkpointing activation_offloading", "`\"cpu\"`"},
    {"flops_profiler comms_logger",
     "seconds by action (of what no CUDA graph replays) and bytes by axis of every step are in "
     "`metrics.jsonl`"},
    {"autotp_size",
     "by heads, columns and words, with any strategy; norms are split by tokens unless "
     "`tensor.sequence_parallel = false`"},
    {"sequence_parallel_size",
     "with `context.method = \"ulysses\"`, which exchanges tokens for heads, and on more ranks than heads of "
     "keys sends these round a ring besides (the ring degree of USP follows from the heads)"},
    {"adam_w_mode", "`true` is `\"adamw\"`, `false` is `\"adam\"`"},
    {"fp16 fp16.enabled",
     "`\"deepspeed-fp16\"`; `precision.parameters = \"fp16\"` alone keeps fp32 gradients"},
    {"pipeline_parallel_schedule",
     "its names are understood (`1F1B`, `GPipe`, `Interleaved1F1B`, `ZBVZeroBubble`, `DualPipeV`), and a "
     "CSV file is a schedule too"},
    {"pipeline_parallel_layers_per_stage", "by default by cost"},
    {"data_parallel_shard_degree", "-1: what is left, in both"},
    {"parallelism.fsdp_reshard_after_forward",
     "`default`, `always`, `never` are `\"auto\"`, `\"true\"`, `\"false\"`"},
    {"context_parallel_rotate_method",
     "`allgather` is `\"gather\"`, `alltoall` is `\"ring\"`, always in the balanced order; `\"ulysses\"` "
     "exchanges heads"},
    {"expert_parallel_degree", "with `mesh.tensor` whole experts are dealt to the ranks of both"},
    {"last_save_in_hf", "a folder, beside the last checkpoint and not instead of it"},
    {"async_mode", "on by default; pinned memory is no setting"},
    {"debug.deterministic", "on by default; CPU ranks always are"},
    {"filter_fqns", "the head and layers of odd sizes are always left out"},
    {"training.dtype", "bf16 needs bf16 parameters"},
    {"training.seed debug.seed", ""},
    {"selective_ac_option", "a number N is `recompute.every = N`, with `recompute.mode = \"full\"`"},
    {"optimizer.name", ""},
    {"optimizer.beta1 optimizer.beta2", ""},
    {"optimizer.weight_decay", "norms are not decayed here unless a row of `optimizer.groups` says so"},
    {"lora_target_modules lora_target_parameters", "`all-linear` is the default"},
    {"logging_steps",
     "the printed loss is that of one step, over all ranks; a trainer prints the mean since "
     "the line before, over all ranks too"},
    {"per_device_train_batch_size micro_batch_size",
     "sequences: of padded rows one sample each, of packed ones as many as fit"},
    {"save_steps", "by default the end of the run alone here"},
};

}  // namespace

std::string_view remark_on(std::string_view path, std::string_view otherwise) {
  for (std::string_view ending = path;; ending.remove_prefix(ending.find('.') + 1)) {
    for (const Remark& row : remark_rows)
      if (config::names_have(row.names, ending)) return row.text;
    if (ending.find('.') == ending.npos) return otherwise;
  }
}

}  // namespace ztrain::translate
