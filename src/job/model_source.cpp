#include "job/model_source.hpp"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/json.hpp"
#include "checkpoint/hf/base_weights.hpp"
#include "config/architectures.hpp"
#include "config/hf/hf_config.hpp"
#include "config/hf/peft_config.hpp"
#include "config/hf/reward_model.hpp"
#include "config/text/load.hpp"
#include "config/text/print.hpp"
#include "files/file.hpp"
#include "job/progress.hpp"
#include "job/require_checkpoint.hpp"

namespace ztrain::job {
namespace {

namespace fs = std::filesystem;

ModelSource open_hugging_face(const std::string& folder, const std::string& base) {
  const std::string path = fs::absolute(folder).lexically_normal().string();
  // The deck has no data: only its model is read.
  config::Deck deck =
      config::parse_deck("", config::hf_config_path(path), config::settings_to_read(path, base));
  const std::string origin = deck.model.origin.empty() ? folder : deck.model.origin;
  return {folder, ModelSource::Kind::hugging_face, std::move(deck), DType::bf16, origin, 0, {}};
}

ModelSource open_checkpoint(const std::string& folder) {
  require_checkpoint(folder);
  const nlohmann::json metadata = checkpoint::read_metadata(folder);
  config::Deck deck = deck_of(metadata, folder);
  // Reading gives what codes say of weights that the run kept in few bits.
  deck.lora.quantization = "none";
  const DType dtype = deck.precision.parameters;
  return {.folder = folder,
          .kind = ModelSource::Kind::checkpoint,
          .deck = std::move(deck),
          .dtype = dtype,
          .origin = metadata.value("model_from", ""),
          .origin_positions = metadata.value("model_positions", std::int64_t{0}),
          .ends = metadata.value(config::ends_key, std::vector<std::int32_t>{}),
          .lacks_frozen = metadata.contains(checkpoint::frozen_key),
          .attention_blocks = metadata.value(blocks_key, "")};
}

ModelSource open_here(const std::string& folder, const std::string& base) {
  const bool described = file_exists(config::hf_config_path(folder)) || config::is_peft_folder(folder),
             saved = file_exists(fs::path(folder) / "index.h5");
  require_checkpoint_or_model(folder);
  ModelSource source = described && !saved ? open_hugging_face(folder, base) : open_checkpoint(folder);
  REQUIRE(base.empty() || source.lacks_frozen || config::is_peft_folder(folder), "{}", unneeded_base(folder));
  return source;
}

std::string to_text(const ModelSource& source) {
  return json_text(nlohmann::json{{"deck", config::resolved_toml(source.deck)},
                                  {"kind", source.kind},
                                  {"dtype", source.dtype},
                                  {"origin", source.origin},
                                  {"origin_positions", source.origin_positions},
                                  {"ends", source.ends},
                                  {"lacks_frozen", source.lacks_frozen},
                                  {blocks_key, source.attention_blocks}});
}

ModelSource from_text(const std::string& text, const std::string& folder) {
  const auto said = parse_json(text);
  return {.folder = folder,
          .kind = said.at("kind"),
          .deck = deck_of(said, folder),
          .dtype = said.at("dtype"),
          .origin = said.at("origin"),
          .origin_positions = said.at("origin_positions"),
          .ends = said.at("ends"),
          .lacks_frozen = said.at("lacks_frozen"),
          .attention_blocks = said.at(blocks_key)};
}

}  // namespace

ModelSource open_model(const runtime::Session& session, const std::string& folder, const std::string& base) {
  const std::string text = session.agree("reading the model", [&] {
    return session.rank() == 0 ? to_text(open_here(folder, base)) : std::string{};
  });
  const std::string said = session.from_rank_0(text);
  ModelSource source = session.agree("reading the model", [&] { return from_text(said, folder); });
  const bool names_base = source.kind == ModelSource::Kind::checkpoint || !base.empty();
  source.base = names_base ? base : source.deck.model.base;
  return source;
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

void read_weights(const runtime::Session& session, const ModelSource& source, const checkpoint::Place& place,
                  std::span<const checkpoint::StateShard> shards, const checkpoint::Progress& progress) {
  checkpoint::Imported imported;
  session.agree("reading the weights", [&] {
    const bool averaged = source.values == checkpoint::WeightValues::averaged;
    REQUIRE(!averaged || source.kind == ModelSource::Kind::checkpoint,
            "--ema: '{}' is no checkpoint of a run and holds no averages; leave it out", source.folder);
    if (source.kind == ModelSource::Kind::hugging_face || source.lacks_frozen || averaged)
      imported =
          checkpoint::import_weights(source.folder, place, shards,
                                     {.architecture = &config::find_architecture(source.deck.model.family),
                                      .progress = progress,
                                      .base = source.base,
                                      .values = source.values});
    else
      checkpoint::load(source.folder, place, shards,
                       {.others = checkpoint::OtherStates::skip, .progress = progress});
  });
  if (imported.base)
    require_same_base(checkpoint::Group::world(), source.folder, place.layout->parameters(), *imported.base);
}

}  // namespace ztrain::job
