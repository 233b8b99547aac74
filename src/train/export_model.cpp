#include "train/export_model.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/preference_loss.hpp"
#include "base/text.hpp"
#include "checkpoint/hf/export_folder.hpp"
#include "config/adapters.hpp"
#include "config/architectures.hpp"
#include "config/hf/hf_config.hpp"
#include "config/hf/peft_config.hpp"
#include "config/hf/reward_model.hpp"
#include "config/hf/special_tokens.hpp"
#include "config/hf/starting_point.hpp"
#include "config/text/load.hpp"
#include "files/file.hpp"
#include "job/progress.hpp"
#include "job/require_checkpoint.hpp"
#include "plan/setup.hpp"

namespace ztrain::train {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using checkpoint::ExportContent;

constexpr checkpoint::ExportKeys deck_keys{"checkpoint.export", "checkpoint.export_dtype"};

constexpr std::int64_t largest_companion = 1 << 28;  ///< bytes; the largest tokenizers take some 30 million

/// Names of a tokenizer's files, which are copied beside a model's weights because training does not change
/// them.
constexpr const char* companions[] = {"tokenizer.json",     "tokenizer_config.json",
                                      "tokenizer.model",    "chat_template.jinja",
                                      "chat_template.json", "special_tokens_map.json",
                                      "added_tokens.json",  "vocab.json",
                                      "merges.txt",         "tekken.json"};

/// Returns the text of a file; none if the folder is "" or lacks it, or is gone, or may not be read.
std::optional<std::string> text_in(const std::string& folder, const char* name) {
  const fs::path path = fs::path(folder) / name;
  std::error_code unknown;
  if (folder.empty() || !fs::exists(path, unknown)) return std::nullopt;
  return read_file(path, largest_companion);
}

/// Returns the folder of the tokenizer's files: that of the data's tokenizer, if its tokenizer.json is there
/// with the hash that the data recorded and the one of model.from is another, else model.from.
std::string tokenizer_folder(const config::Model& m, const std::string& recorded) {
  const auto has_recorded = [&](const std::string& folder) {
    const auto text = text_in(folder, "tokenizer.json");
    return text && hex(hash_bytes(text->data(), text->size())) == recorded;
  };
  const bool other = !recorded.empty() && !has_recorded(m.from) && has_recorded(m.tokenizer_folder);
  return other ? m.tokenizer_folder : m.from;
}

std::vector<checkpoint::SideFile> tokenizer_files(const config::Model& m, const std::string& recorded) {
  std::vector<checkpoint::SideFile> files;
  const std::string folder = tokenizer_folder(m, recorded);
  for (const char* name : companions)
    if (auto companion = text_in(folder, name)) files.push_back({name, std::move(*companion)});
  return files;
}

DType dtype_of(const config::Deck& deck, const std::string& given) {
  if (given != "auto") return dtype_from(given);
  return deck.precision.parameters == DType::f64 ? DType::f32 : deck.precision.parameters;
}

config::HfHead head_of(const config::Deck& deck) {
  return is_reward_loss(deck.preference.loss_type) ? config::HfHead::reward : config::HfHead::words;
}

/// Returns config.json, generation_config.json if ids of special tokens are known, and the tokenizer's files.
/// model.from is the folder from which the weights once came, or ""; `tokenizer` is the hash of the data's.
std::vector<checkpoint::SideFile> model_files(const config::Deck& deck, DType dtype,
                                              const std::string& tokenizer) {
  const config::Model& m = deck.model;
  // Positions whose frequencies RoPE scaling stretches are usable, although the run trained on fewer.
  const double stretched =
      m.rope_scaling == "llama3" ? m.rope_factor * static_cast<double>(m.rope_original_max_position) : 0;
  const auto positions = std::max(deck.data.sequence, static_cast<std::int64_t>(stretched));
  std::vector<checkpoint::SideFile> files{
      {"config.json", config::hf_config(m, dtype, positions, head_of(deck))}};
  constexpr const char* generation = "generation_config.json";
  auto text = config::generation_config(m, files.front().text, text_in(m.from, generation));
  if (!text.empty()) files.push_back({generation, std::move(text)});
  for (auto& file : tokenizer_files(m, tokenizer)) files.push_back(std::move(file));
  return files;
}

/// Returns a checkpoint's deck without its layout of blocks, which an export cannot hold and whose file may
/// be gone.
config::Deck deck_of(const nlohmann::json& metadata, const std::string& checkpoint) {
  return job::deck_of(metadata, checkpoint, {"sparse_attention.mode=none", "sparse_attention.layout="});
}

/// Returns the Hugging Face model that adapters belong to, or "" if it is not known. A run that started from
/// a checkpoint with adapters has gone on with these, beside the model of that checkpoint.
std::string adapters_base(nlohmann::json metadata, config::Deck deck) {
  std::set<std::string> seen;  // A later run may have taken the place of a checkpoint.
  while (deck.lora.rank > 0) {
    const std::string origin = metadata.value("model_from", ""),
                      from = metadata.value("started_from", origin);
    if (!deck.model.base.empty()) return deck.model.base;
    if (from == origin) return origin;
    if (!config::is_checkpoint(from) || !seen.insert(from).second) return "";
    try {
      metadata = checkpoint::read_metadata(from);
      deck = deck_of(metadata, from);
    } catch (const Error&) {
      return "";  // The export needs nothing else of it.
    }
  }
  return "";
}

struct PreparedExport {
  checkpoint::ExportOptions options;
  std::vector<checkpoint::SideFile> files;
};

/// Plans the merge of PEFT's folder into the model that it belongs to.
PreparedExport prepare_merge(const ExportRequest& request, int rank) {
  REQUIRE(request.content == ExportContent::model, "--adapter: '{}' is PEFT's folder already",
          request.checkpoint);
  REQUIRE(request.values == checkpoint::WeightValues::trained,
          "--ema: '{}' is PEFT's folder, which holds no averages; leave it out", request.checkpoint);
  // The deck has no data: only its model is read.
  config::Deck deck =
      config::parse_deck("", request.checkpoint, config::settings_to_read(request.checkpoint, request.base));
  PreparedExport p;
  for (const model::Parameter& parameter : plan::training_graph(deck).parameters)
    p.options.parameters.push_back({.name = parameter.name,
                                    .shape = parameter.shape,
                                    .slice = {},
                                    .trainable = parameter.trainable,
                                    .adapter = parameter.adapter});
  p.options.dtype = request.dtype == "auto" ? DType::bf16 : dtype_from(request.dtype);
  p.options.max_shard_bytes = request.max_shard_bytes;
  p.options.keys = request.keys;
  p.options.architecture = &config::find_architecture(deck.model.family);
  p.options.adapters = {deck.lora.alpha, deck.lora.dropout, deck.lora.rslora, deck.model.base};
  p.options.base = deck.model.base;
  deck.data.sequence = deck.model.origin_positions;
  deck.model.from = rank == 0 ? deck.model.origin : "";
  p.files = model_files(deck, p.options.dtype, "");
  return p;
}

/// Plans an export. Rank 0 alone reads the side files, because the export takes them from rank 0.
PreparedExport prepare_export(const ExportRequest& request, int rank) {
  if (config::is_peft_folder(request.checkpoint)) return prepare_merge(request, rank);
  job::require_checkpoint(request.checkpoint);
  const auto metadata = checkpoint::read_metadata(request.checkpoint);
  REQUIRE(request.base.empty() || request.content == ExportContent::model,
          "--base: adapters are exported alone (--adapter) without the weights beside them: leave it out");
  REQUIRE(request.base.empty() || metadata.contains(checkpoint::frozen_key), "{}",
          job::unneeded_base(request.checkpoint));
  config::Deck deck = deck_of(metadata, request.checkpoint);
  std::string tokenizer;  // hash
  if (rank == 0) {
    deck.model.from = metadata.value("model_from", "");
    deck.model.tokenizer_folder = metadata.value("tokenizer_folder", "");
    if (metadata.contains("data")) tokenizer = metadata.at("data").value("tokenizer", "");
  }
  deck.model.ends = metadata.value(config::ends_key, deck.model.ends);
  PreparedExport p;
  p.options.dtype = dtype_of(deck, request.dtype);
  p.options.max_shard_bytes = request.max_shard_bytes;
  p.options.content = request.content;
  p.options.values = request.values;
  p.options.keys = request.keys;
  p.options.architecture = &config::find_architecture(deck.model.family);
  p.options.adapters = {deck.lora.alpha, deck.lora.dropout, deck.lora.rslora, adapters_base(metadata, deck)};
  p.options.base = request.base;
  p.files = request.content == ExportContent::model ? model_files(deck, p.options.dtype, tokenizer)
                                                    : tokenizer_files(deck.model, tokenizer);
  return p;
}

/// Returns "" if the export was over too soon to tell its rate.
std::string rate_text(double bytes, double seconds) {
  constexpr double least = 0.1;
  if (seconds < least) return "";
  return fmt::format("; {:.1f} s, {:.2f} GB/s", seconds, bytes / seconds * 1e-9);
}

std::string summary(const ExportRequest& request, const PreparedExport& p, const checkpoint::Exported& done,
                    double seconds) {
  std::vector<std::string> names;
  for (const auto& file : p.files) names.push_back(file.name);
  if (request.content == ExportContent::adapters) names.insert(names.begin(), "adapter_config.json");
  const auto bytes = static_cast<double>(done.bytes);
  return fmt::format("{}: {} tensors, {} of {} in {}, and {}{}\n",
                     checkpoint::ExportFolder::final_path(request.to).string(), done.tensors,
                     format_bytes(bytes), name_of(p.options.dtype), count_text(done.files, "file"),
                     fmt::join(names, ", "), rate_text(bytes, seconds));
}

}  // namespace

void export_model(const runtime::Session& session, telemetry::Console& console,
                  const ExportRequest& request) {
  telemetry::Phase phase(console, "exporting");
  const PreparedExport p =
      session.agree("preparing the export", [&] { return prepare_export(request, session.rank()); });
  const auto start = Clock::now();
  const auto done = session.agree("exporting", [&] {
    return checkpoint::export_weights(
        request.checkpoint, request.to, p.files, p.options,
        [&](std::int64_t written, std::int64_t total) { phase.at(share_of(written, total, "written")); });
  });
  if (done.removed_remains)
    console.print(fmt::format("{}.tmp, which an interrupted export had left, was removed\n", request.to));
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (request.content == ExportContent::adapters && p.options.adapters.base.empty())
    console.print(
        "base_model_name_or_path is null: the run did not start from a Hugging Face model; name there the "
        "model beside which the adapters were trained, without them: a merged export would count them "
        "twice\n");
  console.print(summary(request, p, done, seconds));
}

namespace {

/// Requires that files of the family keep the layers that have adapters as they are: PEFT finds modules by
/// name.
void require_own_modules(const config::Deck& deck) {
  const config::Architecture& a = config::find_architecture(deck.model.family);
  for (const config::FileTensor& row : a.files) {
    if (row.experts != config::ExpertFiles::none) continue;  // PEFT has a form for experts.
    std::string module(row.parameter.substr(0, row.parameter.rfind('.')));
    std::ranges::replace(module, '*', '0');
    for (const std::string& target : deck.lora.targets)
      REQUIRE(!config::is_target(target, module),
              "checkpoint.export_adapter: lora.targets has {}, which {} keeps in {}: its adapter cannot be "
              "exported alone. Leave it out of lora.targets, or export the merged model "
              "(checkpoint.export_adapter = false)",
              target, a.hf_class, row.tensor);
  }
}

}  // namespace

void require_exportable(const config::Deck& deck) {
  const config::Checkpoint& c = deck.checkpoint;
  if (c.export_adapter && deck.lora.rank > 0) require_own_modules(deck);
  try {
    checkpoint::require_new_folder(c.export_to, deck_keys);
    if (!c.export_adapter)
      config::hf_config(deck.model, dtype_of(deck, c.export_dtype), deck.data.sequence, head_of(deck));
  } catch (const Error& e) {
    fail("checkpoint.export: {}", e.what());
  }
}

ExportRequest export_request(const config::Deck& deck, const std::string& checkpoint) {
  ExportRequest request;
  request.checkpoint = checkpoint;
  request.to = deck.checkpoint.export_to;
  request.dtype = deck.checkpoint.export_dtype;
  request.content = deck.checkpoint.export_adapter ? ExportContent::adapters : ExportContent::model;
  request.keys = deck_keys;
  return request;
}

}  // namespace ztrain::train
