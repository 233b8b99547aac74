#include "generate/model_source.hpp"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/json.hpp"
#include "checkpoint/hf/import.hpp"
#include "config/architectures.hpp"
#include "config/hf/hf_config.hpp"
#include "config/text/load.hpp"
#include "config/text/print.hpp"
#include "files/file.hpp"
#include "job/progress.hpp"
#include "job/require_checkpoint.hpp"

namespace ztrain::generate {
namespace {

namespace fs = std::filesystem;

ModelSource open_hugging_face(const std::string& folder) {
  const std::string path = fs::absolute(folder).lexically_normal().string();
  // The deck has no data: only its model is read.
  config::Deck deck = config::parse_deck(
      "", config::hf_config_path(path),
      {R"(data.train=["none"])", "data.sequence=1", "batch.global=1", "run.steps=1", "model.from=" + path});
  return {folder, ModelSource::Kind::hugging_face, std::move(deck), DType::bf16, folder, 0, {}};
}

ModelSource open_checkpoint(const std::string& folder) {
  job::require_checkpoint(folder);
  const nlohmann::json metadata = checkpoint::read_metadata(folder);
  config::Deck deck = job::deck_of(metadata, folder);
  const DType dtype = deck.precision.parameters;
  return {folder,
          ModelSource::Kind::checkpoint,
          std::move(deck),
          dtype,
          metadata.value("model_from", ""),
          metadata.value("model_positions", std::int64_t{0}),
          metadata.value(config::ends_key, std::vector<std::int32_t>{})};
}

ModelSource open_here(const std::string& folder) {
  const bool described = file_exists(config::hf_config_path(folder)),
             saved = file_exists(fs::path(folder) / "index.h5");
  job::require_checkpoint_or_model(folder);
  return described && !saved ? open_hugging_face(folder) : open_checkpoint(folder);
}

std::string to_text(const ModelSource& source) {
  return json_text(nlohmann::json{{"deck", config::resolved_toml(source.deck)},
                                  {"kind", source.kind},
                                  {"dtype", source.dtype},
                                  {"origin", source.origin},
                                  {"origin_positions", source.origin_positions},
                                  {"ends", source.ends}});
}

ModelSource from_text(const std::string& text, const std::string& folder) {
  const auto said = parse_json(text);
  return {folder,           said.at("kind"),   job::deck_of(said, folder),
          said.at("dtype"), said.at("origin"), said.at("origin_positions"),
          said.at("ends")};
}

}  // namespace

ModelSource open_model(const runtime::Session& session, const std::string& folder) {
  const std::string text = session.agree(
      "reading the model", [&] { return session.rank() == 0 ? to_text(open_here(folder)) : std::string{}; });
  const std::string said = session.from_rank_0(text);
  return session.agree("reading the model", [&] { return from_text(said, folder); });
}

Context context_of(const ModelSource& source) {
  Context context{source.origin_positions, "max_position_embeddings of the model that the run started from"};
  if (context.positions == 0 && !source.origin.empty())
    context = {config::hf_positions(source.origin),
               "max_position_embeddings of " + config::hf_config_path(source.origin)};
  const bool saved = source.kind == ModelSource::Kind::checkpoint;
  if (const std::int64_t made = source.deck.model.max_position_embeddings; saved && made > context.positions)
    context = {made, "model.max_position_embeddings of the run"};
  const std::int64_t trained = source.deck.data.sequence;
  if (saved && trained > context.positions) context = {trained, "data.sequence of the run"};
  return context;
}

std::vector<std::int32_t> eos_of(const ModelSource& source) {
  auto ends = source.origin.empty() ? std::vector<std::int32_t>{} : config::hf_eos(source.origin);
  for (const std::int32_t end : source.ends)
    if (std::ranges::count(ends, end) == 0) ends.push_back(end);
  return ends;
}

void read_weights(const ModelSource& source, const checkpoint::Place& place,
                  std::span<const checkpoint::StateShard> shards, const checkpoint::Progress& progress) {
  if (source.kind == ModelSource::Kind::hugging_face)
    checkpoint::import_weights(
        source.folder, place, shards,
        {.architecture = &config::find_architecture(source.deck.model.family), .progress = progress});
  else
    checkpoint::load(source.folder, place, shards,
                     {.others = checkpoint::OtherStates::skip, .progress = progress});
}

}  // namespace ztrain::generate
