#pragma once
// Writes the ids of special tokens into the files of an exported model. The tokens that end a text are those
// of the model that the weights come from, and those that the run's data end with besides.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "config/deck.hpp"

namespace ztrain::config {

/// Sets eos_token_id of config.json: Model::ends if Model::from names no model that can be read, else what
/// `original`, its config.json, says, followed by the tokens of Model::ends that Model::from does not list.
/// Other ids are those of `original`. Ids that nobody says are null without an `original`, because
/// transformers has others for missing ones, and missing with one, because transformers reads it the same
/// way.
void write_special_tokens(const Model& model, const nlohmann::json* original, nlohmann::json& config);

/// Returns the text of generation_config.json. If Model::from has one, it is the text `own`, with the tokens
/// of Model::ends that Model::from does not list added to eos_token_id. Otherwise it holds the ids that
/// `config`, the export's config.json, says; "" if there are none.
std::string generation_config(const Model& model, const std::string& config,
                              const std::optional<std::string>& own);

}  // namespace ztrain::config
