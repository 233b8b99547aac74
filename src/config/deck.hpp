#pragma once
// The deck, typed. Every member corresponds to one row of the field table (config/fields/fields.hpp), which
// holds its key, default, unit, legal values and documentation. Keys are `section.member`.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "optim/optimizer.hpp"
#include "optim/schedule.hpp"

namespace ztrain::config {

struct Run {
  std::string output;
  std::int64_t seed = 0;
  std::int64_t steps = 0, tokens = 0;  ///< exactly one of steps, tokens, epochs is positive after validation
  double epochs = 0;
  double max_minutes = 0;  ///< wall-clock time after which the run saves and ends; 0: none
  /// Seconds kept free before the end of the SLURM allocation; negative: the end is ignored.
  double end_margin = 0;
};

struct Data {
  std::vector<std::string> train;       ///< files or globs, as whole paths
  std::vector<std::string> validation;  ///< files or globs; empty: the last validation_fraction of train
  double validation_fraction = 0;
  std::vector<double> weights;  ///< weights of the entries of train in the mixture; empty: all tokens alike
  std::string format;           ///< auto | text | bin-uint16 | bin-uint32 | hdf5
  std::string packing;          ///< auto | windows | documents
  std::string long_documents;   ///< truncate | split | drop
  std::int64_t max_documents = 0;  ///< documents in one sequence; 0: no limit
  std::int64_t sequence = 0;       ///< tokens per sequence
  std::string stage;               ///< folder of each node's own drive for copies of the files; "": none
};

struct Model {
  std::string family = "llama";  ///< a name of config/architectures.hpp
  std::string preset;            ///< "custom" takes the dims below
  /// Folder of a Hugging Face model or a checkpoint, for its dims and its weights to start from.
  std::string from;
  /// Folder of the weights beside which what `from` holds alone was trained; "": the one that `from` names.
  std::string base;
  bool trust_config = false;    ///< whether a config.json that asks for code of its own is believed
  std::int64_t add_tokens = 0;  ///< tokens added to the vocabulary of model.from
  std::string new_rows;         ///< mean | normal
  std::string origin;  ///< not a key: the Hugging Face model that those weights once came from; "": none
  /// Not a key: whether `from` is a dense model, whose feed-forward each expert copies.
  bool upcycled = false;
  /// Not a key: tokens that the model was made for, by its own word; 0: not known.
  std::int64_t origin_positions = 0;
  /// Not a key: tokens that end a text, from the model that weights come from or from the data.
  std::vector<std::int32_t> ends;
  /// Not a key: folder of the tokenizer that the data were made with, by their own word; "": not known.
  std::string tokenizer_folder;
  std::int64_t hidden_size = 0, intermediate_size = 0, num_hidden_layers = 0, num_attention_heads = 0,
               num_key_value_heads = 0, head_dim = 0, vocab_size = 0;
  /// Tokens that the model was made for; learned positions are a table of so many rows. 0: not known.
  std::int64_t max_position_embeddings = 0;
  double rms_norm_eps = 0, rope_theta = 0, initializer_range = 0;
  std::string rope_scaling;  ///< none | linear | dynamic | yarn | longrope | llama3
  double rope_factor = 0, rope_low_freq_factor = 0, rope_high_freq_factor = 0;
  std::int64_t rope_original_max_position = 0;
  double rope_attention_factor = 0;  ///< of sines and cosines; 0: as the scaling has it
  double rope_beta_fast = 0, rope_beta_slow = 0, rope_mscale = 0, rope_mscale_all_dim = 0;  ///< of yarn
  bool rope_truncate = true;                                                                ///< of yarn
  std::vector<double> rope_short_factor, rope_long_factor;  ///< of longrope, one for each pair of elements
  double partial_rotary_factor = 1;                         ///< share of a head's elements that are turned
  /// Base of the rotary embedding, without scaling, of layers with a window; 0: as in the other layers.
  double rope_local_base_freq = 0;
  std::vector<double> no_rope_layers;  ///< 1: with the rotary embedding; 0: not. Repeated; empty: all 1
  bool tie_word_embeddings = false;
  /// Biases of q, k and v; bias of the output projection; biases of the feed-forward.
  bool attention_bias = false, attention_output_bias = false, mlp_bias = false;
  bool qk_norm = false;  ///< whether queries and keys have RMS norms
  /// Widths of latent attention: of the latent of queries (0: none), of the latent of keys and values (0:
  /// attention is not latent), and of the parts of a head.
  std::int64_t q_lora_rank = 0, kv_lora_rank = 0, qk_nope_head_dim = 0, qk_rope_head_dim = 0, v_head_dim = 0;
  std::int64_t sliding_window = 0;         ///< tokens that attention looks back; 0: all
  std::int64_t full_attention_layers = 0;  ///< first layers that look back over all tokens
  std::vector<std::string> layer_types;    ///< full_attention | sliding_attention; repeated; empty: as above
  double query_pre_attn_scalar = 0;        ///< scores are divided by its root; 0: by head_dim's
  double attention_multiplier = 0;         ///< scores are multiplied by it; 0: as above
  double attn_logit_softcapping = 0, final_logit_softcapping = 0;  ///< 0: none
  double embedding_multiplier = 1, residual_multiplier = 1;        ///< of what joins the residual stream
  double logits_scaling = 1;                                       ///< logits are divided by it
  /// Number of experts of a layer (0: the feed-forward is dense), number that a token goes to, and width of
  /// each.
  std::int64_t num_experts = 0, num_experts_per_tok = 0, moe_intermediate_size = 0;
  /// Width of the expert that all tokens go to, and number of such experts as wide as the others; 0: none.
  std::int64_t shared_expert_intermediate_size = 0, n_shared_experts = 0;
  bool norm_topk_prob = false;       ///< whether the weights of a token's experts are divided by their sum
  double routed_scaling_factor = 1;  ///< factor of these weights
  std::string scoring_func;          ///< softmax | sigmoid, of the router's logits
  std::string topk_method;           ///< greedy | group_limited_greedy | noaux_tc: how experts are chosen
  std::int64_t n_group = 0,
               topk_group =
                   0;  ///< number of groups of experts, and of those that a token chooses from; 0: none
  double router_aux_loss_coef = 0;  ///< coefficient of the balance loss
  /// Which layers have experts: every decoder_sparse_step-th but the first first_k_dense_replace and those
  /// listed. See config/layers.hpp.
  std::int64_t decoder_sparse_step = 1, first_k_dense_replace = 0;
  std::vector<double> mlp_only_layers;
  std::vector<std::string> trainable, frozen;  ///< globs of parameter names; see model/trainable.hpp
};

/// Attention to some blocks of keys.
struct SparseAttention {
  std::string mode = "none";  ///< none | fixed | variable | bigbird | bslongformer | file
  std::int64_t block = 64, num_local_blocks = 4, num_global_blocks = 1, num_sliding_window_blocks = 3,
               num_random_blocks = 0, seed = 0;
  std::string layout;                ///< File of mode "file".
  std::vector<std::int64_t> rows{};  ///< Not a key: the rows of bits of the file (config/block_layout.hpp).
  bool is_on() const { return mode != "none"; }
};

/// Training of experts.
struct Experts {
  std::string balance;  ///< model | sequence | global | none
  double z_loss = 0;    ///< coefficient of the routers' z-loss; 0: none
  /// How far a step moves the biases of the choice towards equal loads; 0: they stay.
  double bias_update_speed = 0;
  /// Room for rows that go to other ranks' experts, in even shares; 0: for all that may come.
  double capacity = 0;
};

/// Low-rank adapters.
struct Lora {
  std::int64_t rank = 0;  ///< 0: no adapters
  double alpha = 0, dropout = 0;
  std::vector<std::string> targets;   ///< globs of module names, or of their last parts
  bool random_base = false;           ///< whether adapters may stand beside weights that are drawn, not read
  bool rslora = false;                ///< whether they are scaled by alpha / sqrt(rank), not alpha / rank
  bool dora = false;                  ///< whether rows of the adapted weights have learned magnitudes
  std::string quantization = "none";  ///< of frozen weights: none | nf4 | fp4 | int8
  bool double_quantization = true;    ///< scales of nf4 and fp4 are codes of 8 bits
};

/// Terms of a token's loss besides the negative log-probability of its target.
struct Loss {
  double label_smoothing = 0, z_loss = 0;
};

/// A loss on pairs of answers, or on answers with labels.
struct Preference {
  std::string loss_type;  ///< none | a name of base/preference_loss.hpp
  double beta = 0, label_smoothing = 0, simpo_gamma = 0, desirable_weight = 0, undesirable_weight = 0;
  double center_rewards = 0;  ///< coefficient of a reward model's loss that keeps rewards near zero
  bool is_on() const { return loss_type != "none"; }
};

/// A loss against the likelihoods that another model gave the words of the training data.
struct Distillation {
  std::string teacher;     ///< file of those likelihoods; empty: none
  double weight = 0.5;     ///< share of this loss in the whole one
  std::int64_t top_k = 0;  ///< words of a token that are learned from
  bool is_on() const { return !teacher.empty(); }
};

struct Batch {
  std::int64_t global = 0;  ///< sequences per optimizer step, over all ranks
  std::int64_t micro = 0;   ///< sequences per rank and micro-batch
};

/// Degrees of the axes. At most one is -1, which resolve_mesh replaces. The ranks of expert are some of
/// those of shard.
struct Mesh {
  std::int64_t pipeline = 1, replicate = 1, shard = -1, expert = 1, context = 1, tensor = 1;
  std::int64_t per_node = 0;  ///< Ranks of a node. It is not a key: validate_for_ranks sets it.
};

inline constexpr std::string_view schedule_file_ending = ".csv";

struct PipelineParallel {
  std::string schedule;              ///< name in program/schedules, or a file of one
  std::int64_t stages_per_rank = 0;  ///< 0: the schedule's number
  std::vector<double> layers;        ///< blocks of each stage, whole numbers; empty: by their cost
  std::int64_t max_outstanding = 1;  ///< turns by which a receive is begun before it is needed
  std::string late_weights;          ///< gradients that a schedule's half for weights computes: all, kept
  bool schedule_is_file() const { return schedule.ends_with(schedule_file_ending); }
};

struct TensorParallel {
  /// Whether norms and the residual stream are split by tokens over mesh.tensor.
  bool sequence_parallel = true;
  bool overlap = false;  ///< whether communication goes part by part beside products
};

struct ContextParallel {
  std::string method;  ///< gather | ring | ulysses
};

struct Sharding {
  std::string strategy;               ///< canonical: a name of config/strategy.hpp
  std::string reshard_after_forward;  ///< auto | true | false | N, a whole number as text
  std::int64_t forward_prefetch = 1;  ///< units gathered ahead of use in forward
  std::string backward_prefetch;      ///< pre | post | none
  std::int64_t max_gathered_units = 0, max_live_parameters = 0, max_reuse_distance = 0;  ///< 0: no limit
  std::string gather_codes, reduce_codes;  ///< none | int8 | int4
  std::int64_t persistence_threshold = 0;  ///< parameters with fewer elements stay whole
  std::int64_t reduce_bucket_size = 0;     ///< elements; 0: one reduction per unit
  bool overlap_reduce = true;              ///< whether a reduction goes on during the next unit's backward
  std::string unit;                        ///< block | size | model | pattern
  std::int64_t unit_min_parameters = 0;    ///< elements, for unit = size
  std::vector<std::string> unit_patterns;  ///< globs of module names, for unit = pattern
  std::string gradient_accumulation;       ///< auto | reduce | no_sync
};

struct Precision {
  std::string preset;  ///< a name of precision_preset_names
  DType parameters = DType::f32, gradients = DType::f32, reduce = DType::f32, master = DType::f32,
        moments = DType::f32;
  std::string rounding;  ///< auto | nearest | stochastic; stochastic_rounding() resolves it
  std::string fp8;       ///< none | tensorwise | rowwise
};

struct LossScaling {
  double scale = 0;  ///< 0: dynamic
  std::int64_t initial_scale_power = 0, window = 0, hysteresis = 0;
  bool consecutive_hysteresis = false;
  double min_scale = 0;
};

struct Recompute {
  std::string mode;                 ///< none | full | selective
  std::int64_t every = 1;           ///< for full: every k-th block
  std::vector<std::string> pieces;  ///< for selective: names of config/recompute_pieces.hpp
  std::int64_t tiles = 1;           ///< parts of the tokens for which feed-forwards are computed in turn
};

/// Tier of one kind of state between its uses.
struct OffloadHome {
  std::string to;       ///< none | cpu | nvme
  double fraction = 1;  ///< share of its elements, by whole units (activations: by blocks)
};

struct Offload {
  OffloadHome parameters, gradients, master, optimizer, activations;
  std::string optimizer_on;            ///< auto | host | device
  bool optimizer_ahead = false;        ///< whether the host steps before the norm is known
  std::vector<std::string> nvme_path;  ///< folders
  std::int64_t optimizer_threads = 0;  ///< 0: the cores of a rank; for CPU ranks one
  std::int64_t queue_depth = 0, nvme_block_size = 0, threads = 0;
  bool checksums = false;
};

/// Parameters that are stepped differently.
struct ParameterGroup {
  std::string match;    ///< glob of parameter names
  double lr_scale = 1;  ///< factor of the scheduled learning rate
  /// Empty: optimizer.weight_decay, if the parameter is decayed at all.
  std::optional<double> weight_decay;
};

struct Optimizer {
  std::string name;  ///< adamw | adam | sgd | lion | adamw_8bit | muon | onebit_adam
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0, max_norm = 0, momentum = 0;
  bool nesterov = false;
  std::string muon_scale;              ///< spectral | rms: muon's factor for the shape of a matrix
  double ema_decay = 0;                ///< of the average of each trained parameter; 0: none
  std::int64_t freeze_step = 0;        ///< warm-up of onebit_adam; 0: another rule
  bool during_backward = false;        ///< whether each unit is stepped as soon as its gradient is there
  std::vector<std::string> no_decay;   ///< globs of parameter names
  std::vector<ParameterGroup> groups;  ///< the last match counts

  optim::Settings settings() const { return {beta1, beta2, eps, momentum, nesterov, ema_decay, freeze_step}; }
};

struct Checkpoint {
  std::string folder;  ///< empty: <run.output>/checkpoints
  std::int64_t interval = 0, keep = 0, keep_every = 0, keep_best = 0, files = 0;
  bool async = false;                ///< whether checkpoints before the end are written in the background
  std::int64_t memory_copies = 0;    ///< copies of each snapshot on other nodes; 0: no snapshots
  std::int64_t memory_interval = 0;  ///< steps between snapshots
  std::string memory_folder;         ///< a folder in each node's own memory
  std::string resume;                ///< auto | none | a checkpoint's folder
  std::vector<std::string> changes;  ///< globs of keys that may differ from the checkpoint's deck
  /// Folder of a Hugging Face model written at the end, "" for none; dtype of that model.
  std::string export_to, export_dtype;
  std::string export_from;      ///< last | best: the checkpoint that is exported
  bool export_adapter = false;  ///< whether the adapters alone are exported, as a PEFT folder
  bool frozen = false;          ///< whether checkpoints hold the weights that are not trained
};

struct Evaluation {
  std::int64_t interval = 0, batches = 0;
  std::int64_t patience = 0;  ///< evaluations without an improvement after which the run ends; 0: none
  double min_delta = 0;       ///< nats by which a loss must be below the best to be an improvement
};

struct Metrics {
  std::int64_t interval = 1;       ///< steps between printed lines
  std::int64_t timeline_step = 0;  ///< step of which timeline.json is written; 0: none
};

struct Watchdog {
  /// Seconds without progress before the rank reports where it is and aborts; 0: off.
  double timeout = 0;
  std::int64_t stragglers = 0;      ///< steps between looks for slow ranks; 0: none
  std::string non_finite;           ///< skip | stop, for a step whose gradients are not finite
  std::int64_t audit_interval = 0;  ///< steps between looks for silent corruption; 0: none
  std::int64_t audit_limit = 0;     ///< most times that a run goes back because of corruption
};

/// The steps whose ops are written to run.output/trace with their times.
struct Profile {
  std::vector<double> steps;  ///< first and last, whole numbers; empty: none
  bool contains(std::int64_t step) const {
    return !steps.empty() && static_cast<double>(step) >= steps[0] && static_cast<double>(step) <= steps[1];
  }
};

/// Machine data that planning needs. GB are 1e9 bytes; 0: unknown.
struct Cluster {
  std::string preset;               ///< "custom" or a name of cluster_preset_names
  std::string machine;              ///< machine file (plan/rates); empty: the preset's
  std::int64_t ranks_per_node = 0;  ///< 0: ranks per node at launch
  double device_memory = 0;         ///< GB per rank
  double host_memory = 0;           ///< GB per node
  double outside_memory = 0;        ///< GB per rank outside the plan
  double peak_tflops = 0;           ///< dense, per rank, at the parameters' dtype; 0: mfu is not printed
  double compute_efficiency = 0;    ///< share of the peak that matrix products reach
  double memory_bandwidth = 0;      ///< GB/s per rank
  double memory_efficiency = 0;     ///< share of memory_bandwidth that is reached
  double intra_node_bandwidth = 0, inter_node_bandwidth = 0;  ///< GB/s per rank and direction
  double host_bandwidth = 0, nvme_bandwidth = 0;  ///< GB/s per rank: to its node's memory, and to drives
  double host_memory_bandwidth = 0;  ///< GB/s per rank between its node's memory and the processor
  double latency = 0;                ///< microseconds per message
  double launch = 0;                 ///< microseconds of the host per op of the device
  std::int64_t multiprocessors = 0;  ///< multiprocessors of a device
};

/// Use of devices. Only bf16_products, fp32_products and reduction have an effect on CPU ranks.
struct Device {
  std::string communicator;                                 ///< auto | nccl | mpi
  std::string reduction;                                    ///< fp32_sum | nccl
  std::int64_t nccl_max_ctas = 0, nccl_max_ctas_pairs = 0;  ///< multiprocessors; 0: NCCL's choice
  std::string cuda_graphs;                                  ///< none | compute | step
  std::string bf16_products;                                ///< for CPUs: auto | native | fp32
  std::string fp32_products;                                ///< for CPUs: auto | native | bf16x6
  bool tf32 = false;
  bool deterministic = true;
  std::string algorithms;  ///< file of chosen product algorithms; empty: in the user's cache folder
};

struct Debug {
  bool poison = false;            ///< fill released memory with NaN
  bool asynchronous = false;      ///< run as late as dependencies allow, with memory closed to the host
  bool balanced_routing = false;  ///< tokens go to all experts in turn, whatever the router says
};

/// The source of what was typed beside the deck.
inline constexpr const char* command_line = "command line";

/// One resolved key, for `deck.resolved.toml`.
struct Origin {
  std::string key, value, source;  ///< source: "default", "input.toml:12", "command line", "preset llama3-8b"
  bool used = true;                ///< false: other keys leave it without effect, and source says why
};

struct Deck {
  Run run;
  Data data;
  Model model;
  SparseAttention sparse_attention;
  Experts experts;
  Lora lora;
  Loss loss;
  Preference preference;
  Distillation distillation;
  Batch batch;
  Mesh mesh;
  PipelineParallel pipeline;
  ContextParallel context;
  TensorParallel tensor;
  Sharding sharding;
  Precision precision;
  LossScaling loss_scaling;
  Recompute recompute;
  Offload offload;
  Optimizer optimizer;
  optim::Schedule schedule;
  Checkpoint checkpoint;
  Evaluation evaluation;
  Metrics metrics;
  Profile profile;
  Watchdog watchdog;
  Cluster cluster;
  Device device;
  Debug debug;

  std::string path;                    ///< path of the deck file
  std::vector<std::string> overrides;  ///< overrides as they were given on the command line
  std::vector<Origin> origins;         ///< every key, in table order
};

}  // namespace ztrain::config
