#pragma once
// The deck, typed. Every member corresponds to one row of the field table (config/fields.cpp), which holds
// its key, default, unit, legal values and documentation; keys are `section.member`.

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.hpp"

namespace ztrain::config {

struct Run {
  std::string output;
  std::int64_t seed = 0;
  std::int64_t steps = 0, tokens = 0;  ///< exactly one of steps, tokens, epochs is positive after validation
  double epochs = 0;
};

struct Data {
  std::vector<std::string> train;       ///< files or globs, relative to the deck
  std::vector<std::string> validation;  ///< files or globs; empty: the last validation_fraction of train
  double validation_fraction = 0;
  std::string format;         ///< auto | text | bin-uint16 | bin-uint32 | hdf5
  std::int64_t sequence = 0;  ///< tokens per sequence
};

struct Model {
  std::string family;  ///< llama
  std::string preset;  ///< "custom" takes the dims below
  std::int64_t hidden_size = 0, intermediate_size = 0, num_hidden_layers = 0, num_attention_heads = 0,
               num_key_value_heads = 0, head_dim = 0, vocab_size = 0;
  double rms_norm_eps = 0, rope_theta = 0, initializer_range = 0;
  std::string rope_scaling;  ///< none | llama3
  double rope_factor = 0, rope_low_freq_factor = 0, rope_high_freq_factor = 0;
  std::int64_t rope_original_max_position = 0;
  bool tie_word_embeddings = false, attention_bias = false;
};

struct Batch {
  std::int64_t global = 0;  ///< sequences per optimizer step, over all ranks
  std::int64_t micro = 0;   ///< sequences per rank and micro-batch
};

/// Degrees; at most one is -1, which resolve_mesh replaces.
struct Mesh {
  std::int64_t pipeline = 1, replicate = 1, shard = -1, context = 1, tensor = 1;
};

struct Sharding {
  std::string strategy;  ///< canonical: NO_SHARD, zero1, zero2, SHARD_GRAD_OP, FULL_SHARD, HYBRID_SHARD
  std::string gradient_accumulation;  ///< auto | reduce | no_sync
  std::int64_t prefetch = 1;          ///< units gathered ahead of use
};

struct Precision {
  std::string preset;  ///< fp32 | bf16
  DType parameters = DType::f32, gradients = DType::f32, reduce = DType::f32, master = DType::f32,
        moments = DType::f32;
};

struct Recompute {
  std::string mode;  ///< none | full
};

struct Optimizer {
  std::string name;  ///< adamw
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0, max_norm = 0;
};

struct Schedule {
  std::string name;         ///< constant | linear | cosine | wsd
  std::int64_t warmup = 0;  ///< steps
  std::int64_t decay = 0;   ///< steps of the final decay (wsd)
  double min_lr_ratio = 0;  ///< final learning rate over optimizer.lr
};

struct Checkpoint {
  std::string folder;  ///< empty: <run.output>/checkpoints
  std::int64_t interval = 0, keep = 0, files = 0;
  std::string resume;  ///< auto | none | a checkpoint's folder
};

struct Evaluation {
  std::int64_t interval = 0, batches = 0;
};

struct Metrics {
  std::int64_t interval = 1;  ///< steps between printed lines
};

struct Watchdog {
  double timeout =
      0;  ///< seconds without a finished step before the rank reports where it stands and aborts; 0: off
};

struct Cluster {
  double peak_tflops = 0;  ///< dense peak per rank at the parameters' dtype; 0: unknown, mfu is not printed
  std::int64_t ranks_per_node = 0;  ///< 0: as launched
};

struct Debug {
  bool poison = false;  ///< fill released memory with NaN
};

/// One resolved key, for `deck.resolved.toml`.
struct Origin {
  std::string key, value, source;  ///< source: "default", "input.toml:12", "command line", "preset llama3-8b"
};

struct Deck {
  Run run;
  Data data;
  Model model;
  Batch batch;
  Mesh mesh;
  Sharding sharding;
  Precision precision;
  Recompute recompute;
  Optimizer optimizer;
  Schedule schedule;
  Checkpoint checkpoint;
  Evaluation evaluation;
  Metrics metrics;
  Watchdog watchdog;
  Cluster cluster;
  Debug debug;

  std::string path;             ///< of the deck file
  std::vector<Origin> origins;  ///< every key, in table order
};

}  // namespace ztrain::config
