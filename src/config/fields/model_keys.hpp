#pragma once
// Internal to config. What the rows of architectures' keys (config/architectures.hpp) say of a model: which
// values go with its family, and which ones a family gives.

#include <optional>
#include <string>
#include <string_view>

#include "config/architectures.hpp"
#include "config/fields/fields.hpp"

namespace ztrain::config {

/// Returns whether the key is one of [model] that says what the model is.
bool shapes_model(const Field& field);

/// Return the row with this key of the deck, or this name in config.json; null if there is none.
const ModelKey* find_key(const Architecture& a, std::string_view key);
const ModelKey* find_hf(const Architecture& a, std::string_view hf);

/// Returns the value that 0 stands for in a key such as head_dim, which then follows from other keys; else 0.
double derived(std::string_view key, const Model& model);

/// Returns the value, as TOML, that a deck takes if it does not give the key; "": the key's own default.
std::string family_value(const Architecture& a, const Field& field, const Deck& deck);

/// A key of [model] whose value its family does not have.
struct Misfit {
  std::string key;
  std::string value;
  std::string legal;  ///< legal values for the family, and other families that have the value
};

/// Returns the first misfit, or nothing.
std::optional<Misfit> misfit(const Model& model);

}  // namespace ztrain::config
