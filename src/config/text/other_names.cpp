#include "config/text/suggest.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <sstream>

namespace ztrain::config {
namespace {

constexpr OtherName other_name_rows[] = {
    {"run.output", "output_dir logging_dir dump_folder out_dir"},
    {"run.seed", "data_seed"},
    {"run.steps", "max_steps total_num_steps train_iters max_iters"},
    {"run.tokens", "train_samples", "It counts tokens, not sequences."},
    {"run.epochs", "num_train_epochs num_epochs"},
    {"run.max_minutes", "exit_duration_in_mins"},
    {"data.train", "dataset_name dataset dataset_path",
     "It names files of tokens, which tools/prepare_data.py makes."},
    {"data.train", "data_path data.path"},
    {"data.validation_fraction", "split", "It is the share that is held out."},
    {"data.sequence", "max_seq_length max_length seq_len seq_length block_size context_length"},
    {"data.packing", "group_by_length"},
    {"model.family", "model.name", "model.preset names whole models."},
    {"model.preset", "flavor"},
    {"model.from", "model_name_or_path name_or_path pretrained_model_name_or_path", "It is a folder."},
    {"model.from", "hf_assets_path initial_load_path"},
    {"model.add_tokens", "resize_token_embeddings new_tokens added_tokens"},
    {"model.hidden_size", "n_embd d_model embed_dim model.hidden model.dim model_dim"},
    {"model.intermediate_size", "ffn_hidden_size"},
    {"model.num_hidden_layers", "num_layers n_layer n_layers model.layers"},
    {"model.num_attention_heads", "n_head"},
    {"model.num_key_value_heads", "num_query_groups"},
    {"model.head_dim", "kv_channels"},
    {"model.rms_norm_eps", "norm_epsilon"},
    {"model.rope_theta", "rotary_base"},
    {"model.rope_factor", "rope_scaling_factor"},
    {"model.initializer_range", "init_method_std"},
    {"model.tie_word_embeddings", "untie_embeddings_and_output_weights", "It says the opposite."},
    {"model.num_experts", "num_local_experts n_routed_experts"},
    {"model.num_experts_per_tok", "moe_router_topk top_k"},
    {"model.moe_intermediate_size", "moe_ffn_hidden_size expert_intermediate_size"},
    {"model.shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"},
    {"model.n_shared_experts", "num_shared_experts"},
    {"model.norm_topk_prob", "route_norm"},
    {"model.routed_scaling_factor", "moe_router_topk_scaling_factor route_scale"},
    {"model.scoring_func", "moe_router_score_function score_func"},
    {"model.n_group", "moe_router_num_groups num_expert_groups"},
    {"model.topk_group", "moe_router_group_topk num_limited_groups"},
    {"model.router_aux_loss_coef", "moe_aux_loss_coeff aux_loss_alpha"},
    {"experts.balance", "moe_router_load_balancing_type"},
    {"experts.z_loss", "moe_z_loss_coeff router_z_loss_coef"},
    {"experts.capacity", "moe_expert_capacity_factor capacity_factor"},
    {"experts.bias_update_speed", "moe_router_bias_update_rate load_balance_coeff"},
    {"experts.bias_update_speed", "moe_router_enable_expert_bias", "Above 0 the biases move."},
    {"model.trainable", "modules_to_save"},
    {"lora.rank", "r lora_r"},
    {"lora.rank", "use_peft", "Above 0 there are adapters."},
    {"lora.alpha", "lora_alpha"},
    {"lora.dropout", "lora_dropout"},
    {"lora.targets", "target_modules lora_target_modules target_parameters"},
    {"batch.global", "gradient_accumulation_steps",
     "The micro-batches of a step follow: batch.global / (batch.micro x data-parallel ranks)."},
    {"batch.global", "train_batch_size global_batch_size"},
    {"batch.global", "batch_size batch.size", "batch.micro is what a rank takes at once."},
    {"batch.micro",
     "per_device_train_batch_size train_micro_batch_size_per_gpu local_batch_size "
     "pipeline_parallel_microbatch_size micro_batch_size"},
    // mesh.tensor comes first of the axes, because a name that is equally near to several counts as the
    // first.
    {"mesh.tensor",
     "tensor_parallel_degree tp tp_size tensor.parallel tensor_model_parallel_size mp mp_size "
     "model_parallel_size"},
    {"mesh.pipeline", "pipeline_parallel_degree pp pp_size pipeline_model_parallel_size"},
    {"mesh.replicate", "data_parallel_replicate_degree dp_replicate"},
    {"mesh.shard", "mics_shard_size", "With mesh.replicate = -1."},
    {"mesh.shard", "data_parallel_shard_degree dp_size dp dp_shard data_parallel data_parallel_size"},
    {"mesh.expert", "expert_parallel_degree expert_model_parallel_size expert_parallel_size ep ep_size"},
    {"mesh.context", "context_parallel_degree sequence_parallel_size cp cp_size context_parallel_size"},
    {"mesh.context", "ulysses_degree ulysses_sequence_parallel_size", "With context.method = \"ulysses\"."},
    {"pipeline.schedule", "pipeline_parallel_schedule"},
    {"pipeline.stages_per_rank", "num_virtual_stages_per_pipeline_rank"},
    {"context.method", "context_parallel_rotate_method cp_comm_type"},
    {"tensor.sequence_parallel", "sequence_parallel partition_activations"},
    {"tensor.overlap", "enable_async_tensor_parallel tp_comm_overlap"},
    {"sharding.strategy", "fsdp fsdp_sharding_strategy sharding_strategy"},
    {"sharding.strategy", "zero_stage zero_optimization stage",
     "Stage 3 is \"zero3\", 2 \"zero2\", 1 \"zero1\"."},
    {"sharding.strategy", "use_distributed_optimizer", "That is \"zero1\"."},
    {"sharding.reshard_after_forward", "fsdp_reshard_after_forward"},
    {"sharding.reshard_after_forward", "zero_hpz_partition_size", "A number N is such a group."},
    {"sharding.forward_prefetch", "fsdp_forward_prefetch overlap_param_gather"},
    {"sharding.forward_prefetch", "stage3_prefetch_bucket_size", "It counts units, not elements."},
    {"sharding.backward_prefetch", "fsdp_backward_prefetch fsdp_backward_prefetch_policy"},
    {"sharding.max_gathered_units", "limit_all_gathers", "It is a number of units: 2 there."},
    {"sharding.max_live_parameters", "stage3_max_live_parameters"},
    {"sharding.max_reuse_distance", "stage3_max_reuse_distance"},
    {"sharding.persistence_threshold", "stage3_param_persistence_threshold"},
    {"sharding.overlap_reduce", "overlap_comm overlap_grad_reduce"},
    {"sharding.unit", "fsdp_auto_wrap_policy auto_wrap_policy"},
    {"sharding.unit", "fsdp_transformer_layer_cls_to_wrap transformer_layer_cls",
     "\"block\" is every layer of the decoder."},
    {"sharding.unit", "allgather_bucket_size", "It says what is gathered at once."},
    {"sharding.unit_min_parameters", "fsdp_min_num_params min_num_params"},
    {"precision.preset", "bf16", "Write \"bf16\"."},
    {"precision.preset", "fp16 fp16.enabled", "Write \"deepspeed-fp16\"."},
    {"precision.preset", "mixed_precision dtype"},
    {"precision.preset", "bf16.enabled", "Write \"deepspeed-bf16\", or \"bf16\" with fp32 gradients."},
    {"precision.parameters", "torch_dtype param_dtype mixed_precision_param"},
    {"precision.gradients", "keep_low_precision_grads grad_accum_dtype"},
    {"precision.reduce", "reduce_dtype communication_data_type mixed_precision_reduce"},
    {"precision.master", "training.dtype"},
    {"precision.fp8", "recipe_name fp8_format fp8_recipe"},
    {"loss_scaling.scale", "loss_scale"},
    {"loss_scaling.window", "loss_scale_window"},
    {"loss_scaling.min_scale", "min_loss_scale"},
    {"recompute.mode", "gradient_checkpointing fsdp_activation_checkpointing activation_checkpointing",
     "What is switched on there is \"full\" here."},
    {"recompute.mode", "activation_checkpoint.mode recompute_granularity recompute_activations"},
    {"recompute.every", "recompute_num_layers"},
    {"recompute.pieces", "selective_ac_option",
     "A number there is recompute.every here, with recompute.mode = \"full\"."},
    {"offload.parameters", "fsdp_offload_params cpu_offload offload_policy enable_cpu_offload offload",
     "FSDP's CPUOffload is offload.parameters, offload.gradients and offload.optimizer = \"cpu\" (and "
     "master)."},
    {"offload.parameters", "offload_param_device offload_param"},
    {"offload.optimizer", "offload_optimizer_device offload_optimizer",
     "\"cpu\" or \"nvme\"; master weights have offload.master."},
    {"offload.activations", "cpu_checkpointing", "It is \"cpu\"."},
    {"optimizer.name", "optim optimizer.type"},
    {"optimizer.lr", "learning_rate warmup_max_lr"},
    {"optimizer.betas", "adam_beta1 adam_beta2 beta1 beta2", "It holds both: [beta1, beta2]."},
    {"optimizer.eps", "adam_epsilon adam_eps"},
    {"optimizer.max_norm", "max_grad_norm gradient_clipping clip_grad_norm clip_grad grad_clip"},
    {"optimizer.momentum", "sgd_momentum"},
    {"optimizer.during_backward", "early_step_in_backward"},
    {"schedule.name", "lr_scheduler_type scheduler.type decay_type lr_decay_style"},
    {"schedule.warmup", "warmup_steps warmup_num_steps lr_warmup_iters"},
    {"schedule.warmup", "warmup_ratio lr_warmup_fraction",
     "It counts steps; a share is to be multiplied with them."},
    {"schedule.min_lr_ratio", "lr_scheduler_kwargs cos_min_ratio min_lr_factor"},
    {"schedule.min_lr_ratio", "min_lr", "It is a share of optimizer.lr."},
    {"schedule.decay", "decay_ratio", "It counts steps; a share is to be multiplied with them."},
    {"schedule.decay", "lr_wsd_decay_iters"},
    {"checkpoint.folder", "save"},
    {"checkpoint.interval", "save_steps save_interval"},
    {"checkpoint.interval", "save_strategy checkpoint.enable enable_checkpoint", "It counts steps."},
    {"checkpoint.keep", "save_total_limit keep_latest_k"},
    {"checkpoint.async", "async_mode", "It is true or false."},
    {"checkpoint.memory_copies", "fault_tolerance.enable",
     "It is 0 or 1; slurm/launch.sh goes on with the nodes that are left."},
    {"checkpoint.resume", "overwrite_output_dir", "\"none\" starts anew."},
    {"checkpoint.resume", "resume_from_checkpoint load"},
    {"checkpoint.resume", "load_step", "It is a folder, or \"auto\"."},
    {"checkpoint.export", "stage3_gather_16bit_weights_on_model_save last_save_in_hf", "It is a folder."},
    {"evaluation.interval", "eval_steps validation.freq eval_interval"},
    {"evaluation.interval", "eval_strategy evaluation_strategy", "It counts steps."},
    {"evaluation.batches", "validation.steps eval_iters"},
    {"metrics.interval", "logging_steps steps_per_print log_freq log_interval"},
    {"watchdog.timeout", "ddp_timeout train_timeout_seconds"},
    {"watchdog.timeout", "distributed_timeout_minutes", "It counts seconds."},

    // These have no key here.
    {"", "per_device_eval_batch_size",
     "evaluations take batch.micro sequences at once; evaluation.batches is their length"},
    {"", "save_only_model",
     "checkpoints hold all that resuming needs; `ztrain export` writes the model alone"},
    {"", "report_to wall_clock_breakdown tensorboard wandb csv_monitor wandb.enabled tensorboard.enabled",
     "metrics.jsonl in run.output holds every step, and tools/plot_run.py draws it: leave it out"},
    {"", "deepspeed fsdp_config", "its settings are keys of the deck: docs/coming-from.md lists them"},
    {"",
     "dataloader_pin_memory fsdp_state_dict_type fsdp_cpu_ram_efficient_loading "
     "fsdp_sync_module_states sync_module_states state_dict_type sub_group_size ignore_unused_parameters "
     "load_from_fp32_weights",
     "nothing of the kind is needed here: leave it out"},
    {"",
     "fsdp_use_orig_params use_orig_params contiguous_gradients reduce_scatter allgather_partitions "
     "flops_profiler.enabled comms_logger.enabled moe_grouped_gemm use_grouped_mm moe_router_dtype",
     "it is always so here: leave it out"},
    {"", "torch_compile compile.enable training.compile",
     "the program is compiled already, with kernels for what is worth fusing: leave it out"},
    {"", "attn_implementation use_flash_attn", "attention is always fused: leave it out"},
    {"",
     "label_smoothing_factor neftune_noise_alpha load_in_8bit load_in_4bit use_rslora ignored_modules "
     "round_robin_gradients zero_quantized_weights zero_quantized_gradients noisy_gate_policy "
     "moe_input_jitter_eps expert_parallel",
     "there is nothing like it here: leave it out"},
    {"", "dataloader_num_workers num_workers dataloader_prefetch_factor prefetch_factor",
     "ranks read their rows themselves, and ask the file system ahead for those of the next step "
     "(docs/metrics.md): leave it out"},
    {"", "push_to_hub", "`ztrain export` writes a folder that can be uploaded"},
    {"",
     "local_rank num_processes num_machines machine_rank ranks nproc_per_node nproc nnodes world_size "
     "num_gpus np n",
     "mpirun -np N, or srun, says how many ranks there are: leave it out"},
    {"", "help h", "`ztrain --help` lists the commands, `ztrain deck` the keys"},
    {"", "model.dropout attention_dropout hidden_dropout",
     "the model has no dropout; adapters have lora.dropout"},
    {"", "dataset_text_field tokenizer_path tokenizer_type tokenizer",
     "no tokenizer runs in training: tools/prepare_data.py makes token files of texts and chats, for "
     "data.train"},
    {"", "assistant_only_loss completion_only_loss",
     "tools/prepare_data.py writes the masks of chats into token files"},
    {"", "pin_memory pinned",
     "the host's memory of [offload] is always pinned where there are GPUs: leave it out"},
    {"", "buffer_dtype", "the model has no buffers: leave it out"},
    {"", "warmup_min_lr", "the warmup begins at optimizer.lr / schedule.warmup: leave it out"},
    {"", "autotuning", "`ztrain plan DECK --fit` does it by arithmetic, before the run"},
    {"", "elasticity", "batch.global is kept when a run goes on with other ranks: leave it out"},
    {"", "max_restarts",
     "slurm/launch.sh starts ranks again (ZTRAIN_FAILURES, ZTRAIN_MIN_NODES): leave it out"},
    {"", "enable_profiling", "`ztrain bench DECK --kernels` tells where the time goes"},
    {"", "lr_decay_iters",
     "the schedule ends with the run; schedule.decay is the length of wsd's final decay"},
};

std::string spelled(std::string_view name) {
  std::string result(name);
  for (char& c : result) c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

std::vector<std::string> words_of(std::string_view text) {
  std::istringstream words{std::string(text)};
  return {std::istream_iterator<std::string>(words), {}};
}

}  // namespace

const OtherName* find_other_name(std::string_view name) {
  const std::string wanted = spelled(name);
  for (const OtherName& other : other_name_rows)
    if (std::ranges::count(words_of(other.names), wanted) > 0) return &other;
  return nullptr;
}

const std::vector<std::string>& other_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const OtherName& other : other_name_rows)
      std::ranges::remove_copy_if(
          words_of(other.names), std::back_inserter(all),
          [](const std::string& name) { return name.find('.') != std::string::npos; });
    return all;
  }();
  return names;
}

}  // namespace ztrain::config
