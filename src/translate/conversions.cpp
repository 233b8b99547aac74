// Parallelism, memory and precision.
#include "translate/conversions.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "config/text/suggest.hpp"

namespace ztrain::translate {
namespace {

constexpr const char* not_set = "off there, as here without the key";

bool deepspeed_bf16(const Context& all) {
  const Value* kind = all.find("distributed_type");
  return all.find("zero_optimization.stage") != nullptr || (kind != nullptr && kind->is("DEEPSPEED"));
}

/// Returns the settings by which everything is sent to the host.
Taken offload_all(const std::string& note = {}) {
  Taken taken{.settings = {}, .note = note};
  for (const char* key : {"parameters", "gradients", "master", "optimizer"})
    taken.settings.emplace_back(fmt::format("offload.{}", key), "\"cpu\"");
  return taken;
}

Taken zero_stage(const Setting& s, const Context&) {
  return put("sharding.strategy", fmt::format("\"zero{}\"", s.value.word));
}

Taken strategy(const Setting& s, const Context&) {
  constexpr std::string_view numbered[] = {"",         "FULL_SHARD",   "SHARD_GRAD_OP",
                                           "NO_SHARD", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"};
  const double n = s.value.number();
  const bool known = n >= 1 && n < static_cast<double>(std::size(numbered));
  std::string name(known ? numbered[static_cast<std::size_t>(n)] : std::string_view(s.value.word));
  if (!name.ends_with("HYBRID_SHARD_ZERO2")) return put("sharding.strategy", fmt::format("\"{}\"", name));
  return {.settings = {{"sharding.strategy", "\"HYBRID_SHARD\""},
                       {"sharding.reshard_after_forward", "\"false\""}},
          .note = {}};
}

/// The same name is a strategy in files of FSDP 1, and true or false in those of FSDP 2.
Taken reshard(const Setting& s, const Context& all) {
  if (s.value.kind == Value::Kind::text && s.value.word.find("SHARD") != std::string::npos)
    return strategy(s, all);
  return put("sharding.reshard_after_forward", s.value.toml);
}

Taken fsdp_words(const Setting& s, const Context&) {
  std::string words = s.value.word;
  const auto has = [&](const char* word) { return words.find(word) != std::string::npos; };
  if (s.value.is("false") || words.empty() || s.value.is("[]")) return leave(not_set, Fate::always);
  Taken taken = has("offload") ? offload_all() : Taken{};
  const char* name = has("hybrid")          ? "HYBRID_SHARD"
                     : has("shard_grad_op") ? "SHARD_GRAD_OP"
                     : has("no_shard")      ? "NO_SHARD"
                                            : "FULL_SHARD";
  taken.settings.emplace_back("sharding.strategy", fmt::format("\"{}\"", name));
  taken.settings.emplace_back("sharding.unit", has("auto_wrap") ? "\"block\"" : "\"model\"");
  return taken;
}

Taken distributed_type(const Setting& s, const Context& all) {
  if (s.value.is("DEEPSPEED")) return leave("deepspeed_config says how", Fate::always);
  if (!s.value.is("FSDP")) return put("sharding.strategy", "\"NO_SHARD\"", "whole copies on every rank");
  const Value* reshard = all.find("fsdp_reshard_after_forward");
  const bool said = all.find("fsdp_sharding_strategy") != nullptr ||
                    (reshard != nullptr && reshard->kind == Value::Kind::text);
  return said ? leave("fsdp_config says how", Fate::always) : put("sharding.strategy", "\"FULL_SHARD\"");
}

Taken unit_of_layer(const Setting&, const Context&) {
  return put("sharding.unit", "\"block\"", "a unit is every layer of the decoder");
}

Taken smallest_unit(const Setting& s, const Context& all) {
  const Value* policy = all.find("fsdp_auto_wrap_policy");
  if (policy == nullptr) policy = all.find("auto_wrap_policy");
  return policy != nullptr && policy->is("SIZE_BASED_WRAP")
             ? put("sharding.unit_min_parameters", s.value.toml)
             : leave("SIZE_BASED_WRAP alone uses it", Fate::always);
}

Taken all_to_host(const Setting& s, const Context&) {
  return s.value.on() ? offload_all() : leave(not_set, Fate::always);
}

Taken states_to(const Setting& s, const Context&) {
  if (s.value.is("none")) return leave(not_set, Fate::always);
  return {.settings = {{"offload.optimizer", s.value.toml}, {"offload.master", s.value.toml}}, .note = {}};
}

Taken parameters_to(const Setting& s, const Context&) {
  return s.value.is("none") ? leave(not_set, Fate::always) : put("offload.parameters", s.value.toml);
}

Taken fraction(const Setting& s, const Context&) {
  return {
      .settings = {{"offload.optimizer_fraction", s.value.toml}, {"offload.master_fraction", s.value.toml}},
      .note = {}};
}

Taken activations_to_host(const Setting& s, const Context&) {
  return s.value.is("false") ? leave(not_set, Fate::always) : put("offload.activations", "\"cpu\"");
}

Taken nvme(const Setting& s, const Context& all) {
  const auto used = [&](const char* name) {
    const Value* device = all.find(name);
    return device != nullptr && device->is("nvme");
  };
  const bool any = used("offload_optimizer.device") || used("offload_param.device") ||
                   used("offload_optimizer_device") || used("offload_param_device");
  return any ? put("offload.nvme_path", s.value.toml) : leave("nothing is sent to nvme", Fate::always);
}

Taken stage_3(const Setting& s, const Context& all) {
  if (all.number("zero_optimization.stage") < 3) return leave("only stage 3 uses it", Fate::always);
  return put(std::string(config::find_setting(s.name)->key), s.value.toml);
}

Taken in_units(const Setting&, const Context&) {
  return leave("gathers go by units here: sharding.forward_prefetch and .max_gathered_units count them");
}

Taken secondary_shards(const Setting& s, const Context&) {
  return s.value.number() > 1 ? put("sharding.reshard_after_forward", s.value.toml)
                              : leave(not_set, Fate::always);
}

Taken ahead_of_norm(const Setting& s, const Context& all) {
  if (!s.value.on()) return leave(not_set, Fate::always);
  const Value* device = all.find("offload_optimizer.device");
  if (device == nullptr || !device->is("cpu"))
    return leave(
        "offload.optimizer_ahead is for states in the host's memory, offload_optimizer.device = cpu");
  const Value* name = all.find("optimizer.type");
  if (name != nullptr && plain(name->word) == "muon")
    return leave("offload.optimizer_ahead is for optimizers that step element by element, not for Muon");
  return put("offload.optimizer_ahead", "true");
}

/// DeepSpeed quantises in stage 3 only.
Taken coded(const Setting& s, const Context& all, const char* key, const char* codes) {
  if (!s.value.on()) return leave(not_set, Fate::always);
  if (all.number("zero_optimization.stage") < 3) return leave("only stage 3 uses it", Fate::always);
  return put(key, codes);
}
Taken coded_gathers(const Setting& s, const Context& all) {
  return coded(s, all, "sharding.gather_codes", "\"int8\"");
}
Taken coded_reductions(const Setting& s, const Context& all) {
  return coded(s, all, "sharding.reduce_codes", "\"int4\"");
}

Taken mics(const Setting& s, const Context&) {
  if (s.value.number() < 1) return leave(not_set, Fate::always);
  return {.settings = {{"mesh.shard", s.value.toml}, {"mesh.replicate", "-1"}}, .note = {}};
}

Taken degree(const Setting& s, const Context&) {
  const std::string key(config::find_setting(s.name)->key);
  if (s.value.number() >= 1 || key == "mesh.shard") return put(key, s.value.toml);
  return leave(not_set, Fate::always);
}

Taken ulysses(const Setting& s, const Context&) {
  if (s.value.number() <= 1) return leave(not_set, Fate::always);
  return {.settings = {{"mesh.context", s.value.toml}, {"context.method", "\"ulysses\""}}, .note = {}};
}

Taken rotation(const Setting& s, const Context&) {
  return put("context.method", s.value.is("allgather")  ? "\"gather\""
                               : s.value.is("alltoall") ? "\"ring\""
                                                        : s.value.toml);
}

Taken pipeline_schedule(const Setting& s, const Context& all) {
  return all.number("pipeline_parallel_degree") > 1 ? put("pipeline.schedule", s.value.toml)
                                                    : leave("there is one stage", Fate::always);
}

Taken narrow_master(const Setting& s, const Context&) {
  return s.value.on() ? put("precision.preset", "\"fsdp-bf16\"") : leave(not_set, Fate::always);
}

/// Another file of settings, which is to be translated too.
Taken other_file(const Setting& s, const Context& all) {
  return all.find("zero_optimization.stage") != nullptr || s.value.is("none")
             ? leave("its settings are here", Fate::always)
             : leave("give this file to `ztrain translate` as well", Fate::open);
}

Taken by_default(const Setting& s, const Context&) {
  return leave(s.value.on() ? "it is the default here" : not_set, Fate::always);
}

/// Translates a switch of recomputation, which is on if a trainer's arguments or Accelerate's file turn it
/// on.
Taken checkpointing(const Setting& s, const Context& all) {
  const auto turns_on = [&](const char* name) {
    const Value* value = all.find(name);
    return value != nullptr && value->kind != Value::Kind::nothing && !value->is("false");
  };
  const bool of_trainer = s.name.ends_with("gradient_checkpointing");
  if (s.value.is("false")) {
    if (turns_on("gradient_checkpointing") || turns_on("fsdp_activation_checkpointing") ||
        turns_on("fsdp_config.activation_checkpointing"))
      return leave("another setting turns it on", Fate::always);
    return of_trainer ? put("recompute.mode", "\"none\"") : leave(not_set, Fate::always);
  }
  Taken taken = put("recompute.mode", "\"full\"");
  if (s.value.word.starts_with("offload")) taken.settings.emplace_back("offload.activations", "\"cpu\"");
  return taken;
}

Taken recompute_mode(const Setting& s, const Context& all) {
  if (s.value.is("none") || s.value.is("full")) return put("recompute.mode", s.value.toml);
  if (!s.value.is("selective")) return leave("`ztrain plan` proposes pieces of a block for recompute.pieces");
  if (all.number("selective_ac_option") > 0)
    return put("recompute.mode", "\"full\"", "of every so many blocks");
  return {
      .settings = {{"recompute.mode", "\"selective\""}, {"recompute.pieces", R"(["norm", "swiglu"])"}},
      .note = "a list of pieces of a block stands for the policy over ops: `ztrain plan` tells their memory"};
}

Taken recompute_every(const Setting& s, const Context& all) {
  const Value* mode = all.find("activation_checkpoint.mode");
  const bool used = mode != nullptr && mode->is("selective") && s.value.number() > 0;
  return used ? put("recompute.every", fmt::format("{}", s.value.number()))
              : leave("activation_checkpoint.mode says it", Fate::always);
}

Taken bf16(const Setting& s, const Context& all) {
  if (s.value.is("auto") || s.value.on())
    return deepspeed_bf16(all)
               ? put("precision.preset", "\"deepspeed-bf16\"", "DeepSpeed's gradients are bf16 too")
               : put("precision.preset", "\"bf16\"");
  const bool other = all.on("fp16") || all.on("fp16.enabled") || all.on("bf16.enabled") ||
                     all.on("float16") || all.find("mixed_precision") != nullptr;
  return other ? leave("another setting says the precision", Fate::always)
               : put("precision.preset", "\"fp32\"");
}

Taken fp16(const Setting& s, const Context&) {
  return s.value.on() ? put("precision.preset", "\"deepspeed-fp16\"") : leave(not_set, Fate::always);
}

Taken mixed_precision(const Setting& s, const Context& all) {
  if (s.value.is("bf16")) return bf16({.name = s.name, .value = scalar("true"), .where = s.where}, all);
  if (s.value.is("fp16")) return put("precision.preset", "\"deepspeed-fp16\"");
  if (!s.value.is("no") && !s.value.is("false"))
    return leave("precision.fp8 is for layers of blocks in bf16");
  return all.on("bf16") || all.on("fp16") ? leave("the trainer's arguments say it", Fate::always)
                                          : put("precision.preset", "\"fp32\"");
}

/// The dtype in which a trainer loads the model: its master weights, unless a program keeps fp32 ones beside.
Taken loaded_as(const Setting& s, const Context& all) {
  const bool narrow = s.value.is("bfloat16") || s.value.is("bf16");
  if (!narrow)
    return leave("weights are read whatever their dtype; precision.preset says the rest", Fate::always);
  const Value* kind = all.find("distributed_type");
  if (deepspeed_bf16(all) || all.find("deepspeed") != nullptr || (kind != nullptr && kind->is("FSDP")))
    return leave("master weights are fp32 there all the same", Fate::always);
  return put("precision.preset", "\"fsdp-bf16\"",
             "weights and moments are bf16 there, which loses small steps: \"bf16\" keeps fp32 ones");
}

Taken master(const Setting& s, const Context&) {
  return put("precision.master", s.value.toml);
}

Taken communication(const Setting& s, const Context&) {
  return put("precision.reduce", s.value.is("bfp16") ? "\"bf16\"" : s.value.toml);
}

Taken scaling(const Setting& s, const Context& all) {
  if (!all.on("fp16.enabled")) return leave("fp16 alone uses it", Fate::always);
  const config::OtherName* row = config::find_setting(s.name);
  const std::string member = s.name.substr(s.name.rfind('.') + 1);
  return put(row != nullptr ? std::string(row->key) : "loss_scaling." + member, s.value.toml);
}

Taken fp8_recipe(const Setting& s, const Context&) {
  if (s.value.is("rowwise_with_gw_hp")) return put("precision.fp8", "\"rowwise\"");
  return s.value.is("rowwise")
             ? leave("the gradient of a weight is no 8-bit product here with rowwise scales")
             : put("precision.fp8", s.value.toml);
}

constexpr Conversion placement_rows[] = {
    {"zero_optimization.stage zero_stage", zero_stage, "stage N is `\"zeroN\"`"},
    {"fsdp_sharding_strategy sharding_strategy", strategy,
     "`_HYBRID_SHARD_ZERO2` is `\"HYBRID_SHARD\"` with `sharding.reshard_after_forward = false`"},
    {"fsdp_reshard_after_forward reshard_after_forward", reshard,
     "of FSDP 1 it is the strategy. A copy that is kept lives until its last use in the step"},
    {"fsdp", fsdp_words, "words such as `full_shard auto_wrap offload`"},
    {"distributed_type", distributed_type, "`MULTI_GPU`, `NO`: `\"NO_SHARD\"`"},
    {"fsdp_transformer_layer_cls_to_wrap transformer_layer_cls_to_wrap", unit_of_layer},
    {"fsdp_min_num_params min_num_params", smallest_unit},
    {"fsdp_offload_params offload_params enable_cpu_offload", all_to_host,
     "with `offload.gradients`, `offload.master`, `offload.optimizer`"},
    {"offload_optimizer.device offload_optimizer_device", states_to, "with `offload.master`"},
    {"offload_param.device offload_param_device", parameters_to},
    {"offload_optimizer.ratio", fraction, "Twin-Flow's ratio; with `offload.master_fraction`"},
    {"offload_optimizer.super_offload super_offload", ahead_of_norm,
     "with `device` = `cpu` alone, and not with `Muon`"},
    {"cpu_checkpointing activation_offloading", activations_to_host},
    {"nvme_path offload_optimizer_nvme_path offload_param_nvme_path", nvme, "a list of folders"},
    {"stage3_max_live_parameters stage3_max_reuse_distance stage3_param_persistence_threshold", stage_3,
     "with stage 3 only"},
    {"stage3_prefetch_bucket_size allgather_bucket_size", in_units, "it is not taken over"},
    {"zero_hpz_partition_size", secondary_shards, "the copy is made at a unit's first use in a step"},
    {"zero_quantized_weights", coded_gathers, "true is `\"int8\"`"},
    {"zero_quantized_gradients", coded_reductions, "true is `\"int4\"`"},
    {"mics_shard_size", mics},
    {"autotp_size tensor_parallel_size tensor_parallel_degree pipeline_parallel_degree "
     "expert_parallel_degree "
     "context_parallel_degree context_parallel_size sequence_parallel_degree data_parallel_replicate_degree "
     "data_parallel_shard_degree dp_shard_size dp_replicate_size parallelism_config_tp_size "
     "parallelism_config_cp_size parallelism_config_dp_shard_size parallelism_config_dp_replicate_size",
     degree},
    {"sequence_parallel_size", ulysses, "with `context.method = \"ulysses\"`"},
    {"context_parallel_rotate_method parallelism_config_cp_comm_strategy", rotation,
     "`allgather` is `\"gather\"`, `alltoall` is `\"ring\"`"},
    {"pipeline_parallel_schedule", pipeline_schedule},
    {"bf16_master_weights_and_grads", narrow_master, "`\"bf16-pure\"` rounds stochastically"},
    {"deepspeed deepspeed_config_file", other_file, "its file is translated beside this one"},
    {"partition_activations", by_default, "on by default with `mesh.tensor`"},
    {"gradient_checkpointing fsdp_activation_checkpointing fsdp_config.activation_checkpointing",
     checkpointing},
    {"activation_checkpoint.mode", recompute_mode, "`selective` by ops is a list of pieces of a block"},
    {"selective_ac_option", recompute_every},
    {"bf16 bf16.enabled bfloat16", bf16,
     "`\"bf16\"`, of DeepSpeed `\"deepspeed-bf16\"`, whose gradients are bf16; if nothing is on: `\"fp32\"`"},
    {"fp16 fp16.enabled float16", fp16},
    {"mixed_precision", mixed_precision, "`no` is `\"fp32\"`"},
    {"dtype torch_dtype", loaded_as,
     "the dtype that weights are loaded in is that of their updates there, unless FSDP or DeepSpeed keeps "
     "fp32 ones: `precision.preset = \"fsdp-bf16\"`"},
    {"training.dtype", master},
    {"communication_data_type", communication},
    {"loss_scale initial_scale_power loss_scale_window hysteresis consecutive_hysteresis min_loss_scale",
     scaling, "the same algorithm and defaults, of fp16 alone"},
    {"recipe_name", fp8_recipe, "`rowwise_with_gw_hp` is `\"rowwise\"`; scales are powers of two"},
};

}  // namespace

const Value* Context::find(std::string_view name) const {
  const Value* found = nullptr;
  for (const Setting& s : settings)
    if (s.name == name || s.name.ends_with(fmt::format(".{}", name))) found = &s.value;
  return found;
}

bool Context::on(std::string_view name) const {
  const Value* value = find(name);
  return value != nullptr && value->on();
}

double Context::number(std::string_view name) const {
  const Value* value = find(name);
  return value == nullptr ? 0 : value->number();
}

std::span<const Conversion> placement_conversions() {
  return placement_rows;
}

const Conversion* find_conversion(std::string_view path) {
  for (std::string_view ending = path;; ending.remove_prefix(ending.find('.') + 1)) {
    for (const auto& all : {placement_conversions(), model_conversions(), training_conversions()})
      for (const Conversion& row : all)
        if (config::names_have(row.names, ending)) return &row;
    if (ending.find('.') == ending.npos) return nullptr;
  }
}

}  // namespace ztrain::translate
