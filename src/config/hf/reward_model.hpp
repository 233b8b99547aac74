#pragma once
// Reward models as transformers keep them: a model whose head gives one number in place of words
// (...ForSequenceClassification with num_labels = 1). preference.loss_type = "reward" trains them.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "config/architectures.hpp"
#include "config/deck.hpp"

namespace ztrain::config {

/// Name of the head's weight in the files of reward models.
inline constexpr const char* score_weight = "score.weight";

/// Returns the class of an architecture's reward models, such as LlamaForSequenceClassification; "" if
/// transformers has none.
std::string reward_class(const Architecture& architecture);

/// Returns whether a folder's config.json describes a reward model, or its adapter_config.json the adapters
/// of one. Throws Error, naming file and key, for a classifier of another kind, and for one whose answers end
/// with its padding: transformers then reads the value of the token before the end, and ztrain that of the
/// end.
bool is_reward_folder(const std::string& folder);

/// Returns the words of a command line that make a deck without data, from which the model of a folder is
/// read: Hugging Face's, or PEFT's with its base ("": the one that it names).
std::vector<std::string> settings_to_read(const std::string& folder, const std::string& base);

/// Writes what makes a config.json that of a reward model. A pad_token_id that ends answers becomes null,
/// since transformers would read the value of the token before it. Throws Error if transformers has no such
/// class.
void write_reward_head(const Architecture& architecture, const Model& model, nlohmann::json& config);

}  // namespace ztrain::config
