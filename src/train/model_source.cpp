#include "train/model_source.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "checkpoint/import.hpp"
#include "config/hf_config.hpp"
#include "config/hf_generation.hpp"
#include "config/load.hpp"
#include "train/progress.hpp"

namespace ztrain::train {
namespace {

namespace fs = std::filesystem;

ModelSource open_hugging_face(const std::string& folder) {
  const std::string path = fs::absolute(folder).lexically_normal().string();
  const config::HfGeneration said = config::hf_generation(path);
  // A deck without data: only its model is read.
  config::Deck deck =
      config::parse_deck("", config::hf_config_path(path),
                         {R"(data.train=["none"])", "batch.global=1", "run.steps=1", "model.from=" + path});
  return {folder,  ModelSource::Kind::hugging_face, std::move(deck), DType::bf16, said.max_positions,
          said.eos};
}

ModelSource open_checkpoint(const std::string& folder) {
  const nlohmann::json metadata = checkpoint::read_metadata(folder);
  config::Deck deck = deck_of(metadata, folder);
  // The special tokens of the model that the run started from, while its folder is there.
  const auto from = metadata.value("model_from", std::string{});
  std::vector<std::int32_t> eos;
  if (!from.empty()) eos = config::hf_generation(from).eos;
  const DType dtype = deck.precision.parameters;
  const std::int64_t sequence = deck.data.sequence;
  return {folder, ModelSource::Kind::checkpoint, std::move(deck), dtype, sequence, std::move(eos)};
}

}  // namespace

ModelSource open_model(const std::string& folder) {
  const bool described = fs::exists(config::hf_config_path(folder)),
             saved = fs::exists(fs::path(folder) / "index.h5");
  return described && !saved ? open_hugging_face(folder) : open_checkpoint(folder);
}

void read_weights(const ModelSource& source, const checkpoint::Place& place,
                  std::span<const checkpoint::StateShard> shards) {
  if (source.kind == ModelSource::Kind::hugging_face)
    checkpoint::import_weights(source.folder, place, shards);
  else
    checkpoint::load(source.folder, place, shards, {.others = checkpoint::OtherStates::skip});
}

}  // namespace ztrain::train
