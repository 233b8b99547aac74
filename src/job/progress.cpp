#include "job/progress.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/json.hpp"
#include "base/plain_text.hpp"
#include "base/preference_loss.hpp"
#include "base/text.hpp"
#include "checkpoint/checkpoint.hpp"
#include "config/block_layout.hpp"
#include "config/hf/hf_config.hpp"
#include "config/hf/starting_point.hpp"
#include "config/text/load.hpp"
#include "config/text/print.hpp"
#include "config/validate/validate.hpp"
#include "job/saved_course.hpp"

namespace ztrain::job {
namespace {

constexpr const char* way_out = "or another run.output, or start anew with checkpoint.resume = \"none\"";

void require_same_data(const std::string& saved, const std::string& now, const std::string& checkpoint) {
  REQUIRE(saved == now,
          "data.train is not what {} was trained on (identity {} then, {} now: files, masks, documents, how "
          "they are packed, or what is held out for validation differ); give the same files, or go on with "
          "these (checkpoint.override = [\"data.*\"]), {}",
          checkpoint, saved, now, way_out);
}

/// Hashes that either side does not know are not compared: files without them count for nothing.
void require_same_hash(const char* what, const std::string& saved, const std::string& now,
                       const std::string& checkpoint) {
  REQUIRE(saved.empty() || now.empty() || saved == now,
          "data.train was prepared with another {} than what {} was trained on ({} then, {} now); prepare it "
          "with the same, {}",
          what, checkpoint, saved, now, way_out);
}

std::string changed_sets(const nlohmann::json& saved, const nlohmann::json& now) {
  std::string names;
  const auto add = [&](const std::string& name, const char* how) {
    names += fmt::format("{}{} {}", names.empty() ? "" : ", ", name, how);
  };
  for (const auto& [name, value] : now.items()) {
    if (!saved.contains(name))
      add(name, "is new");
    else if (saved.at(name) != value)
      add(name, "has changed");
  }
  for (const auto& [name, value] : saved.items())
    if (!now.contains(name)) add(name, "is gone");
  return names;
}

/// "" where nodes have as many ranks as they had; older versions did not write how many.
std::string change_of_nodes(const nlohmann::json& metadata, const config::Deck& deck,
                            const std::string& checkpoint) {
  const config::Precision& p = deck.precision;
  const auto narrow = [](DType type) { return size_of(type) == size_of(DType::bf16); };
  const bool sums_16_bits =
      narrow(p.gradients) || narrow(p.reduce) || (deck.mesh.tensor > 1 && narrow(p.parameters));
  const std::int64_t now = deck.mesh.per_node, before = metadata.at("mesh").value("ranks_per_node", now);
  if (before == now || !sums_16_bits) return "";
  return fmt::format(
      "{} was written with {} on a node, and there are {} now: sums of 16-bit elements over several nodes "
      "differ in the last bits; cluster.ranks_per_node = {} goes on as before\n",
      checkpoint, count_text(before, "rank"), now, before);
}

/// "" where the ranks are arranged as they were; older versions did not write how.
std::string change_of_mesh(const nlohmann::json& metadata, const config::Deck& deck,
                           const std::string& checkpoint) {
  const config::Mesh& now = deck.mesh;
  if (!metadata.contains("mesh")) return "";
  const auto of = [&](const char* axis) { return metadata.at("mesh").at(axis).get<std::int64_t>(); };
  std::vector before{of("pipeline"), of("replicate"), of("shard"), of("context"), of("tensor")};
  std::vector after{now.pipeline, now.replicate, now.shard, now.context, now.tensor};
  if (const std::int64_t experts = metadata.at("mesh").value("expert", 1); experts != now.expert)
    before.push_back(experts), after.push_back(now.expert);
  if (before == after) return change_of_nodes(metadata, deck, checkpoint);
  return fmt::format("{} was written on mesh {}, and is read on mesh {} now\n", checkpoint,
                     fmt::join(before, " x "), fmt::join(after, " x "));
}

/// Number of rows of a set that an evaluation reads.
std::int64_t evaluated_rows(const config::Deck& deck, std::int64_t rows) {
  return std::min(deck.evaluation.batches * deck.batch.micro * config::data_parallel_degree(deck), rows);
}

/// "" where evaluations read as many rows as they did, or where it is not known.
std::string change_of_evaluations(const nlohmann::json& metadata, const config::Deck& deck,
                                  const data::Identity& data, const std::string& checkpoint) {
  const std::string now = validation_identity(deck, data),
                    before = metadata.value(checkpoint::validation_of_key, now);
  if (before == now || deck.evaluation.interval == 0) return "";
  return fmt::format(
      "note: evaluations read other rows than when {} was written (evaluation.batches, batch.micro, "
      "data.sequence or the ranks differ): the best loss so far starts anew\n",
      checkpoint);
}

std::string note_on_weights(const nlohmann::json& metadata, const config::Deck& deck,
                            const std::string& checkpoint) {
  const std::string before = metadata.value("started_from", deck.model.from);
  if (deck.model.from.empty() || before == deck.model.from || metadata.contains(checkpoint::frozen_key))
    return "";
  return fmt::format(
      "note: model.from = \"{}\" has no effect: the run goes on with the weights of {}, and it once began "
      "with "
      "{}; checkpoint.resume = \"none\" and another run.output start from model.from\n",
      deck.model.from, checkpoint, before.empty() ? "weights that were drawn" : "those of " + before);
}

/// Returns what becomes of the best checkpoint if later losses are not compared with its own; "" if none
/// stays for its loss.
std::string note_on_best(const nlohmann::json& metadata, const config::Deck& deck) {
  const auto step = metadata.value("best_step", std::int64_t{-1});
  if (step < 0 || (deck.checkpoint.keep_best == 0 && deck.checkpoint.export_from != "best")) return "";
  return fmt::format(
      "note: the best checkpoint of before (the lowest loss was that of step {}) stays until one has a loss "
      "over these\n",
      step);
}

/// Throws Error if other pairs of answers, or other rows of them, would need a reference model that is not
/// there any more.
void require_references(const config::Deck& deck, const config::DeckChanges& changes, bool other_data,
                        const std::string& checkpoint) {
  const std::string& loss = deck.preference.loss_type;
  if (!other_data || !deck.preference.is_on() || !find_pair_loss(loss).reference) return;
  std::string changed;
  for (const config::KeyChange& change : changes.keys)
    if (change.key.starts_with("data."))
      changed += fmt::format("{} was {} and is {}, ", change.key, change.before, change.now);
  fail(
      "{}and preference.loss_type = \"{}\" compares with the model that the run of {} began with, whose "
      "log-probabilities are those of its first rows: {}, {}",
      changed.empty() ? "data.train is not what it was, " : changed, loss, checkpoint,
      changed.empty() ? "give the same files" : "set the keys back", way_out);
}

/// Returns a hash of the blocks that sequences have; a file may have more rows.
std::string hash_of_blocks(const config::Deck& deck) {
  const config::SparseAttention& sparse = deck.sparse_attention;
  const auto rows = config::first_rows(sparse.rows, deck.data.sequence / sparse.block);
  return hex(hash_bytes(rows.data(), rows.size() * sizeof rows[0]));
}

/// Throws Error if a key changed that may not.
config::DeckChanges legal_changes(const nlohmann::json& metadata, const config::Deck& deck,
                                  const std::string& checkpoint) {
  config::DeckChanges changes =
      config::changes_on_resume(deck, metadata.at("deck").get<std::string>(), checkpoint + "/deck");
  std::string text;
  for (const std::string& change : config::forbidden(changes)) text += "\n  " + change;
  const std::string keys = text.empty() ? "" : config::override_for(changes);
  REQUIRE(text.empty(),
          "the deck differs from that of {} in what may not change on resume:{}\nset these keys back; {}or "
          "keep only its weights, in a run of its own: model.from = \"{}\" and another run.output; or start "
          "anew: checkpoint.resume = \"none\"",
          checkpoint, text,
          keys.empty() ? "" : fmt::format("or go on with them: checkpoint.override = {}; ", keys),
          checkpoint);
  return changes;
}

/// Whether the deck permits other training data: it says so, or changes how they are read.
TrainingData permitted_data(const config::Deck& deck, const config::DeckChanges& changes) {
  return config::is_listed(deck, "data.train") || changes.has("data.*") ? TrainingData::any
                                                                        : TrainingData::same;
}

}  // namespace

std::string validation_identity(const config::Deck& deck, const data::Identity& data) {
  std::string text = fmt::format("{}", deck.data.sequence);
  for (std::size_t i = 0; i < data.validation.size(); ++i)
    text += fmt::format(" {} {}", data.validation[i].second,
                        i < data.validation_rows.size() ? evaluated_rows(deck, data.validation_rows[i]) : 0);
  return hex(hash_text(text));
}

nlohmann::json to_json(const data::Identity& identity) {
  nlohmann::json sets = nlohmann::json::object();
  for (const auto& [name, value] : identity.validation) sets[name] = hex(value);
  return {{"train", hex(identity.train)},
          {"ends", hex(identity.ends)},
          {"validation", sets},
          {"tokenizer", identity.tokenizer},
          {"chat_template", identity.chat_template}};
}

std::string note_of(const ProductWays& before, const ProductWays& now) {
  const auto line = [](const char* type, const std::string& was, const std::string& is) {
    if (was.empty() || is.empty() || was == is) return std::string();
    return fmt::format(
        "products of {2} matrices were \"{0}\" and are \"{1}\" now, so that losses differ in the last bits "
        "from those of a run without this break: device.{2}_products = \"{0}\" goes on as before, on "
        "processors that have it\n",
        was, is, type);
  };
  // Before there was a choice, CPUs multiplied fp32 natively, and nothing was recorded.
  const bool unrecorded = before.fp32.empty() && before.bf16 != "native";
  return line("bf16", before.bf16, now.bf16) +
         line("fp32", unrecorded ? std::string("native") : before.fp32, now.fp32);
}

std::string note_of_processor(const std::string& before, const std::string& now) {
  if (before.empty() || now.empty() || before == now) return "";
  return fmt::format(
      "the run computed by \"{}\" and computes by \"{}\" now, so that losses may differ in the last "
      "bits from those of a run without this break\n",
      printable(before, most_quoted), printable(now, most_quoted));
}

nlohmann::json to_metadata(const Progress& p, const config::Deck& deck, const data::Identity& data,
                           const std::string& version) {
  nlohmann::json j;
  j["version"] = version;
  j["step"] = p.step;
  j["samples"] = p.samples;
  j["tokens"] = config::tokens_of(deck, p.samples, p.earlier);
  j["optimizer_steps"] = p.optimizer_steps;
  j["best_validation_loss"] = std::isfinite(p.best_validation_loss) ? nlohmann::json(p.best_validation_loss)
                                                                    : nlohmann::json(nullptr);
  if (p.best_step >= 0) j["best_step"] = p.best_step;
  if (p.evaluations_without_improvement > 0)
    j["evaluations_without_improvement"] = p.evaluations_without_improvement;
  if (p.validation_loss) j[checkpoint::validation_loss_key] = *p.validation_loss;
  if (deck.evaluation.interval > 0) j[checkpoint::validation_of_key] = validation_identity(deck, data);
  j["loss_scaler"] = {{"scale", p.loss_scaler.scale},
                      {"good_steps", p.loss_scaler.good_steps},
                      {"hysteresis_left", p.loss_scaler.hysteresis_left}};
  if (p.skipped_in_a_row > 0) j["skipped_in_a_row"] = p.skipped_in_a_row;
  if (p.evaluation_failed) j["evaluation_failed"] = true;
  if (p.proven_step >= 0) j["proven_step"] = p.proven_step;
  if (p.run_steps > 0) j["run_steps"] = p.run_steps;
  if (!p.products.bf16.empty()) j["bf16_products"] = p.products.bf16;
  if (!p.products.fp32.empty()) j["fp32_products"] = p.products.fp32;
  if (!p.processor.empty()) j["processor"] = p.processor;
  if (!p.reference.empty()) j["reference"] = p.reference;
  j["seed"] = deck.run.seed;
  if (!deck.sparse_attention.rows.empty()) j[blocks_key] = hash_of_blocks(deck);
  j["deck"] = config::resolved_toml(deck);
  j["started_from"] = deck.model.from;
  j["model_from"] = deck.model.origin;  // of the tokenizer, and what else training leaves alone
  j["model_positions"] = deck.model.origin_positions;
  j[config::ends_key] = deck.model.ends;
  j["tokenizer_folder"] = deck.model.tokenizer_folder;
  j["deck_hash"] = hex(config::deck_hash(deck));
  j["data"] = to_json(data);
  if (!p.course.sources.empty()) j["course"] = to_json(p.course);
  if (p.earlier.steps > 0) j["earlier"] = to_json(p.earlier);
  j["mesh"] = {{"pipeline", deck.mesh.pipeline}, {"replicate", deck.mesh.replicate},
               {"shard", deck.mesh.shard},       {"context", deck.mesh.context},
               {"tensor", deck.mesh.tensor},     {"ranks_per_node", deck.mesh.per_node}};
  if (deck.mesh.expert > 1) j["mesh"]["expert"] = deck.mesh.expert;
  j["strategy"] = deck.sharding.strategy;
  return j;
}

void require_readable_metadata(const config::Deck& deck, const data::Identity& data,
                               const data::Course& course) {
  constexpr std::size_t of_progress = 1 << 20;  // what grows in a run, hashes of frozen weights: well below
  Progress progress;
  progress.course = course;
  const std::size_t bytes = json_text(to_metadata(progress, deck, data, ""), 2).size();
  REQUIRE(bytes + of_progress <= static_cast<std::size_t>(config::largest_metadata),
          "the deck has {} bytes with its paths written out, which each checkpoint would hold beside the "
          "weights, and at most {} can be read back: name the files of data.train and data.validation by "
          "patterns, such as 'folder/*.bin'",
          bytes, config::largest_metadata - static_cast<std::int64_t>(of_progress));
}

std::string compare_data(const nlohmann::json& metadata, const data::Identity& now,
                         const std::string& checkpoint, TrainingData train) {
  const nlohmann::json &saved = metadata.at("data"), current = to_json(now);
  require_same_hash("tokenizer", saved.at("tokenizer").get<std::string>(), now.tokenizer, checkpoint);
  if (train == TrainingData::same) {
    require_same_hash("chat template", saved.at("chat_template").get<std::string>(), now.chat_template,
                      checkpoint);
    require_same_data(saved.at("train").get<std::string>(), hex(now.train), checkpoint);
    const std::string now_ends = hex(now.ends);
    require_same_data(saved.value("ends", now_ends), now_ends, checkpoint);  // older versions wrote none
  }
  const std::string changed = changed_sets(saved.at("validation"), current.at("validation"));
  if (changed.empty()) return "";
  return fmt::format(
      "note: the validation data differ from those of {} ({}): the best loss so far starts anew\n",
      checkpoint, changed);
}

Restored from_metadata(const nlohmann::json& j, const config::Deck& deck, const data::Identity& data,
                       const std::string& checkpoint) {
  Progress p;
  std::string note;
  config::DeckChanges changes;
  bool other_data = false;
  try {
    p.step = counted(j, "step", most_counted, checkpoint);
    p.samples = counted(j, "samples", most_counted, checkpoint);
    p.optimizer_steps = counted(j, "optimizer_steps", p.step, checkpoint);
    const auto& scaler = j.at("loss_scaler");
    p.loss_scaler = {scaler.at("scale").get<double>(), scaler.at("good_steps").get<std::int64_t>(),
                     scaler.at("hysteresis_left").get<int>()};
    p.skipped_in_a_row = j.value("skipped_in_a_row", 0);
    p.evaluation_failed = j.value("evaluation_failed", false);
    p.proven_step = j.value("proven_step", std::int64_t{-1});
    p.run_steps = j.value("run_steps", std::int64_t{0});
    p.products = {j.value("bf16_products", ""), j.value("fp32_products", "")};
    p.processor = j.value("processor", "");
    p.reference = j.value("reference", "");
    p.course = course_of(j, checkpoint);
    p.earlier = earlier_of(j, checkpoint);
    changes = legal_changes(j, deck, checkpoint);
    require_same_blocks(j.value(blocks_key, ""), deck, checkpoint);
    require_course(
        p.course.sources.empty() ||
            p.course.sources.size() == std::max<std::size_t>(1, changes.before.data.weights.size()),
        checkpoint);
    other_data =
        j.at("data").at("train").get<std::string>() != hex(data.train) || changes.has("data.sequence");
    note = compare_data(j, data, checkpoint, permitted_data(deck, changes));
    require_references(deck, changes, other_data, checkpoint);
    if (note.empty()) note = change_of_evaluations(j, deck, data, checkpoint);
    if (note.empty() && !j.at("best_validation_loss").is_null()) {
      p.best_validation_loss = j.at("best_validation_loss").get<double>();
      p.best_step = j.value("best_step", std::int64_t{-1});
      p.evaluations_without_improvement = j.value("evaluations_without_improvement", std::int64_t{0});
    } else if (!note.empty()) {
      note += note_on_best(j, deck);
    }
    note += change_of_mesh(j, deck, checkpoint) + note_on_weights(j, deck, checkpoint);
  } catch (const nlohmann::json::exception& e) {
    fail("{}: its metadata cannot be read ({}); choose another checkpoint with checkpoint.resume", checkpoint,
         reason_of(e));
  }
  return {p, note, std::move(changes), other_data};
}

void require_same_blocks(const std::string& hash, const config::Deck& deck, const std::string& checkpoint) {
  REQUIRE(
      hash.empty() || hash == hash_of_blocks(deck),
      "sparse_attention.layout: {} has other blocks than when {} was written; put that file back, or begin "
      "a run of its own with model.from",
      deck.sparse_attention.layout, checkpoint);
}

config::Deck deck_of(const nlohmann::json& metadata, const std::string& checkpoint,
                     std::vector<std::string> overrides) {
  REQUIRE(metadata.contains("deck") && metadata.at("deck").is_string(), "{}: its metadata has no deck",
          checkpoint);
  // The dims are in the deck: the folder that they came from may be gone.
  overrides.insert(overrides.end(), {"model.from=", "model.add_tokens=0"});
  return config::parse_deck(metadata.at("deck").get<std::string>(), checkpoint + "/deck", overrides);
}

}  // namespace ztrain::job
