#include "translate/programs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <sstream>

#include "base/error.hpp"
#include "base/text.hpp"
#include "config/text/suggest.hpp"
#include "translate/program_keys.hpp"

namespace ztrain::translate {
namespace {

constexpr Default of_trainer[] = {
    {"per_device_train_batch_size", "8"},
    {"num_train_epochs", "3"},
    {"learning_rate", "5e-5"},
    {"lr_scheduler_type", "linear"},
    {"weight_decay", "0"},
    {"adam_beta1", "0.9"},
    {"adam_beta2", "0.999"},
    {"max_grad_norm", "1.0"},
    {"save_steps", "500"},
    {"logging_steps", "500"},
    {"bf16", "false"},
    {"seed", "42"},
};
constexpr Default of_trl[] = {
    {"per_device_train_batch_size", "8"},
    {"num_train_epochs", "3"},
    {"learning_rate", "2e-5"},
    {"lr_scheduler_type", "linear"},
    {"weight_decay", "0"},
    {"adam_beta1", "0.9"},
    {"adam_beta2", "0.999"},
    {"max_grad_norm", "1.0"},
    {"save_steps", "500"},
    {"logging_steps", "10"},
    {"bf16", "true"},
    {"gradient_checkpointing", "true"},
    {"max_length", "1024"},
    {"packing", "false"},
    {"lora_r", "16", "use_peft"},
    {"lora_alpha", "32", "use_peft"},
    {"lora_dropout", "0.05", "use_peft"},
    {"seed", "42"},
};
constexpr Default of_axolotl[] = {
    {"micro_batch_size", "1"},
    {"num_epochs", "1"},
    {"lr_scheduler", "cosine"},
    {"weight_decay", "0"},
    {"adam_beta1", "0.9"},
    {"adam_beta2", "0.999"},
    {"max_grad_norm", "1.0"},
    {"sample_packing", "false"},
    {"excess_length_strategy", "drop"},
    {"val_set_size", "0"},
    {"saves_per_epoch", "1"},
    {"lora_dropout", "0", "adapter"},
    {"seed", "42"},
};
constexpr Default of_deepspeed[] = {
    {"optimizer.params.betas", "[0.9, 0.999]", "optimizer.type"},
    {"optimizer.params.weight_decay", "0", "optimizer.type"},
    {"optimizer.params.lr", "1e-3", "optimizer.type"},
    {"gradient_clipping", "0", "train_micro_batch_size_per_gpu"},
    {"zero_optimization.stage", "0"},
    {"bf16.enabled", "false"},
    {"sparse_attention.block", "16", "sparse_attention.mode"},
    {"sparse_attention.attention", "bidirectional", "sparse_attention.mode"},
};
constexpr Default of_accelerate[] = {
    {"mixed_precision", "no"},
};
constexpr Default of_torchtitan[] = {
    {"training.local_batch_size", "8"},
    {"training.seq_len", "2048"},
    {"training.steps", "10000"},
    {"training.max_norm", "1.0"},
    {"optimizer.lr", "8e-4"},
    {"lr_scheduler.warmup_steps", "200"},
    {"lr_scheduler.decay_type", "linear"},
    {"lr_scheduler.min_lr_factor", "0"},
    {"checkpoint.enable", "false"},
    {"metrics.log_freq", "10"},
};

const Program program_rows[] = {
    {"trl", "TRL", "YAML or JSON of a trainer's arguments, of its script and of its model", keys::trl,
     of_trl},
    {"transformers", "transformers' TrainingArguments", "YAML or JSON", keys::trainer, of_trainer},
    {"axolotl", "axolotl", "YAML", keys::axolotl, of_axolotl},
    {"deepspeed", "DeepSpeed", "the JSON of `--deepspeed`", keys::deepspeed, of_deepspeed},
    {"accelerate", "Accelerate", "the YAML that `accelerate config` writes", keys::accelerate, of_accelerate},
    {"torchtitan", "torchtitan", "TOML, as `job_config.py` of v0.2 reads it", keys::torchtitan,
     of_torchtitan},
};

}  // namespace

std::span<const Program> programs() {
  return program_rows;
}

const Program& find_program(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Program& p : program_rows) {
    if (p.name == name) return p;
    names.push_back(p.name);
  }
  fail("--from: '{}' is no program whose files are read; legal: {}", name, fmt::join(names, ", "));
}

std::vector<std::string> keys_of(const Program& program) {
  std::istringstream words{std::string(program.keys)};
  std::vector<std::string> all{std::istream_iterator<std::string>(words), {}};
  if (program.name == "trl")
    std::ranges::copy(keys_of(find_program("transformers")), std::back_inserter(all));
  return all;
}

const Program& recognise(const std::vector<Setting>& settings, const std::string& file) {
  const Program* best = nullptr;
  std::size_t most = 0;
  for (const Program& p : program_rows) {
    const auto keys = keys_of(p);
    const auto known = static_cast<std::size_t>(std::ranges::count_if(settings, [&](const Setting& s) {
      return std::ranges::any_of(keys, [&](const std::string& key) { return glob_match(key, s.name); });
    }));
    const bool own = p.name != "trl" || std::ranges::any_of(settings, [&](const Setting& s) {
                       return config::names_have(p.keys, s.name);
                     });
    if (own && known > most) best = &p, most = known;
  }
  std::vector<std::string_view> names;
  for (const Program& p : program_rows) names.push_back(p.name);
  REQUIRE(best != nullptr && 2 * most >= settings.size(),
          "{}: {} of its {} names are those of a program whose files are read; --from NAME says which one "
          "it is of: {}",
          file, most, settings.size(), fmt::join(names, ", "));
  return *best;
}

}  // namespace ztrain::translate
