#include "config/text/other_names.hpp"

#include <algorithm>
#include <cctype>

namespace ztrain::config {
namespace {

constexpr std::string_view always = "it is always so here: leave it out";
constexpr std::string_view not_needed = "nothing of the kind is needed here: leave it out";
constexpr std::string_view nothing_like_it = "there is nothing like it here: leave it out";
constexpr std::string_view three_of_them =
    "FSDP's CPUOffload is offload.parameters, offload.gradients and offload.optimizer = \"cpu\" (and "
    "master).";
constexpr std::string_view always_pinned =
    "the host's memory of [offload] is always pinned where there are GPUs: leave it out";
constexpr std::string_view states_of_it = "\"cpu\" or \"nvme\"; master weights have offload.master.";
constexpr std::string_view launched = "mpirun -np N, or srun, says how many ranks there are: leave it out";
constexpr std::string_view no_tokenizer =
    "no tokenizer runs in training: tools/prepare_data.py makes token files of texts and chats, for "
    "data.train";
constexpr std::string_view no_dropout = "the model has no dropout; adapters have lora.dropout";
constexpr std::string_view see_metrics =
    "metrics.jsonl in run.output holds every step, and tools/plot_run.py draws it: leave it out";
constexpr std::string_view see_coming_from =
    "its settings are keys of the deck: docs/coming-from.md lists them";
constexpr std::string_view in_steps = "It counts steps.";
constexpr std::string_view stages = "Stage 3 is \"zero3\", 2 \"zero2\", 1 \"zero1\".";
constexpr std::string_view ulysses = "With context.method = \"ulysses\".";
constexpr std::string_view both_betas = "It holds both: [beta1, beta2].";
constexpr std::string_view accumulation =
    "The micro-batches of a step follow: batch.global / (batch.micro x data-parallel ranks).";
constexpr std::string_view steps_not_share = "It counts steps; a share is to be multiplied with them.";
constexpr std::string_view full_is_on = "What is switched on there is \"full\" here.";

/// Where programs share a name, it stands with the first.
constexpr OtherName other_name_rows[] = {
    // Hugging Face's TrainingArguments and model configurations.
    {"output_dir", "run.output", ""},
    {"overwrite_output_dir", "checkpoint.resume", "\"none\" starts anew."},
    {"learning_rate", "optimizer.lr", ""},
    {"optim", "optimizer.name", ""},
    {"adam_beta1", "optimizer.betas", both_betas},
    {"adam_beta2", "optimizer.betas", both_betas},
    {"adam_epsilon", "optimizer.eps", ""},
    {"max_grad_norm", "optimizer.max_norm", ""},
    {"lr_scheduler_type", "schedule.name", ""},
    {"lr_scheduler_kwargs", "schedule.min_lr_ratio", ""},
    {"warmup_steps", "schedule.warmup", ""},
    {"warmup_ratio", "schedule.warmup", steps_not_share},
    {"per_device_train_batch_size", "batch.micro", ""},
    {"per_device_eval_batch_size", "",
     "evaluations take batch.micro sequences at once; evaluation.batches is their length"},
    {"gradient_accumulation_steps", "batch.global", accumulation},
    {"num_train_epochs", "run.epochs", ""},
    {"max_steps", "run.steps", ""},
    {"save_steps", "checkpoint.interval", ""},
    {"save_strategy", "checkpoint.interval", in_steps},
    {"save_total_limit", "checkpoint.keep", ""},
    {"save_only_model", "",
     "checkpoints hold all that resuming needs; `ztrain export` writes the model alone"},
    {"resume_from_checkpoint", "checkpoint.resume", ""},
    {"eval_steps", "evaluation.interval", ""},
    {"eval_strategy", "evaluation.interval", in_steps},
    {"evaluation_strategy", "evaluation.interval", in_steps},
    {"logging_steps", "metrics.interval", ""},
    {"logging_dir", "run.output", ""},
    {"report_to", "", see_metrics},
    {"data_seed", "run.seed", ""},
    {"bf16", "precision.preset", "Write \"bf16\"."},
    {"fp16", "precision.preset", "Write \"deepspeed-fp16\"."},
    {"gradient_checkpointing", "recompute.mode", full_is_on},
    {"deepspeed", "", see_coming_from},
    {"fsdp", "sharding.strategy", ""},
    {"fsdp_config", "", see_coming_from},
    {"ddp_timeout", "watchdog.timeout", ""},
    {"dataloader_num_workers", "", not_needed},
    {"dataloader_pin_memory", "", not_needed},
    {"group_by_length", "data.packing", ""},
    {"torch_compile", "", always},
    {"attn_implementation", "", "attention is always fused: leave it out"},
    {"label_smoothing_factor", "", nothing_like_it},
    {"neftune_noise_alpha", "", nothing_like_it},
    {"push_to_hub", "", "`ztrain export` writes a folder that can be uploaded"},
    {"local_rank", "", launched},
    {"model_name_or_path", "model.from", "It is a folder."},
    {"name_or_path", "model.from", "It is a folder."},
    {"pretrained_model_name_or_path", "model.from", "It is a folder."},
    {"torch_dtype", "precision.parameters", ""},
    {"load_in_8bit", "", nothing_like_it},
    {"load_in_4bit", "", nothing_like_it},
    {"model.dropout", "", no_dropout},
    {"attention_dropout", "", no_dropout},
    {"hidden_dropout", "", no_dropout},
    {"max_position_embeddings", "data.sequence", ""},
    {"rope_scaling_factor", "model.rope_factor", ""},

    // TRL and PEFT.
    {"max_seq_length", "data.sequence", ""},
    {"max_length", "data.sequence", ""},
    {"dataset_name", "data.train", "It names files of tokens, which tools/prepare_data.py makes."},
    {"dataset_text_field", "", no_tokenizer},
    {"assistant_only_loss", "", "tools/prepare_data.py writes the masks of chats into token files"},
    {"completion_only_loss", "", "tools/prepare_data.py writes the masks of chats into token files"},
    {"r", "lora.rank", ""},
    {"lora_r", "lora.rank", ""},
    {"use_peft", "lora.rank", "Above 0 there are adapters."},
    {"lora_alpha", "lora.alpha", ""},
    {"lora_dropout", "lora.dropout", ""},
    {"target_modules", "lora.targets", ""},
    {"lora_target_modules", "lora.targets", ""},
    {"modules_to_save", "model.trainable", ""},
    {"use_rslora", "", nothing_like_it},

    // Accelerate.
    {"mixed_precision", "precision.preset", ""},
    {"num_processes", "", launched},
    {"num_machines", "", launched},
    {"machine_rank", "", launched},
    {"fsdp_sharding_strategy", "sharding.strategy", ""},
    {"fsdp_reshard_after_forward", "sharding.reshard_after_forward", ""},
    {"fsdp_auto_wrap_policy", "sharding.unit", ""},
    {"fsdp_transformer_layer_cls_to_wrap", "sharding.unit", "\"block\" is every layer of the decoder."},
    {"fsdp_min_num_params", "sharding.unit_min_parameters", ""},
    {"fsdp_backward_prefetch", "sharding.backward_prefetch", ""},
    {"fsdp_backward_prefetch_policy", "sharding.backward_prefetch", ""},
    {"fsdp_forward_prefetch", "sharding.forward_prefetch", ""},
    {"fsdp_offload_params", "offload.parameters", three_of_them},
    {"fsdp_state_dict_type", "", not_needed},
    {"fsdp_cpu_ram_efficient_loading", "", not_needed},
    {"fsdp_sync_module_states", "", not_needed},
    {"fsdp_use_orig_params", "", always},
    {"fsdp_activation_checkpointing", "recompute.mode", full_is_on},
    {"zero_stage", "sharding.strategy", stages},
    {"gradient_clipping", "optimizer.max_norm", ""},
    {"offload_optimizer_device", "offload.optimizer", states_of_it},
    {"offload_param_device", "offload.parameters", ""},

    // PyTorch's FSDP.
    {"sharding_strategy", "sharding.strategy", ""},
    {"auto_wrap_policy", "sharding.unit", ""},
    {"transformer_layer_cls", "sharding.unit", "\"block\" is every layer of the decoder."},
    {"min_num_params", "sharding.unit_min_parameters", ""},
    {"limit_all_gathers", "sharding.max_gathered_units", "It is a number of units: 2 there."},
    {"cpu_offload", "offload.parameters", three_of_them},
    {"offload_policy", "offload.parameters", three_of_them},
    {"pin_memory", "", always_pinned},
    {"pinned", "", always_pinned},
    {"param_dtype", "precision.parameters", ""},
    {"reduce_dtype", "precision.reduce", ""},
    {"buffer_dtype", "", "the model has no buffers: leave it out"},
    {"keep_low_precision_grads", "precision.gradients", ""},
    {"ignored_modules", "", nothing_like_it},
    {"use_orig_params", "", always},
    {"sync_module_states", "", not_needed},
    {"activation_checkpointing", "recompute.mode", full_is_on},
    {"clip_grad_norm", "optimizer.max_norm", ""},
    {"state_dict_type", "", not_needed},

    // DeepSpeed.
    {"train_batch_size", "batch.global", ""},
    {"train_micro_batch_size_per_gpu", "batch.micro", ""},
    {"steps_per_print", "metrics.interval", ""},
    {"zero_optimization", "sharding.strategy", stages},
    {"stage", "sharding.strategy", stages},
    {"overlap_comm", "sharding.overlap_reduce", ""},
    {"allgather_bucket_size", "sharding.unit", "It says what is gathered at once."},
    {"stage3_prefetch_bucket_size", "sharding.forward_prefetch", "It counts units, not elements."},
    {"stage3_max_live_parameters", "sharding.max_live_parameters", ""},
    {"stage3_max_reuse_distance", "sharding.max_reuse_distance", ""},
    {"stage3_param_persistence_threshold", "sharding.persistence_threshold", ""},
    {"stage3_gather_16bit_weights_on_model_save", "checkpoint.export", "It is a folder."},
    {"contiguous_gradients", "", always},
    {"reduce_scatter", "", always},
    {"allgather_partitions", "", always},
    {"round_robin_gradients", "", nothing_like_it},
    {"sub_group_size", "", not_needed},
    {"offload_optimizer", "offload.optimizer", states_of_it},
    {"offload_param", "offload.parameters", ""},
    {"zero_hpz_partition_size", "sharding.reshard_after_forward", "A number N is such a group."},
    {"mics_shard_size", "mesh.shard", "With mesh.replicate = -1."},
    {"communication_data_type", "precision.reduce", ""},
    {"grad_accum_dtype", "precision.gradients", ""},
    {"bf16.enabled", "precision.preset", "Write \"deepspeed-bf16\", or \"bf16\" with fp32 gradients."},
    {"fp16.enabled", "precision.preset", "Write \"deepspeed-fp16\"."},
    {"loss_scale", "loss_scaling.scale", ""},
    {"loss_scale_window", "loss_scaling.window", ""},
    {"min_loss_scale", "loss_scaling.min_scale", ""},
    {"optimizer.type", "optimizer.name", ""},
    {"scheduler.type", "schedule.name", ""},
    {"warmup_num_steps", "schedule.warmup", ""},
    {"warmup_max_lr", "optimizer.lr", ""},
    {"warmup_min_lr", "", "the warmup begins at optimizer.lr / schedule.warmup: leave it out"},
    {"total_num_steps", "run.steps", ""},
    {"cos_min_ratio", "schedule.min_lr_ratio", ""},
    {"wall_clock_breakdown", "", see_metrics},
    {"partition_activations", "", nothing_like_it},
    {"cpu_checkpointing", "offload.activations", "It is \"cpu\"."},
    {"tensorboard", "", see_metrics},
    {"wandb", "", see_metrics},
    {"csv_monitor", "", see_metrics},
    {"autotuning", "", "`ztrain plan DECK --fit` does it by arithmetic, before the run"},
    {"zero_quantized_weights", "", nothing_like_it},
    {"zero_quantized_gradients", "", nothing_like_it},
    {"ignore_unused_parameters", "", not_needed},
    {"load_from_fp32_weights", "", not_needed},
    {"elasticity", "", "batch.global is kept when a run goes on with other ranks: leave it out"},

    // torchtitan.
    {"flavor", "model.preset", ""},
    {"model.name", "model.family", "model.preset names whole models."},
    {"local_batch_size", "batch.micro", ""},
    {"global_batch_size", "batch.global", ""},
    {"seq_len", "data.sequence", ""},
    {"dataset", "data.train", "It names files of tokens, which tools/prepare_data.py makes."},
    {"dataset_path", "data.train", "It names files of tokens, which tools/prepare_data.py makes."},
    {"tokenizer_path", "", no_tokenizer},
    {"hf_assets_path", "model.from", ""},
    {"training.dtype", "precision.master", ""},
    {"mixed_precision_param", "precision.parameters", ""},
    {"mixed_precision_reduce", "precision.reduce", ""},
    {"enable_cpu_offload", "offload.parameters", three_of_them},
    {"early_step_in_backward", "optimizer.during_backward", ""},
    {"data_parallel_shard_degree", "mesh.shard", ""},
    {"data_parallel_replicate_degree", "mesh.replicate", ""},
    {"tensor_parallel_degree", "mesh.tensor", ""},
    {"pipeline_parallel_degree", "mesh.pipeline", ""},
    {"context_parallel_degree", "mesh.context", ""},
    {"context_parallel_rotate_method", "context.method", ""},
    {"cp_comm_type", "context.method", ""},
    {"sequence_parallel_size", "mesh.context", ""},
    {"ulysses_degree", "mesh.context", ulysses},
    {"ulysses_sequence_parallel_size", "mesh.context", ulysses},
    {"tp", "mesh.tensor", ""},
    {"tp_size", "mesh.tensor", ""},
    {"tensor.parallel", "mesh.tensor", ""},
    {"cp", "mesh.context", ""},
    {"cp_size", "mesh.context", ""},
    {"pp", "mesh.pipeline", ""},
    {"pp_size", "mesh.pipeline", ""},
    {"pipeline_parallel_schedule", "pipeline.schedule", ""},
    {"pipeline_parallel_microbatch_size", "batch.micro", ""},
    {"dp_size", "mesh.shard", ""},
    {"offload", "offload.parameters", three_of_them},
    {"activation_checkpoint.mode", "recompute.mode", ""},
    {"selective_ac_option", "recompute.pieces",
     "A number there is recompute.every here, with recompute.mode = \"full\"."},
    {"decay_type", "schedule.name", ""},
    {"decay_ratio", "schedule.decay", steps_not_share},
    {"min_lr_factor", "schedule.min_lr_ratio", ""},
    {"checkpoint.enable", "checkpoint.interval", in_steps},
    {"enable_checkpoint", "checkpoint.interval", in_steps},
    {"keep_latest_k", "checkpoint.keep", ""},
    {"load_step", "checkpoint.resume", "It is a folder, or \"auto\"."},
    {"initial_load_path", "model.from", ""},
    {"last_save_in_hf", "checkpoint.export", "It is a folder."},
    {"enable_async_tensor_parallel", "tensor.overlap", ""},
    {"async_mode", "checkpoint.async", "It is true or false."},
    {"max_restarts", "",
     "slurm/launch.sh starts ranks again (ZTRAIN_FAILURES, ZTRAIN_MIN_NODES): leave it out"},
    {"fault_tolerance.enable", "checkpoint.memory_copies",
     "It is 0 or 1; slurm/launch.sh goes on with the nodes that are left."},
    {"dump_folder", "run.output", ""},
    {"log_freq", "metrics.interval", ""},
    {"validation.freq", "evaluation.interval", ""},
    {"validation.steps", "evaluation.batches", ""},
    {"train_timeout_seconds", "watchdog.timeout", ""},
    {"recipe_name", "precision.fp8", ""},
    {"compile.enable", "", always},
    {"enable_profiling", "", "`ztrain bench DECK --kernels` tells where the time goes"},

    // Megatron-LM.
    {"micro_batch_size", "batch.micro", ""},
    {"train_iters", "run.steps", ""},
    {"train_samples", "run.tokens", "It counts tokens, not sequences."},
    {"seq_length", "data.sequence", ""},
    {"num_layers", "model.num_hidden_layers", ""},
    {"ffn_hidden_size", "model.intermediate_size", ""},
    {"num_query_groups", "model.num_key_value_heads", ""},
    {"kv_channels", "model.head_dim", ""},
    {"rotary_base", "model.rope_theta", ""},
    {"norm_epsilon", "model.rms_norm_eps", ""},
    {"init_method_std", "model.initializer_range", ""},
    {"untie_embeddings_and_output_weights", "model.tie_word_embeddings", "It says the opposite."},
    {"min_lr", "schedule.min_lr_ratio", "It is a share of optimizer.lr."},
    {"lr_warmup_iters", "schedule.warmup", ""},
    {"lr_warmup_fraction", "schedule.warmup", steps_not_share},
    {"lr_decay_style", "schedule.name", ""},
    {"lr_decay_iters", "",
     "the schedule ends with the run; schedule.decay is the length of wsd's final decay"},
    {"lr_wsd_decay_iters", "schedule.decay", ""},
    {"clip_grad", "optimizer.max_norm", ""},
    {"adam_eps", "optimizer.eps", ""},
    {"sgd_momentum", "optimizer.momentum", ""},
    {"save", "checkpoint.folder", ""},
    {"load", "checkpoint.resume", ""},
    {"save_interval", "checkpoint.interval", ""},
    {"eval_interval", "evaluation.interval", ""},
    {"eval_iters", "evaluation.batches", ""},
    {"log_interval", "metrics.interval", ""},
    {"data_path", "data.train", ""},
    {"split", "data.validation_fraction", "It is the share that is held out."},
    {"tokenizer_type", "", no_tokenizer},
    {"tensor_model_parallel_size", "mesh.tensor", ""},
    {"pipeline_model_parallel_size", "mesh.pipeline", ""},
    {"num_virtual_stages_per_pipeline_rank", "pipeline.stages_per_rank", ""},
    {"context_parallel_size", "mesh.context", ""},
    {"expert_model_parallel_size", "", nothing_like_it},
    {"sequence_parallel", "tensor.sequence_parallel", ""},
    {"tp_comm_overlap", "tensor.overlap", ""},
    {"use_distributed_optimizer", "sharding.strategy", "That is \"zero1\"."},
    {"overlap_grad_reduce", "sharding.overlap_reduce", ""},
    {"overlap_param_gather", "sharding.forward_prefetch", ""},
    {"recompute_granularity", "recompute.mode", ""},
    {"recompute_activations", "recompute.mode", ""},
    {"recompute_num_layers", "recompute.every", ""},
    {"fp8_format", "precision.fp8", ""},
    {"fp8_recipe", "precision.fp8", ""},
    {"exit_duration_in_mins", "run.max_minutes", ""},
    {"distributed_timeout_minutes", "watchdog.timeout", "It counts seconds."},
    {"use_flash_attn", "", "attention is always fused: leave it out"},

    // Scripts of one's own.
    {"beta1", "optimizer.betas", both_betas},
    {"beta2", "optimizer.betas", both_betas},
    {"batch_size", "batch.global", "batch.micro is what a rank takes at once."},
    {"batch.size", "batch.global", "batch.micro is what a rank takes at once."},
    {"ranks", "", launched},
    {"nproc_per_node", "", launched},
    {"nproc", "", launched},
    {"nnodes", "", launched},
    {"world_size", "", launched},
    {"num_gpus", "", launched},
    {"block_size", "data.sequence", ""},
    {"context_length", "data.sequence", ""},
    {"max_iters", "run.steps", ""},
    {"num_epochs", "run.epochs", ""},
    {"grad_clip", "optimizer.max_norm", ""},
    {"n_layer", "model.num_hidden_layers", ""},
    {"n_head", "model.num_attention_heads", ""},
    {"n_embd", "model.hidden_size", ""},
    {"out_dir", "run.output", ""},
    {"dtype", "precision.preset", ""},
    {"tokenizer", "", no_tokenizer},
};

std::string spelled(std::string_view name) {
  std::string result(name);
  for (char& c : result) c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

}  // namespace

const OtherName* find_other_name(std::string_view name) {
  const std::string wanted = spelled(name);
  const auto* found = std::ranges::find(other_name_rows, wanted, &OtherName::name);
  return found == std::ranges::end(other_name_rows) ? nullptr : found;
}

const std::vector<std::string>& other_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const OtherName& other : other_name_rows)
      if (other.name.find('.') == std::string_view::npos) all.emplace_back(other.name);
    return all;
  }();
  return names;
}

}  // namespace ztrain::config
