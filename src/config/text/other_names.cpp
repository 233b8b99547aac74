#include "config/text/suggest.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <sstream>

namespace ztrain::config {
namespace {

constexpr OtherName rows_with_keys[] = {
    {"run.output", "output_dir dump_folder out_dir"},
    {"run.seed", "seed data_seed debug.seed training.seed"},
    {"run.steps", "max_steps total_num_steps train_iters max_iters training.steps"},
    {"run.tokens", "train_samples", "It counts tokens, not sequences."},
    {"run.epochs", "num_train_epochs num_epochs"},
    {"run.max_minutes", "exit_duration_in_mins"},
    {"data.train", "dataset_name dataset dataset_path datasets.path pretraining_dataset.path",
     "It names files of tokens, which tools/prepare_data.py makes."},
    {"data.train", "data_path data.path"},
    {"data.validation", "validation.dataset validation.dataset_path", "It names files of tokens."},
    {"data.validation_fraction", "split val_set_size test_split_size", "It is the share that is held out."},
    {"data.sequence", "max_seq_length max_length sequence_len seq_len seq_length block_size context_length"},
    {"data.packing", "packing sample_packing batch_flattening padding_free",
     "\"documents\" packs whole ones."},
    {"data.packing", "group_by_length", "Packed documents leave no room for padding."},
    {"data.long_documents", "truncation_mode excess_length_strategy"},
    {"model.family", "model.name model_type", "model.preset names whole models."},
    {"model.preset", "flavor"},
    {"model.from", "model_name_or_path base_model name_or_path pretrained_model_name_or_path",
     "It is a folder."},
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
    {"model.num_experts_per_tok", "moe_router_topk"},
    {"model.moe_intermediate_size", "moe_ffn_hidden_size expert_intermediate_size"},
    {"model.shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"},
    {"model.n_shared_experts", "num_shared_experts"},
    {"model.norm_topk_prob", "route_norm"},
    {"model.decoder_sparse_step", "moe_layer_freq"},
    {"model.qk_nope_head_dim", "qk_head_dim"},
    {"model.qk_rope_head_dim", "qk_pos_emb_head_dim"},
    {"sparse_attention.num_local_blocks", "local_window_blocks", "It is one number."},
    {"sparse_attention.num_global_blocks", "global_block_indices", "It counts the first blocks."},
    {"debug.balanced_routing", "moe_force_load_balance moe_router_force_load_balancing"},
    {"model.routed_scaling_factor", "moe_router_topk_scaling_factor route_scale"},
    {"model.scoring_func", "moe_router_score_function score_func"},
    {"model.n_group", "moe_router_num_groups num_expert_groups"},
    {"model.topk_group", "moe_router_group_topk num_limited_groups"},
    {"model.router_aux_loss_coef", "moe_aux_loss_coeff aux_loss_alpha"},
    {"experts.balance", "moe_router_load_balancing_type"},
    {"experts.z_loss", "moe_z_loss_coeff router_z_loss_coef"},
    {"experts.capacity", "moe_expert_capacity_factor capacity_factor eval_capacity_factor"},
    {"experts.capacity",
     "min_capacity drop_tokens use_rts moe_token_drop_policy moe_pad_expert_input_to_capacity",
     "No token is dropped."},
    {"experts.bias_update_speed", "moe_router_bias_update_rate load_balance_coeff"},
    {"experts.bias_update_speed", "moe_router_enable_expert_bias", "Above 0 the biases move."},
    {"model.base", "base_model_name_or_path"},
    {"model.from", "lora_model_dir", "It may be PEFT's folder; model.base names the weights."},
    {"model.trainable", "modules_to_save lora_modules_to_save unfrozen_parameters",
     "It has patterns of names."},
    {"loss.label_smoothing", "label_smoothing_factor"},
    {"loss.z_loss", "head_z_loss lm_head_z_loss"},
    {"preference.loss_type", "loss_type dpo_loss_type rl",
     "One loss, of TRL's names: axolotl's \"dpo\" is \"sigmoid\"."},
    {"preference.loss_type", "reward_model", "The loss \"reward\" trains one."},
    {"preference.beta", "dpo_beta rl_beta orpo_alpha"},
    {"preference.desirable_weight", "kto_desirable_weight"},
    {"preference.undesirable_weight", "kto_undesirable_weight"},
    {"preference.label_smoothing", "label_smoothing dpo_label_smoothing"},
    {"preference.simpo_gamma", "gamma_beta_ratio",
     "It is the margin itself: the ratio times preference.beta."},
    {"distillation.teacher", "kd_trainer kd_online_server_base_url teacher_model_name_or_path",
     "It is a file of the teacher's likelihoods, which `ztrain evaluate --write-likelihoods` makes."},
    {"distillation.weight", "kd_alpha", "kd_ce_alpha is 1 - weight."},
    {"distillation.top_k", "kd_online_topk"},
    {"lora.rank", "r lora_r"},
    {"lora.rank", "use_peft adapter", "Above 0 there are adapters."},
    {"lora.alpha", "lora_alpha"},
    {"lora.dropout", "lora_dropout"},
    {"lora.quantization", "load_in_4bit bnb_4bit_quant_type quantization_config",
     "Write \"nf4\", or \"fp4\", which is bitsandbytes' default."},
    {"lora.quantization", "load_in_8bit",
     "Write \"int8\": rows of weights in 8 bits, without LLM.int8's outliers."},
    {"lora.double_quantization", "bnb_4bit_use_double_quant use_bnb_nested_quant"},
    {"precision.parameters", "bnb_4bit_compute_dtype"},
    {"lora.rslora", "use_rslora peft_use_rslora"},
    {"lora.dora", "use_dora peft_use_dora"},
    {"lora.targets", "target_modules lora_target_modules target_parameters lora_target_parameters"},
    {"lora.targets", "lora_target_linear", "Without the key all linear layers of the blocks have adapters."},
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
     "tensor_parallel_degree tp tp_size autotp_size tensor_parallel_size parallelism_config_tp_size "
     "tensor.parallel tensor_model_parallel_size mp mp_size "
     "model_parallel_size"},
    {"mesh.pipeline", "pipeline_parallel_degree pp pp_size pipeline_model_parallel_size"},
    {"mesh.replicate",
     "data_parallel_replicate_degree dp_replicate dp_replicate_size parallelism_config_dp_replicate_size"},
    {"mesh.shard", "mics_shard_size", "With mesh.replicate = -1."},
    {"mesh.shard",
     "data_parallel_shard_degree parallelism_config_dp_shard_size dp_shard_size dp_size dp dp_shard "
     "data_parallel data_parallel_size"},
    {"mesh.expert",
     "expert_parallel_degree expert_model_parallel_size expert_parallel_size autoep_size ep ep_size"},
    {"mesh.context",
     "context_parallel_degree sequence_parallel_degree parallelism_config_cp_size sequence_parallel_size cp "
     "cp_size context_parallel_size"},
    {"mesh.context", "ulysses_degree ulysses_sequence_parallel_size", "With context.method = \"ulysses\"."},
    {"pipeline.schedule", "pipeline_parallel_schedule"},
    {"pipeline.layers", "pipeline_parallel_layers_per_stage module_fqns_per_model_part"},
    {"pipeline.stages_per_rank", "num_virtual_stages_per_pipeline_rank"},
    {"context.method", "context_parallel_rotate_method cp_comm_type parallelism_config_cp_comm_strategy"},
    {"tensor.sequence_parallel", "sequence_parallel partition_activations"},
    {"tensor.overlap", "enable_async_tensor_parallel tp_comm_overlap"},
    {"sharding.strategy", "fsdp fsdp_sharding_strategy sharding_strategy distributed_type"},
    {"sharding.strategy", "zero_stage zero_optimization stage",
     "Stage 3 is \"zero3\", 2 \"zero2\", 1 \"zero1\"."},
    {"sharding.strategy", "use_distributed_optimizer", "That is \"zero1\"."},
    {"sharding.reshard_after_forward", "fsdp_reshard_after_forward reshard_after_forward"},
    {"sharding.reshard_after_forward", "zero_hpz_partition_size", "A number N is such a group."},
    {"sharding.gather_codes", "zero_quantized_weights", "There true is \"int8\"."},
    {"sharding.reduce_codes", "zero_quantized_gradients", "There true is \"int4\"."},
    {"sharding.forward_prefetch", "fsdp_forward_prefetch fsdp_config.forward_prefetch overlap_param_gather"},
    {"sharding.forward_prefetch", "stage3_prefetch_bucket_size", "It counts units, not elements."},
    {"sharding.backward_prefetch",
     "fsdp_backward_prefetch fsdp_backward_prefetch_policy fsdp_config.backward_prefetch"},
    {"sharding.max_gathered_units", "limit_all_gathers", "It is a number of units: 2 there."},
    {"sharding.max_live_parameters", "stage3_max_live_parameters"},
    {"sharding.max_reuse_distance", "stage3_max_reuse_distance"},
    {"sharding.persistence_threshold", "stage3_param_persistence_threshold"},
    {"sharding.overlap_reduce", "overlap_comm overlap_grad_reduce"},
    {"sharding.unit", "fsdp_auto_wrap_policy auto_wrap_policy"},
    {"sharding.unit",
     "fsdp_transformer_layer_cls_to_wrap transformer_layer_cls_to_wrap transformer_layer_cls",
     "\"block\" is every layer of the decoder."},
    {"sharding.unit", "allgather_bucket_size", "It says what is gathered at once."},
    {"sharding.unit_min_parameters", "fsdp_min_num_params min_num_params"},
    {"precision.preset", "bf16 bfloat16", "Write \"bf16\"."},
    {"precision.preset", "fp16 fp16.enabled float16", "Write \"deepspeed-fp16\"."},
    {"precision.preset", "mixed_precision dtype mixed_precision_policy"},
    {"precision.preset", "bf16.enabled", "Write \"deepspeed-bf16\", or \"bf16\" with fp32 gradients."},
    {"precision.preset", "bf16_master_weights_and_grads", "Write \"fsdp-bf16\", or \"bf16-pure\"."},
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
    {"offload.parameters",
     "fsdp_offload_params offload_params cpu_offload offload_policy enable_cpu_offload offload",
     "FSDP's CPUOffload is offload.parameters, offload.gradients and offload.optimizer = \"cpu\" (and "
     "master)."},
    {"offload.parameters", "offload_param_device offload_param.device offload_param"},
    {"offload.optimizer", "offload_optimizer_device offload_optimizer.device offload_optimizer",
     "\"cpu\" or \"nvme\"; master weights have offload.master."},
    {"offload.optimizer_fraction", "offload_optimizer.ratio"},
    {"offload.optimizer_ahead", "offload_optimizer.super_offload super_offload"},
    {"offload.nvme_path", "offload_optimizer_nvme_path offload_param_nvme_path nvme_path"},
    {"offload.nvme_block_size", "aio.block_size"},
    {"offload.queue_depth", "aio.queue_depth"},
    {"offload.threads", "aio.thread_count"},
    {"offload.activations", "cpu_checkpointing activation_offloading", "It is \"cpu\"."},
    {"optimizer.name", "optim optimizer.type"},
    {"optimizer.name", "adam_w_mode", "Decoupled decay is \"adamw\", the other \"adam\"."},
    {"optimizer.lr", "learning_rate warmup_max_lr"},
    {"optimizer.betas", "adam_beta1 adam_beta2 beta1 beta2", "It holds both: [beta1, beta2]."},
    {"optimizer.eps", "adam_epsilon adam_eps"},
    {"optimizer.max_norm", "max_grad_norm gradient_clipping clip_grad_norm clip_grad grad_clip"},
    {"optimizer.momentum", "sgd_momentum"},
    {"optimizer.during_backward", "early_step_in_backward"},
    {"schedule.name", "lr_scheduler_type lr_scheduler scheduler.type decay_type lr_decay_style"},
    {"schedule.warmup", "warmup_steps warmup_num_steps lr_warmup_iters"},
    {"schedule.warmup", "warmup_ratio lr_warmup_fraction", "Below 1 it is a share of the run's steps."},
    {"schedule.min_lr_ratio",
     "lr_scheduler_kwargs min_lr_rate cos_min_ratio cosine_min_lr_ratio min_lr_factor"},
    {"schedule.min_lr_ratio", "min_lr", "It is a share of optimizer.lr."},
    {"schedule.decay", "decay_ratio", "It counts steps; a share is to be multiplied with them."},
    {"schedule.decay", "lr_wsd_decay_iters num_decay_steps"},
    {"checkpoint.folder", "save"},
    {"checkpoint.interval", "save_steps save_interval"},
    {"checkpoint.interval", "save_strategy saves_per_epoch checkpoint.enable enable_checkpoint",
     "It counts steps."},
    {"checkpoint.keep_best", "load_best_model_at_end",
     "It is a number of checkpoints; checkpoint.export_from = \"best\" exports the best."},
    {"checkpoint.keep", "save_total_limit keep_latest_k"},
    {"checkpoint.async", "async_mode", "It is true or false."},
    {"checkpoint.memory_copies", "fault_tolerance.enable",
     "It is 0 or 1; slurm/launch.sh goes on with the nodes that are left."},
    {"checkpoint.resume", "overwrite_output_dir", "\"none\" starts anew."},
    {"checkpoint.resume", "resume_from_checkpoint auto_resume_from_checkpoints load"},
    {"checkpoint.resume", "load_step", "It is a folder, or \"auto\"."},
    {"checkpoint.export", "stage3_gather_16bit_weights_on_model_save zero3_save_16bit_model last_save_in_hf",
     "It is a folder."},
    {"checkpoint.override", "override_opt_param_scheduler", "It lists keys."},
    {"evaluation.interval", "eval_steps validation.freq eval_interval"},
    {"evaluation.interval", "eval_strategy evaluation_strategy evals_per_epoch validation.enable",
     "It counts steps."},
    {"evaluation.batches", "validation.steps eval_iters"},
    {"evaluation.patience", "early_stopping_patience"},
    {"evaluation.min_delta", "early_stopping_threshold"},
    {"metrics.interval", "logging_steps steps_per_print log_freq log_interval"},
    {"profile.steps",
     "enable_profiling profiler_steps profile_freq profiler_active profiling.enable_profiling "
     "profiling.profile_freq profile_step_start profile_step_end",
     "It is the first and the last step."},
    {"watchdog.timeout", "ddp_timeout train_timeout_seconds"},
    {"device.deterministic", "debug.deterministic deterministic_mode"},
    {"watchdog.timeout", "distributed_timeout_minutes", "It counts seconds."},
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

const OtherName* find_among(std::span<const OtherName> rows, std::string_view name) {
  const auto row = std::ranges::find_if(rows, [&](const OtherName& r) { return names_have(r.names, name); });
  return row == rows.end() ? nullptr : &*row;
}

}  // namespace

bool names_have(std::string_view names, std::string_view name) {
  const std::string wanted = spelled(name);
  return std::ranges::any_of(words_of(names), [&](const std::string& known) {
    return known == wanted || (known.ends_with('*') && wanted.starts_with(known.substr(0, known.size() - 1)));
  });
}

const OtherName* find_other_name(std::string_view name) {
  const OtherName* row = find_among(rows_with_keys, name);
  return row != nullptr ? row : find_among(names_without_key(), name);
}

const OtherName* find_setting(std::string_view path) {
  for (std::string_view ending = path;; ending.remove_prefix(ending.find('.') + 1)) {
    if (const OtherName* row = find_other_name(ending)) return row;
    if (ending.find('.') == ending.npos) break;
  }
  while (path.find('.') != path.npos) {
    path = path.substr(0, path.rfind('.'));
    for (std::string_view ending = path;; ending.remove_prefix(ending.find('.') + 1)) {
      if (const OtherName* row = find_among(names_without_key(), ending)) return row;
      if (ending.find('.') == ending.npos) break;
    }
  }
  return nullptr;
}

const std::vector<std::string>& other_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    const auto add = [&](std::span<const OtherName> rows) {
      for (const OtherName& other : rows)
        std::ranges::remove_copy_if(
            words_of(other.names), std::back_inserter(all),
            [](const std::string& name) { return name.find_first_of(".*") != std::string::npos; });
    };
    add(rows_with_keys);
    add(names_without_key());
    return all;
  }();
  return names;
}

}  // namespace ztrain::config
