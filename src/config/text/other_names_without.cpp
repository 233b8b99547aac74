// The rows of the table of other programs' names that have no key of the deck. Once there is one, the row
// moves to other_names.cpp.
#include "config/text/suggest.hpp"

namespace ztrain::config {
namespace {

using enum Without;

constexpr OtherName rows_without_key[] = {
    {"", "per_device_eval_batch_size eval_batch_size validation.local_batch_size validation.seq_len",
     "evaluations take batch.micro sequences at once; evaluation.batches is their length"},
    {"", "save_only_model",
     "checkpoints hold all that resuming needs; `ztrain export` writes the model alone"},
    {"",
     "report_to wall_clock_breakdown tensorboard wandb csv_monitor wandb.enabled tensorboard.enabled "
     "wandb_* mlflow_* comet_* use_wandb use_tensorboard enable_wandb enable_tensorboard save_tb_folder "
     "run_name project trackio_* use_trackio use_mlflow use_comet logging_dir logging_first_step "
     "logging_strategy log_level disable_tqdm disable_color_printing include_tokens_per_second include_tkps "
     "include_num_input_tokens_seen dump_state memory_breakdown",
     "metrics.jsonl in run.output holds every step, and tools/track_run.py hands it to trackers: leave it "
     "out",
     need},
    {"", "deepspeed fsdp_config deepspeed_config_file deepspeed_config",
     "its settings are keys of the deck: docs/coming-from.md lists them", need},
    {"",
     "dataloader_pin_memory fsdp_state_dict_type fsdp_cpu_ram_efficient_loading cpu_ram_efficient_loading "
     "fsdp_sync_module_states sync_module_states state_dict_type final_state_dict_type fsdp_version "
     "sub_group_size ignore_unused_parameters load_from_fp32_weights elastic_checkpoint legacy_stage1 "
     "memory_efficient_linear pipeline_loading_checkpoint zero3_init_flag zero_allow_untested_optimizer "
     "zero_force_ds_cpu_optimizer offload_optimizer.buffer_count offload_param.buffer_count "
     "offload_param.buffer_size offload_param.max_in_cpu fast_init pipeline_read pipeline_write aio "
     "remove_unused_columns dataset_prepared_path dataset_processes dataset_num_proc dataset_kwargs "
     "dataset_keep_in_memory skip_prepare_dataset shuffle_merged_datasets low_cpu_mem_usage save_safetensors "
     "gradient_checkpointing_kwargs ddp_find_unused_parameters ddp_bucket_cap_mb ddp_broadcast_buffers "
     "use_cache tokenizer_use_fast strict is_llama_derived_model "
     "is_mistral_derived_model is_qwen_derived_model is_falcon_derived_model hub_strategy do_train "
     "do_predict device_map optimizer.implementation pad_to_multiple_of pad_to_sequence_len "
     "sample_packing_group_size sample_packing_bin_size sample_packing_eff_est multipack_real_batches "
     "packing_strategy torch_empty_cache_steps gc_steps gc_freq save_on_each_node log_on_each_node "
     "skip_memory_metrics accelerator_config dataloader_persistent_workers prediction_loss_only "
     "converters hf_use_auth_token lora_fan_in_fan_out lora_on_cpu lora_task_type task_type "
     "peft_autocast_adapter_dtype init_timeout_seconds save_traces_folder description "
     "print_args use_for_integration_test config_file custom_config_module trace_buf_size",
     "nothing of the kind is needed here: leave it out", need},
    {"", "cpuadam_cores_perc", "the host's steps take all threads of a rank: leave it out", need},
    {"",
     "fsdp_use_orig_params use_orig_params contiguous_gradients reduce_scatter allgather_partitions "
     "flops_profiler comms_logger flops_profiler.enabled comms_logger.enabled moe_grouped_gemm "
     "use_grouped_mm use_tutel moe_router_dtype contiguous_memory_optimization number_checkpoints "
     "checkpoint.load_universal load_universal average_tokens_across_devices fp32_norms "
     "enable_fsdp_float8_all_gather precompute_float8_dynamic_scale_for_fsdp "
     "fp8_enable_fsdp_float8_all_gather flash_attn_cross_entropy chunked_cross_entropy",
     "it is always so here: leave it out", need},
    {"",
     "torch_compile torch_compile_* compile compile.enable training.compile dynamo_config dynamo_backend "
     "dynamo_* deepcompile use_liger_kernel liger_kernel_config liger_* lora_mlp_kernel lora_qkv_kernel "
     "lora_o_kernel lora_embedding_kernel unsloth_* plugins",
     "the program is compiled already, with kernels for what is worth fusing: leave it out", need},
    {"",
     "attn_implementation use_flash_attn flash_attention sdp_attention xformers_attention flex_attention "
     "eager_attention s2_attention flash_attn_fuse_mlp",
     "attention is always fused: leave it out", need},
    {"",
     "neftune_noise_alpha ignored_modules round_robin_gradients zeropp_loco_param "
     "noisy_gate_policy use_residual top2_2nd_expert_sampling score_before_experts moe_input_jitter_eps "
     "expert_parallel optim_args optim_target_modules cuda_aware comm_backend_name torch_adam "
     "bias_correction amsgrad auto_cast amp "
     "torch_autocast fp16_master_weights_and_grads bf16_optimizer_states prescale_gradients "
     "gradient_predivide_factor gradient_allreduce_op sparse_gradients "
     "use_multi_rank_bucket_allreduce stage3_model_persistence_threshold "
     "stage3_use_all_reduce_for_fetch_params stage3_module_granularity_threshold leaf_module "
     "mics_hierarchical_params_gather synchronize_checkpoint_boundary profile compression_training "
     "data_efficiency curriculum_learning progressive_layer_drop eigenvalue "
     "deepspeed_moe_layer_cls_names megatron_lm_config fp8_config auto_find_batch_size bf16_full_eval "
     "fp16_full_eval eval_on_start "
     "eval_delay eval_accumulation_steps full_determinism lora_rank_pattern lora_alpha_pattern relora "
     "relora_* loraplus_* peft_init_lora_weights peft_layers_to_transform layers_to_transform loftq_* "
     "embedding_lr embedding_lr_scale lr_groups curriculum_sampling cosine_constant_lr_ratio "
     "noam_* rank_pattern alpha_pattern init_lora_weights streaming dataset_streaming "
     "loss_watchdog_threshold loss_watchdog_patience enable_memory_snapshot "
     "save_memory_snapshot_folder memory_estimation enable_cpu_affinity enable_loss_parallel "
     "disable_loss_parallel enable_compiled_autograd lr_div_factor cycle_* decay_lr_rate lr_range_test_* "
     "emulate filter_fqns experimental fault_tolerance",
     "there is nothing like it here: leave it out"},
    {"", "zero_quantized_nontrainable_weights",
     "sharding.gather_codes covers frozen weights too; for frozen weights in 4 bits: lora.quantization"},
    {"",
     "sparse_attention.attention different_layout_per_head num_different_global_patterns "
     "num_differnt_global_patterns horizontal_global_attention global_block_end_indices",
     "all heads have one layout of blocks, and none sees a later block than the query's"},
    // These are the names of methods that may come to ztrain.
    {"", "bnb_config_kwargs bnb_4bit_quant_storage gptq qlora_sharded_* llm_int8_*",
     "lora.quantization says how frozen weights are kept, which are sharded and gathered as codes"},
    {"",
     "cpo_alpha reference_free f_divergence_type sync_ref_model ref_model_mixup_alpha ref_model_sync_steps "
     "use_weighting ld_alpha trl vllm",
     "there is nothing like it here: preference.loss_type lists the losses on answers"},
    {"", "max_prompt_length max_completion_length",
     "data.sequence bounds prompt and answer together, and data.long_documents says what becomes of longer "
     "ones: leave it out"},
    {"", "precompute_ref_log_probs ref_model ref_model_init_kwargs model_adapter_name ref_adapter_name",
     "the reference is the model as the run begins, whose log-probabilities are computed once: leave it out"},
    {"", "kd_ce_alpha", "it is 1 - distillation.weight", need},
    {"", "kd_temperature kd_normalize_topk kd_beta",
     "distillation is at temperature 1, and the teacher's probabilities are divided by their sum: leave it "
     "out"},
    {"", "initial_load_in_hf initial_load_model_only last_save_model_only",
     "model.from reads Hugging Face's folders and checkpoints, their weights alone", need},
    {"", "resize_token_embeddings_to_32x", "nothing has to divide, so nothing is padded", need},
    {"", "shuffle_dataset", "the order of the data is drawn from run.seed, anew for each epoch", need},
    {"", "metric_for_best_model greater_is_better", "the best is the lowest validation loss, over all sets",
     need},
    {"", "ignore_data_skip", "a run that goes on reads its data from where it was: leave it out"},
    {"", "dataloader_num_workers num_workers dataloader_prefetch_factor prefetch_factor dataloader_drop_last",
     "ranks read their rows themselves, and ask the file system ahead for those of the next step "
     "(docs/metrics.md): leave it out",
     need},
    {"", "push_to_hub hub_model_id hub_token hub_private_repo push_dataset_to_hub hub_revision",
     "`ztrain export` writes a folder that can be uploaded"},
    {"",
     "local_rank num_processes num_machines machine_rank ranks nproc_per_node nproc nnodes world_size "
     "num_gpus np n gpu_ids main_process_ip main_process_port rdzv_backend same_network compute_environment "
     "main_training_function deepspeed_multinode_launcher deepspeed_hostfile deepspeed_inclusion_filter "
     "deepspeed_exclusion_filter tpu_* downcast_bf16 ddp_backend mpirun_config",
     "mpirun -np N, or srun, says how many ranks there are: leave it out", need},
    {"", "use_cpu no_cuda", "a build for CPUs runs on them, a build for GPUs on these: leave it out", need},
    {"", "debug", "`ztrain check` proves a run before it starts: leave it out", need},
    {"", "help h", "`ztrain --help` lists the commands, `ztrain deck` the keys"},
    {"", "model.dropout attention_dropout hidden_dropout",
     "the model has no dropout; adapters have lora.dropout"},
    {"",
     "dataset_text_field tokenizer_path tokenizer_type tokenizer tokenizer_name_or_path tokenizer_config "
     "chat_template chat_template_path chat_template_jinja special_tokens eos_token pad_token "
     "dataset_config dataset_train_split dataset_test_split datasets test_datasets pretraining_dataset "
     "train_on_inputs default_system_message test_split model_revision revision trust_remote_code "
     "datasets.split pretraining_dataset.split train_on_eos roles_to_train eval_packing eval_sample_packing "
     "length_column_name label_names",
     "no tokenizer runs in training: tools/prepare_data.py makes token files of texts and chats, for "
     "data.train"},
    {"", "assistant_only_loss completion_only_loss",
     "tools/prepare_data.py writes the masks of chats into token files"},
    {"", "do_eval", "evaluation.interval above 0 evaluates", need},
    {"", "pin_memory pinned fsdp_offload_pin_memory cpu_offload_pin_memory",
     "the host's memory of [offload] is always pinned where there are GPUs: leave it out", need},
    {"", "buffer_dtype", "the model has no buffers: leave it out", need},
    {"", "warmup_min_lr warmup_min_ratio",
     "the warmup begins at optimizer.lr / schedule.warmup: leave it out"},
    {"", "warmup_type", "the warmup is linear; DeepSpeed's default is logarithmic"},
    {"", "autotuning", "`ztrain plan DECK --fit` does it by arithmetic, before the run"},
    {"", "elasticity", "batch.global is kept when a run goes on with other ranks: leave it out", need},
    {"", "max_restarts",
     "slurm/launch.sh starts ranks again (ZTRAIN_FAILURES, ZTRAIN_MIN_NODES): leave it out"},
    {"", "profiling", "profile.steps names the first and the last step of which each rank writes a trace"},
    {"", "lr_decay_iters num_stable_steps",
     "the schedule ends with the run; schedule.decay is the length of wsd's final decay"},
};

}  // namespace

std::span<const OtherName> names_without_key() {
  return rows_without_key;
}

}  // namespace ztrain::config
