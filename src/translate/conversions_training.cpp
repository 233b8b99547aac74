// Optimizer, schedule, length of the run, batch, saves and evaluations.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "translate/conversions.hpp"

namespace ztrain::translate {
namespace {

constexpr const char* not_on = "off there, as here without the key";

Taken optimizer(const Setting& s, const Context& all) {
  std::string name = plain(s.value.word);
  if (name.starts_with("paged")) name.erase(0, 5);
  const bool coupled = all.find("adam_w_mode") != nullptr && !all.on("adam_w_mode");
  if (name.find("8bit") != std::string::npos && name.starts_with("adamw"))
    return put("optimizer.name", "\"adamw_8bit\"");
  if (name.starts_with("adamw") || name == "fusedadam") return put("optimizer.name", "\"adamw\"");
  if (name == "adam" || name == "cpuadam") return put("optimizer.name", coupled ? "\"adam\"" : "\"adamw\"");
  if (name.starts_with("lion")) return put("optimizer.name", "\"lion\"");
  if (name == "muon")
    return {.settings = {{"optimizer.name", "\"muon\""}, {"optimizer.muon_scale", "\"spectral\""}},
            .note = "learning rates there are for this scale"};
  if (name == "onebitadam")
    return {
        .settings = {{"optimizer.name", "\"onebit_adam\""}, {"mesh.replicate", "-1"}, {"mesh.shard", "1"}},
        .note = "copies of the model exchange signs; with mesh.shard above 1 each of them is sharded"};
  return name == "sgd"
             ? put("optimizer.name", "\"sgd\"")
             : leave("optimizers are adamw, adam, sgd, lion, adamw_8bit, muon and onebit_adam", Fate::open);
}

Taken decoupled(const Setting&, const Context&) {
  return leave("optimizer.name says it", Fate::always);
}

template <bool first>
Taken beta(const Setting& s, const Context&) {
  return put(first ? part::beta1 : part::beta2, s.value.toml);
}

Taken decay_of_weights(const Setting& s, const Context&) {
  return put("optimizer.weight_decay", s.value.toml, "norms and biases are not decayed");
}

Taken course(std::string_view name, std::string_view least, std::string note = {}) {
  Taken taken = put("schedule.name", fmt::format("\"{}\"", name), std::move(note));
  if (!least.empty()) taken.settings.emplace_back("schedule.min_lr_ratio", least);
  return taken;
}

/// Courses of other programs end at 0, ztrain's at a tenth of the peak unless the deck says otherwise.
Taken trainer_schedule(const Setting& s, const Context& all) {
  const bool least_is_said = all.find("min_lr_rate") != nullptr || all.find("min_lr") != nullptr ||
                             all.find("cosine_min_lr_ratio") != nullptr;
  const char* least = least_is_said ? "" : "0";
  if (s.value.is("linear")) return course("linear", least);
  if (s.value.is("cosine") || s.value.is("cosine_with_min_lr") || s.value.is("cosine_warmup_with_min_lr"))
    return course("cosine", least);
  if (s.value.is("constant") || s.value.is("constant_with_warmup")) return course("constant", "");
  if (s.value.is("warmup_stable_decay")) return course("wsd", least);
  return leave("courses are constant, linear, cosine and wsd", Fate::open);
}

Taken deepspeed_schedule(const Setting& s, const Context& all) {
  if (s.value.is("WarmupLR")) return course("constant", "");
  if (s.value.is("WarmupDecayLR")) return course("linear", "0");
  if (s.value.is("WarmupCosineLR")) return course("cosine", all.find("cos_min_ratio") ? "" : "1e-4");
  return leave("courses are constant, linear, cosine and wsd", Fate::open);
}

Taken kind_of_warmup(const Setting& s, const Context&) {
  return s.value.is("linear") ? leave("as here", Fate::always) : leave("the warmup is linear");
}

Taken torchtitan_schedule(const Setting& s, const Context& all) {
  if (s.value.is("sqrt")) return leave("courses are constant, linear, cosine and wsd", Fate::open);
  return all.find("decay_ratio") != nullptr && s.value.is("linear")
             ? leave("decay_ratio says it", Fate::always)
             : put("schedule.name", s.value.toml);
}

Taken decay_share(const Setting& s, const Context& all) {
  const double steps = std::round(s.value.number() * all.number("training.steps"));
  const Value* type = all.find("decay_type");
  if (steps < 1 || (type != nullptr && !type->is("linear")))
    return leave("the course falls until the end of the run; wsd's last decay is linear", Fate::open);
  return {.settings = {{"schedule.name", "\"wsd\""}, {"schedule.decay", fmt::format("{}", steps)}},
          .note = "in steps"};
}

Taken least_rate(const Setting& s, const Context& all) {
  double peak = all.number("learning_rate");
  if (peak <= 0) peak = all.number("lr");
  return peak > 0 ? put("schedule.min_lr_ratio", fmt::format("{:.6g}", s.value.number() / peak),
                        "a share of the peak")
                  : leave("schedule.min_lr_ratio is a share of the peak", Fate::open);
}

Taken steps(const Setting& s, const Context&) {
  return s.value.number() > 0 ? put("run.steps", s.value.toml) : leave("no length", Fate::always);
}

Taken epochs(const Setting& s, const Context& all) {
  return all.number("max_steps") > 0 ? leave("max_steps is the length", Fate::always)
                                     : put("run.epochs", s.value.toml);
}

Taken steps_of_schedule(const Setting& s, const Context& all) {
  const bool said = all.number("max_steps") > 0 || all.find("num_train_epochs") || all.find("num_epochs");
  return said ? leave("the schedule ends with the run", Fate::always) : put("run.steps", s.value.toml);
}

Taken accumulation(const Setting& s, const Context&) {
  return put(part::accumulation, s.value.toml);
}

/// Translates the sequences that a rank takes in a step, which a pipeline cuts into micro-batches.
Taken local_batch(const Setting& s, const Context& all) {
  if (all.number("pipeline_parallel_degree") <= 1) return put("batch.micro", s.value.toml);
  const double micro = std::max(1.0, all.number("pipeline_parallel_microbatch_size"));
  return put(part::accumulation, fmt::format("{}", std::max(1.0, std::floor(s.value.number() / micro))),
             "divided by pipeline_parallel_microbatch_size");
}

Taken pipeline_batch(const Setting& s, const Context& all) {
  return all.number("pipeline_parallel_degree") > 1 ? put("batch.micro", s.value.toml)
                                                    : leave("there is one stage", Fate::always);
}

Taken global_batch(const Setting& s, const Context&) {
  return s.value.number() > 0 ? put("batch.global", s.value.toml)
                              : leave("it follows from the others", Fate::always);
}

constexpr const char* epoch_in_steps =
    "it counts steps here: an epoch has rows / batch.global, which tools/prepare_data.py and `ztrain check` "
    "tell";

/// Intervals in steps; below 1 they are shares of the run there.
Taken interval(const std::string& key, const char* strategy, const Setting& s, const Context& all) {
  const Value* when = all.find(strategy);
  if (when != nullptr && !when->is("steps"))
    return leave(fmt::format("{} says when", strategy), Fate::always);
  return s.value.number() >= 1 ? put(key, s.value.toml) : leave(epoch_in_steps, Fate::open);
}

Taken save_steps(const Setting& s, const Context& all) {
  return all.number("saves_per_epoch") > 0 ? leave("saves_per_epoch says when", Fate::always)
                                           : interval("checkpoint.interval", "save_strategy", s, all);
}

Taken eval_steps(const Setting& s, const Context& all) {
  const Value* when = all.find("evaluation_strategy");
  return interval("evaluation.interval", when == nullptr ? "eval_strategy" : "evaluation_strategy", s, all);
}

Taken save_strategy(const Setting& s, const Context&) {
  if (s.value.is("steps")) return leave("save_steps says when", Fate::always);
  return s.value.is("no") || s.value.is("false")
             ? put("checkpoint.interval", "0", "a checkpoint is saved at the end")
             : leave(fmt::format("checkpoint.interval: {}", epoch_in_steps), Fate::open);
}

Taken eval_strategy(const Setting& s, const Context& all) {
  if (s.value.is("no") || s.value.is("false")) return put("evaluation.interval", "0");
  if (!s.value.is("steps")) return leave(fmt::format("evaluation.interval: {}", epoch_in_steps), Fate::open);
  if (all.find("eval_steps") != nullptr) return leave("eval_steps says when", Fate::always);
  const double logging = all.number("logging_steps");
  return put("evaluation.interval", fmt::format("{}", logging >= 1 ? logging : 500),
             "as often as logging_steps");
}

Taken per_epoch(const Setting& s, const Context&) {
  const char* key = s.name.starts_with("save") ? "checkpoint.interval" : "evaluation.interval";
  return s.value.number() > 0 ? leave(fmt::format("{}: {}", key, epoch_in_steps), Fate::open) : put(key, "0");
}

Taken saving(const Setting& s, const Context&) {
  return s.value.on() ? leave("checkpoint.interval says when", Fate::always)
                      : put("checkpoint.interval", "-1");
}

Taken save_interval(const Setting& s, const Context& all) {
  const bool off = !all.on("checkpoint.enable") && !all.on("enable_checkpoint");
  return off ? leave("checkpoint.enable is off", Fate::always) : put("checkpoint.interval", s.value.toml);
}

Taken validation(const Setting& s, const Context&) {
  return s.value.on() ? leave("validation.freq says when", Fate::always) : put("evaluation.interval", "0");
}

Taken validation_detail(const Setting& s, const Context& all) {
  if (!all.on("validation.enable") || s.value.number() < 1)
    return leave("off there, or the whole set, which evaluation.batches does not say", Fate::always);
  return put(s.name.ends_with("freq") ? "evaluation.interval" : "evaluation.batches", s.value.toml);
}

Taken with_evaluations(const Setting&, const Context&) {
  return leave("evaluations take batch.micro sequences of data.sequence", Fate::always);
}

Taken validation_data(const Setting&, const Context&) {
  return leave("data.validation names files of tokens; without it a share of data.train is held out",
               Fate::open);
}

Taken keep_best(const Setting& s, const Context& all) {
  const bool evaluates = all.number("eval_steps") >= 1;
  if (!s.value.on()) return leave(not_on, Fate::always);
  return evaluates ? put("checkpoint.keep_best", "1",
                         "it is kept; `ztrain export` takes the checkpoint that is named")
                   : leave("checkpoint.keep_best = 1, once evaluation.interval is given", Fate::open);
}

Taken patience(const Setting& s, const Context& all) {
  return all.number("eval_steps") >= 1
             ? put("evaluation.patience", s.value.toml)
             : leave(fmt::format("evaluation.patience = {}, once evaluation.interval is given", s.value.word),
                     Fate::open);
}

Taken resume(const Setting& s, const Context&) {
  if (s.value.is("false")) return put("checkpoint.resume", "\"none\"");
  return s.value.on()
             ? put("checkpoint.resume", "\"auto\"")
             : leave("checkpoints of other programs are not read: model.from starts from their weights");
}

Taken anew(const Setting& s, const Context&) {
  return s.value.on() ? put("checkpoint.resume", "\"none\"") : leave(not_on, Fate::always);
}

Taken load_step(const Setting& s, const Context&) {
  return s.value.number() < 0 ? leave("the latest, as here", Fate::always)
                              : leave("checkpoints of other programs are not read");
}

Taken exported(const Setting& s, const Context&) {
  return s.value.on()
             ? leave("checkpoint.export = FOLDER writes a Hugging Face folder at the end", Fate::open)
             : leave(not_on, Fate::always);
}

Taken behind(const Setting& s, const Context&) {
  return put("checkpoint.async", s.value.is("disabled") || s.value.is("false") ? "false" : "true");
}

Taken during_backward(const Setting& s, const Context& all) {
  const Value* norm = all.find("max_norm");
  if (!s.value.on()) return leave(not_on, Fate::always);
  return norm != nullptr && norm->number() == 0 ? put("optimizer.during_backward", "true")
                                                : leave("it needs optimizer.max_norm = 0", Fate::open);
}

constexpr Conversion training_rows[] = {
    {"optim optimizer optimizer.type optimizer.name", optimizer,
     "DeepSpeed's `Adam` decouples the decay unless `adam_w_mode` is false; bitsandbytes' 8 bits are "
     "`\"adamw_8bit\"`; `Muon` comes with `optimizer.muon_scale = \"spectral\"`; `OneBitAdam` is "
     "`\"onebit_adam\"` with `mesh.replicate = -1`; Lamb, Adafactor and 0/1 Adam: no"},
    {"adam_w_mode", decoupled},
    {"adam_beta1 beta1", beta<true>, "the first of both"},
    {"adam_beta2 beta2", beta<false>, "the second of both, 0.95 by default here"},
    {"weight_decay", decay_of_weights, "0.1 by default here; norms and biases are not decayed"},
    {"lr_scheduler_type lr_scheduler", trainer_schedule,
     "with `schedule.min_lr_ratio = 0`: the last rate is 0 there, and a tenth of the peak by default here"},
    {"scheduler.type", deepspeed_schedule,
     "`WarmupLR` is `\"constant\"`, `WarmupDecayLR` is `\"linear\"` to 0, `WarmupCosineLR` is `\"cosine\"`; "
     "`OneCycle`, `LRRangeTest`: no"},
    {"warmup_type", kind_of_warmup, "it is linear; DeepSpeed's default is logarithmic"},
    {"decay_type", torchtitan_schedule, "`sqrt`: no"},
    {"decay_ratio", decay_share, "with `linear`: `schedule.name = \"wsd\"`; in steps"},
    {"min_lr", least_rate, "divided by the peak"},
    {"max_steps training.steps", steps},
    {"num_train_epochs num_epochs", epochs, "unless there is `max_steps`"},
    {"total_num_steps", steps_of_schedule, "the schedule ends with the run"},
    {"gradient_accumulation_steps", accumulation, "times `batch.micro` and the data-parallel ranks"},
    {"local_batch_size", local_batch, "with stages of a pipeline, `pipeline_parallel_microbatch_size` is"},
    {"pipeline_parallel_microbatch_size", pipeline_batch},
    {"train_batch_size global_batch_size", global_batch, "sequences of a step, over all ranks"},
    {"save_steps", save_steps},
    {"eval_steps", eval_steps},
    {"save_strategy", save_strategy,
     "`epoch`: steps are to be given. By default the end of the run alone here"},
    {"eval_strategy evaluation_strategy", eval_strategy, "`epoch`: steps are to be given"},
    {"saves_per_epoch evals_per_epoch", per_epoch, "steps are to be given"},
    {"checkpoint.enable enable_checkpoint", saving, "off is -1"},
    {"checkpoint.interval", save_interval},
    {"validation.enable", validation, "off is 0"},
    {"validation.dataset validation.dataset_path", validation_data, "files of tokens"},
    {"validation.local_batch_size validation.seq_len", with_evaluations},
    {"validation.freq validation.steps", validation_detail},
    {"load_best_model_at_end", keep_best, "1; `checkpoint.export_from = \"best\"` exports it"},
    {"early_stopping_patience", patience, "counts evaluations"},
    {"resume_from_checkpoint auto_resume_from_checkpoints", resume,
     "`auto` is the default here; checkpoints of other programs are not read"},
    {"overwrite_output_dir", anew},
    {"load_step", load_step},
    {"stage3_gather_16bit_weights_on_model_save zero3_save_16bit_model last_save_in_hf", exported,
     "a folder; or `ztrain export`, afterwards"},
    {"async_mode", behind, "on by default"},
    {"early_step_in_backward", during_backward, "needs `optimizer.max_norm = 0`"},
};

}  // namespace

std::span<const Conversion> training_conversions() {
  return training_rows;
}

}  // namespace ztrain::translate
