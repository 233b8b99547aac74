#include "tests/random/rows.hpp"

namespace ztrain::random_decks {
namespace {

const std::vector<Row> numeric_rows{
    {"run.seed", 0.5, {"1", "2", "77"}},
    {"data.train", 0.5, {"DATA/documents/*.txt", "DATA/masked.h5", "DATA/masked.h5", "DATA/mixture"}},
    {"data.weights", 1, {"[3, 1]"}, "data.train=DATA/mixture"},
    {"data.sequence", 0.5, {"16", "24", "31", "48"}},
    {"data.packing", 0.5, {"documents", "windows"}, "data.train=DATA/masked.h5"},
    {"data.validation", 1, {"DATA/masked_held_out.h5"}, "data.train=DATA/masked.h5"},
    {"data.long_documents", 0.4, {"split", "drop"}, "data.packing=documents"},
    {"data.max_documents", 0.3, {"2"}, "data.packing=documents"},
    {"model.family", 0.5, {"mistral", "qwen2", "qwen3", "llama"}},
    {"model.hidden_size", 0.4, {"24", "48", "64"}},
    {"model.intermediate_size", 0.4, {"40", "56", "96"}},
    {"model.num_hidden_layers", 0.7, {"2", "3", "6", "8", "8"}},
    {"model.num_attention_heads", 0.5, {"2", "6", "8"}},
    {"model.num_key_value_heads", 0.5, {"1", "2"}},
    {"model.head_dim", 0.3, {"8", "12"}},
    {"model.head_dim", 1, {"8", "12"}, "model.num_attention_heads=6|model.num_attention_heads=8"},
    {"model.vocab_size", 0.5, {"270", "301"}, "data.train=DATA/masked.h5"},
    {"model.rms_norm_eps", 0.1, {"1e-3"}},
    {"model.rope_theta", 0.1, {"500"}},
    {"model.rope_scaling", 0.15, {"llama3"}},
    {"model.rope_factor", 0.5, {"4"}, "model.rope_scaling"},
    {"model.rope_low_freq_factor", 0.5, {"0.5"}, "model.rope_scaling"},
    {"model.rope_high_freq_factor", 0.5, {"3"}, "model.rope_scaling"},
    {"model.rope_original_max_position", 0.7, {"16"}, "model.rope_scaling"},
    {"model.initializer_range", 0.3, {"0.1"}},
    {"model.tie_word_embeddings", 0.3, {"true"}},
    {"model.attention_bias", 0.4, {"true"}, "model.family=llama|model.family=qwen3"},
    {"model.attention_output_bias", 0.2, {"true"}, "model.attention_bias"},
    {"model.qk_norm", 0.3, {"true"}, "model.family=qwen3"},
    {"model.sliding_window", 0.5, {"5", "20"}, "model.family=mistral|model.family=qwen2|model.family=qwen3"},
    {"model.full_attention_layers", 0.3, {"1"}, "model.family=qwen2|model.family=qwen3"},
    {"model.trainable", 0.08, {"model.layers.1.*", "*.mlp.*", "model.embed_tokens.weight"}},
    {"model.frozen", 0.12, {"model.embed_tokens.weight", "*norm*", "model.layers.0.*", "*.q_proj.*"}},
    {"lora.rank", 0.2, {"1", "3", "8"}},
    {"lora.random_base", 1, {"true"}, "lora.rank"},
    {"lora.alpha", 0.5, {"8"}, "lora.rank"},
    {"lora.dropout", 0.3, {"0.25"}, "lora.rank"},
    {"lora.targets", 0.5, {"up_proj", "q_proj,down_proj", "[\"k_proj\", \"o_proj\"]"}, "lora.rank"},
    {"precision.preset",
     1,
     {"fp64", "fp64", "fp64", "fp32", "fp32", "bf16", "bf16", "bf16-pure", "fsdp-mixed", "fsdp-bf16",
      "deepspeed-bf16", "deepspeed-fp16"}},
    {"precision.gradients", 0.02, {"bf16", "fp32"}},
    {"precision.reduce", 0.02, {"bf16", "fp32"}},
    {"precision.master", 0.02, {"bf16", "fp32"}},
    {"precision.moments", 0.02, {"bf16", "fp32"}},
    {"precision.rounding", 0.3, {"stochastic", "nearest"}, "precision.preset=bf16-pure"},
    {"precision.fp8", 0.4, {"tensorwise", "rowwise"}, "precision.preset=bf16"},
    {"loss_scaling.scale", 0.3, {"64"}, "precision.preset=deepspeed-fp16"},
    // Of greater scales some overflow on one mesh alone: gradients of fewer tokens are smaller.
    {"loss_scaling.initial_scale_power", 1, {"8", "12"}, "precision.preset=deepspeed-fp16"},
    {"loss_scaling.window", 0.3, {"1"}, "precision.preset=deepspeed-fp16"},
    {"loss_scaling.hysteresis", 0.3, {"1"}, "precision.preset=deepspeed-fp16"},
    {"loss_scaling.consecutive_hysteresis", 0.3, {"true"}, "precision.preset=deepspeed-fp16"},
    {"loss_scaling.min_scale", 0.3, {"4"}, "precision.preset=deepspeed-fp16"},
    {"optimizer.name", 0.5, {"adam", "sgd", "lion", "adamw_8bit"}},
    {"optimizer.lr", 0.5, {"1e-3"}},
    {"optimizer.betas", 0.2, {"[0.8, 0.99]"}},
    {"optimizer.eps", 0.2, {"1e-6"}},
    {"optimizer.weight_decay", 0.3, {"0", "0.01"}},
    {"optimizer.max_norm", 0.4, {"0", "0.3"}},
    {"optimizer.momentum", 0.5, {"0", "0.5"}, "optimizer.name=sgd"},
    {"optimizer.nesterov", 0.3, {"true"}, "optimizer.name=sgd"},
    {"optimizer.no_decay", 0.15, {"*embed*"}},
    {"optimizer.groups", 0.15, {"[{match = \"model.layers.*\", lr_scale = 0.5, weight_decay = 0}]"}},
    {"schedule.name", 0.4, {"constant", "linear", "wsd"}},
    {"schedule.warmup", 0.4, {"1"}},
    {"schedule.min_lr_ratio", 0.2, {"0"}},
    {"schedule.decay", 1, {"1"}, "schedule.name=wsd"},
};

const std::vector<Row> placement_rows{
    {"pipeline.schedule",
     0.85,
     {"gpipe", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipe-v"},
     "mesh.pipeline=2"},
    {"pipeline.schedule",
     0.7,
     {"gpipe", "zb-h1", "zb-h2"},
     "mesh.pipeline=3|mesh.pipeline=4|mesh.pipeline=6|mesh.pipeline=8"},
    {"pipeline.schedule", 0.5, {"interleaved", "zb-v", "dualpipe-v"}, "model.num_hidden_layers=8"},
    {"pipeline.stages_per_rank", 0.3, {"3"}, "model.num_hidden_layers=6|model.num_hidden_layers=8"},
    {"pipeline.layers", 0.3, {"[2, 1]"}, "model.num_hidden_layers=3"},
    {"pipeline.max_outstanding", 0.3, {"0", "2"}, "mesh.pipeline"},
    {"pipeline.late_weights", 0.3, {"kept"}, "mesh.pipeline"},
    {"context.method", 0.7, {"ring", "ulysses"}, "mesh.context"},
    {"tensor.sequence_parallel", 0.3, {"false"}, "mesh.tensor"},
    {"tensor.overlap", 0.3, {"true"}, "mesh.tensor"},
    {"sharding.strategy", 0.8, {"NO_SHARD", "zero1", "zero2", "SHARD_GRAD_OP", "FULL_SHARD", "HYBRID_SHARD"}},
    {"sharding.reshard_after_forward", 0.3, {"true", "false"}},
    {"sharding.reshard_after_forward", 0.5, {"2"}, "mesh.shard=4|mesh.shard=6|mesh.shard=8"},
    {"sharding.forward_prefetch", 0.3, {"0", "3"}},
    {"sharding.backward_prefetch", 0.4, {"post", "none"}},
    {"sharding.max_gathered_units", 0.2, {"1", "2"}},
    {"sharding.max_live_parameters", 0.2, {"20000"}},
    {"sharding.max_reuse_distance", 0.2, {"10000", "60000"}},
    {"sharding.persistence_threshold", 0.2, {"41", "2000"}},
    {"sharding.reduce_bucket_size", 0.2, {"1", "5000"}},
    {"sharding.overlap_reduce", 0.3, {"false"}},
    {"sharding.unit", 0.4, {"size", "model", "pattern"}},
    {"sharding.unit_min_parameters", 1, {"30000"}, "sharding.unit=size"},
    {"sharding.unit_patterns",
     1,
     {"model.layers.*.mlp", "model.layers.*.self_attn", "[\"model.layers.*.mlp\", \"model.layers.1\"]"},
     "sharding.unit=pattern"},
    {"sharding.gradient_accumulation", 0.4, {"reduce", "no_sync"}},
    {"recompute.mode", 0.4, {"full", "selective"}},
    {"recompute.every", 0.4, {"2"}, "recompute.mode=full"},
    {"recompute.pieces", 1, {"norm,swiglu", "qkv,attention", "ffn"}, "recompute.mode=selective"},
    {"offload.parameters", 0.25, {"cpu", "nvme"}},
    {"offload.parameters_fraction", 0.5, {"0.3", "0.6", "0.9"}, "offload.parameters"},
    {"offload.gradients", 0.25, {"cpu", "nvme"}},
    {"offload.gradients_fraction", 0.5, {"0.3", "0.6"}, "offload.gradients"},
    {"offload.master", 0.2, {"cpu", "nvme"}},
    {"offload.master_fraction", 0.5, {"0.5"}, "offload.master"},
    {"offload.optimizer", 0.25, {"cpu", "nvme"}},
    {"offload.optimizer_fraction", 0.5, {"0.3", "0.7"}, "offload.optimizer"},
    {"offload.activations", 0.2, {"cpu", "nvme"}},
    {"offload.activations_fraction", 0.5, {"0.5"}, "offload.activations"},
    {"offload.optimizer_on", 0.2, {"host", "device"}},
    {"offload.nvme_path", 1, {"DATA", "[\"DATA\", \"DATA/drive\"]"}},
    {"offload.nvme_block_size", 0.4, {"4096"}},
    {"offload.queue_depth", 0.1, {"1"}},
    {"offload.checksums", 0.2, {"true"}},
    {"optimizer.during_backward", 0.3, {"true"}, "optimizer.max_norm=0"},
    {"checkpoint.files", 0.2, {"1", "2"}},
    {"checkpoint.async", 0.2, {"false"}},
    {"checkpoint.memory_copies", 0.1, {"1"}},
    {"checkpoint.memory_interval", 1, {"1"}, "checkpoint.memory_copies"},
    {"checkpoint.memory_folder", 1, {"DATA/memory"}, "checkpoint.memory_copies"},
    {"watchdog.audit_interval", 0.1, {"2"}},
    {"debug.asynchronous", 0.3, {"true"}},
    {"debug.poison", 0.5, {"true"}},
};

}  // namespace

const std::vector<Row>& numerics() {
  return numeric_rows;
}

const std::vector<Row>& placement() {
  return placement_rows;
}

const std::vector<std::string_view>& left_out() {
  static const std::vector<std::string_view> keys{
      // How long a run is, and where it starts and ends, which the tests say.
      "run.output", "run.steps", "run.tokens", "run.epochs", "run.max_minutes", "run.end_margin",
      "checkpoint.folder", "checkpoint.interval", "checkpoint.keep", "checkpoint.keep_every",
      "checkpoint.keep_best", "checkpoint.resume", "checkpoint.export", "checkpoint.export_dtype",
      "checkpoint.export_adapter", "evaluation.", "data.validation_fraction", "data.format", "model.preset",
      "model.from",
      // What is printed and watched.
      "metrics.", "watchdog.timeout", "watchdog.stragglers", "watchdog.non_finite", "watchdog.audit_limit",
      // What plans know of a machine, and what GPUs alone do.
      "cluster.", "device.", "offload.threads", "offload.optimizer_threads",
      // What is drawn together.
      "mesh.", "batch.", "precision.parameters"};
  return keys;
}

}  // namespace ztrain::random_decks
