#include "translate/back.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "base/json.hpp"
#include "config/fields/fields.hpp"
#include "config/fields/value.hpp"
#include "config/strategy.hpp"
#include "config/validate/validate.hpp"
#include "translate/read.hpp"

namespace ztrain::translate {
namespace {

using json = nlohmann::ordered_json;

/// A deck of which each key is told that nothing has asked for.
class Reader {
 public:
  explicit Reader(const config::Deck& deck) : deck_(deck) {}

  json operator()(const std::string& key) {
    asked_.insert(key);
    return json(parse_json(config::render(*config::find_field(key), deck_)));
  }
  std::string word(const std::string& key) { return (*this)(key).get<std::string>(); }
  double number(const std::string& key) { return (*this)(key).get<double>(); }

  void remark(std::string text) { remarks_.push_back(std::move(text)); }
  void remark_unless(bool same, const std::string& key, const std::string& why) {
    if (!same) remark(fmt::format("{} = {}: {}", key, config::render(*config::find_field(key), deck_), why));
  }

  /// Ends with a line for each given key that nothing has asked for.
  Translated finish(std::string text) {
    for (const config::Field& field : config::fields())
      if (config::is_explicit(deck_, field.key) && !asked_.contains(field.key))
        remark(fmt::format("{} = {}: no counterpart in this file", field.key, config::render(field, deck_)));
    return {std::move(text), std::move(remarks_)};
  }

 private:
  const config::Deck& deck_;
  std::set<std::string> asked_;
  std::vector<std::string> remarks_;
};

/// Returns the stage that shards as the strategy does.
int stage_of(const config::Strategy& s) {
  return s.parameters_sharded && s.reshard_after_forward ? 3
         : s.parameters_sharded || s.gradients_sharded   ? 2
         : s.optimizer_sharded                           ? 1
                                                         : 0;
}

/// Returns the steps of the run, or 0 if the data say them.
std::int64_t steps_of(Reader& deck) {
  deck("run.tokens"), deck("run.epochs");
  return deck("run.steps").get<std::int64_t>();
}

json optimizer(Reader& deck) {
  const std::string name = deck.word("optimizer.name");
  json params{{"lr", deck("optimizer.lr")}, {"weight_decay", deck("optimizer.weight_decay")}};
  if (name == "sgd") {
    params["momentum"] = deck("optimizer.momentum");
    params["nesterov"] = deck("optimizer.nesterov");
    return {{"type", "SGD"}, {"params", params}};
  }
  if (name == "muon") {
    params["momentum"] = deck("optimizer.momentum");
    deck.remark_unless(deck.word("optimizer.muon_scale") == "spectral", "optimizer.muon_scale",
                       "the step there is that of \"spectral\", with a learning rate for it");
    return {{"type", "Muon"}, {"params", params}};
  }
  params["betas"] = deck("optimizer.betas");
  if (name == "lion") return {{"type", "Lion"}, {"params", params}};
  params["eps"] = deck("optimizer.eps");
  if (name == "onebit_adam") {
    params["freeze_step"] = deck("optimizer.freeze_step");
    return {{"type", "OneBitAdam"}, {"params", params}};
  }
  deck.remark_unless(name != "adamw_8bit", "optimizer.name", "moments of 32 bits stand for those of 8");
  if (name == "adam") params["adam_w_mode"] = false;
  deck.remark_unless(params["weight_decay"] == 0.0, "optimizer.weight_decay",
                     "norms and biases are decayed too there, unless the program's groups leave them out");
  return {{"type", name == "adam" ? "Adam" : "AdamW"}, {"params", params}};
}

/// The lengths are "auto", which Accelerate's and transformers' programs fill in, if the deck counts no
/// steps.
json scheduler(Reader& deck, const optim::Schedule& schedule) {
  const std::string name = deck.word("schedule.name");
  const std::int64_t steps = steps_of(deck);
  const json unknown = "auto";
  const double warmup = deck.number("schedule.warmup");
  const bool known = steps > 0 || warmup >= 1 || warmup == 0;
  json params{{"warmup_min_lr", 0}, {"warmup_max_lr", deck("optimizer.lr")}, {"warmup_type", "linear"}};
  params["warmup_num_steps"] = known ? json(optim::warmup_steps(schedule, steps)) : unknown;
  const double least = deck.number("schedule.min_lr_ratio");
  if (name == "constant") return {{"type", "WarmupLR"}, {"params", params}};
  params["total_num_steps"] = steps > 0 ? json(steps) : unknown;
  if (steps == 0) deck.remark("total_num_steps is \"auto\", which Accelerate and trainers fill in");
  if (name == "cosine") {
    json cosine{{"total_num_steps", params["total_num_steps"]},
                {"warmup_num_steps", params["warmup_num_steps"]},
                {"warmup_type", "linear"},
                {"cos_min_ratio", least}};
    return {{"type", "WarmupCosineLR"}, {"params", cosine}};
  }
  deck.remark_unless(name != "wsd", "schedule.name", "the rate falls from the end of the warmup on there");
  deck.remark_unless(least == 0, "schedule.min_lr_ratio", "the rate falls to 0 there");
  return {{"type", "WarmupDecayLR"}, {"params", params}};
}

void add_precision(Reader& deck, json& file) {
  const std::string parameters = deck.word("precision.parameters");
  const std::string gradients = deck.word("precision.gradients"), reduce = deck.word("precision.reduce");
  deck("precision.preset");
  if (parameters == "bf16") file["bf16"] = {{"enabled", true}};
  if (parameters == "fp16")
    file["fp16"] = {{"enabled", true},
                    {"loss_scale", deck("loss_scaling.scale")},
                    {"initial_scale_power", deck("loss_scaling.initial_scale_power")},
                    {"loss_scale_window", deck("loss_scaling.window")},
                    {"hysteresis", deck("loss_scaling.hysteresis")},
                    {"consecutive_hysteresis", deck("loss_scaling.consecutive_hysteresis")},
                    {"min_loss_scale", deck("loss_scaling.min_scale")}};
  if (gradients != parameters) file["data_types"] = {{"grad_accum_dtype", gradients}};
  if (reduce != parameters) file["communication_data_type"] = reduce;
  deck.remark_unless(deck.word("precision.master") == "fp32", "precision.master", "masters are fp32 there");
}

/// Returns the section of what is sent to a tier, or null if nothing is.
json sent_to(Reader& deck, const std::string& what) {
  const std::string to = deck.word(fmt::format("offload.{}", what));
  if (to == "none") return nullptr;
  json section{{"device", to}, {"pin_memory", true}};
  const json paths = deck("offload.nvme_path");
  if (to == "nvme" && !paths.empty()) section["nvme_path"] = paths[0];
  return section;
}

json zero(Reader& deck, const config::Strategy& strategy) {
  deck("sharding.strategy");
  json section{{"stage", stage_of(strategy)}, {"overlap_comm", deck("sharding.overlap_reduce")}};
  const auto add = [&](const char* name, const char* key) {
    if (const json value = deck(key); value != 0) section[name] = value;
  };
  add("reduce_bucket_size", "sharding.reduce_bucket_size");
  if (section["stage"] == 3) {
    add("stage3_max_live_parameters", "sharding.max_live_parameters");
    add("stage3_max_reuse_distance", "sharding.max_reuse_distance");
    add("stage3_param_persistence_threshold", "sharding.persistence_threshold");
    const std::string reshard = deck.word("sharding.reshard_after_forward");
    if (const double ranks = scalar(reshard).number(); ranks > 0)
      section["zero_hpz_partition_size"] = static_cast<int>(ranks);
    deck.remark_unless(reshard != "false", "sharding.reshard_after_forward",
                       "stage 3 gathers units again for backward there");
    const std::string codes = deck.word("sharding.gather_codes");
    if (codes == "int8") section["zero_quantized_weights"] = true;
    const std::string reduced = deck.word("sharding.reduce_codes");
    if (reduced == "int4") section["zero_quantized_gradients"] = true;
    deck.remark_unless(reduced != "int8", "sharding.reduce_codes",
                       "zero_quantized_gradients has 4 bits there");
    deck.remark_unless(codes != "int4", "sharding.gather_codes", "zero_quantized_weights has 8 bits there");
  }
  if (strategy.within_node && deck.number("mesh.shard") > 0) section["mics_shard_size"] = deck("mesh.shard");
  if (json states = sent_to(deck, "optimizer"); !states.is_null()) {
    if (const json ratio = deck("offload.optimizer_fraction"); ratio != 1) states["ratio"] = ratio;
    if (deck("offload.optimizer_ahead") == true) states["super_offload"] = true;
    section["offload_optimizer"] = states;
    deck("offload.master");
    deck.remark_unless(deck("offload.master_fraction") == deck("offload.optimizer_fraction"),
                       "offload.master_fraction", "masters and moments have one ratio there");
  }
  if (const json parameters = sent_to(deck, "parameters"); !parameters.is_null()) {
    section["offload_param"] = parameters;
    deck("offload.gradients");
  }
  return section;
}

/// Returns the section of attention to some blocks, or null if there is none.
json sparse(Reader& deck) {
  const std::string mode = deck.word("sparse_attention.mode");
  deck.remark_unless(mode != "file", "sparse_attention.mode", "layouts of files are none of its modes");
  if (mode == "none" || mode == "file") return nullptr;
  json section{{"mode", mode}, {"block", deck("sparse_attention.block")}, {"attention", "unidirectional"}};
  const auto add = [&](const char* name) { section[name] = deck(fmt::format("sparse_attention.{}", name)); };
  if (mode == "fixed") add("num_local_blocks");
  if (mode == "fixed" || mode == "bigbird") add("num_global_blocks");
  if (mode == "variable") section["local_window_blocks"] = {deck("sparse_attention.num_local_blocks")};
  if (mode == "variable" || mode == "bslongformer") {
    json& indices = section["global_block_indices"] = json::array();
    for (int i = 0; i < deck.number("sparse_attention.num_global_blocks"); ++i) indices.push_back(i);
  }
  if (mode == "bigbird" || mode == "bslongformer") add("num_sliding_window_blocks");
  if (mode == "variable" || mode == "bigbird") {
    add("num_random_blocks");
    deck("sparse_attention.seed");
    deck.remark_unless(section["num_random_blocks"] == 0, "sparse_attention.num_random_blocks",
                       "other blocks are drawn there");
  }
  return section;
}

}  // namespace

Translated to_deepspeed(const config::Deck& from) {
  Reader deck(from);
  json file{{"train_batch_size", deck("batch.global")}};
  if (const json micro = deck("batch.micro"); micro != 0) file["train_micro_batch_size_per_gpu"] = micro;
  file["optimizer"] = optimizer(deck);
  file["scheduler"] = scheduler(deck, from.schedule);
  file["gradient_clipping"] = deck("optimizer.max_norm");
  add_precision(deck, file);
  file["zero_optimization"] = zero(deck, config::find_strategy(from.sharding.strategy));
  if (deck.number("mesh.tensor") > 1) file["tensor_parallel"] = {{"autotp_size", deck("mesh.tensor")}};
  if (deck.number("mesh.context") > 1) {
    file["sequence_parallel_size"] = deck("mesh.context");
    deck.remark_unless(deck.word("context.method") == "ulysses", "context.method", "it is \"ulysses\" there");
  }
  if (json section = sparse(deck); !section.is_null()) file["sparse_attention"] = std::move(section);
  file["steps_per_print"] = deck("metrics.interval");
  if (deck.word("recompute.mode") != "none") deck.remark("recompute.mode: the model's code says it there");
  return deck.finish(json_text(file, 2) + "\n");
}

namespace {

void add_fsdp(Reader& deck, const config::Strategy& strategy, std::string& text) {
  const auto yes = [](bool value) { return value ? "true" : "false"; };
  const std::string reshard = deck.word("sharding.reshard_after_forward"), unit = deck.word("sharding.unit");
  const bool again = reshard == "auto" ? strategy.reshard_after_forward : reshard != "false";
  text += "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n";
  text += fmt::format("  fsdp_reshard_after_forward: {}\n", yes(again));
  text += fmt::format("  fsdp_auto_wrap_policy: {}\n", unit == "size"    ? "SIZE_BASED_WRAP"
                                                       : unit == "model" ? "NO_WRAP"
                                                                         : "TRANSFORMER_BASED_WRAP");
  if (unit == "size")
    text += fmt::format("  fsdp_min_num_params: {}\n", json_text(deck("sharding.unit_min_parameters")));
  const bool host = deck.word("offload.parameters") == "cpu";
  for (const char* key : {"offload.gradients", "offload.optimizer", "offload.master"})
    deck.remark_unless((deck.word(key) == "cpu") == host || (!host && deck.word(key) == "none"), key,
                       "it goes with the parameters there");
  text += fmt::format("  fsdp_offload_params: {}\n", yes(host));
  text += fmt::format("  fsdp_activation_checkpointing: {}\n", yes(deck.word("recompute.mode") == "full"));
  text += "  fsdp_state_dict_type: SHARDED_STATE_DICT\n  fsdp_cpu_ram_efficient_loading: true\n";
}

void add_plugin(Reader& deck, const config::Strategy& strategy, std::string& text) {
  text += "distributed_type: DEEPSPEED\ndeepspeed_config:\n";
  text += fmt::format("  zero_stage: {}\n", stage_of(strategy));
  text += fmt::format("  gradient_clipping: {}\n", json_text(deck("optimizer.max_norm")));
  text += fmt::format("  offload_optimizer_device: {}\n", deck.word("offload.optimizer"));
  text += fmt::format("  offload_param_device: {}\n", deck.word("offload.parameters"));
  text += "  zero3_init_flag: false\n";
}

}  // namespace

Translated to_accelerate(const config::Deck& from, int ranks) {
  Reader deck(from);
  const config::Strategy& strategy = config::find_strategy(deck.word("sharding.strategy"));
  std::string text = "compute_environment: LOCAL_MACHINE\n";
  if (strategy.parameters_sharded)
    add_fsdp(deck, strategy, text);
  else if (strategy.optimizer_sharded)
    add_plugin(deck, strategy, text);
  else
    text += "distributed_type: MULTI_GPU\n";
  const double tensor = deck.number("mesh.tensor"), context = deck.number("mesh.context");
  const double copies = deck.number("mesh.replicate"), shards = deck.number("mesh.shard");
  if (tensor > 1 || context > 1 || copies > 1) {
    text += "parallelism_config:\n";
    if (shards > 0) text += fmt::format("  parallelism_config_dp_shard_size: {}\n", shards);
    if (copies > 0) text += fmt::format("  parallelism_config_dp_replicate_size: {}\n", copies);
    text +=
        fmt::format("  parallelism_config_tp_size: {}\n  parallelism_config_cp_size: {}\n", tensor, context);
  }
  const std::string parameters = deck.word("precision.parameters");
  deck("precision.preset");
  text += fmt::format("mixed_precision: '{}'\n", parameters == "fp32" ? "no" : parameters);
  deck.remark_unless(deck.word("precision.master") == "fp32", "precision.master",
                     "the program loads the model in this dtype there");
  if (ranks > 0) text += fmt::format("num_processes: {}\n", ranks);
  text += "num_machines: 1\nmachine_rank: 0\nmain_training_function: main\nuse_cpu: false\n";
  return deck.finish(std::move(text));
}

}  // namespace ztrain::translate
