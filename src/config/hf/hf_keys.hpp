#pragma once
// Internal to config. The parts of reading and writing config.json: single keys, the rotary embedding, and
// what differs between layers.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "config/architectures.hpp"
#include "config/fields/fields.hpp"
#include "config/hf/hf_json.hpp"
#include "config/layers.hpp"

namespace ztrain::config {

/// Returns a member, which must be there, as TOML of the field's type.
std::string toml_of(const Members& c, const char* name, const Field& field);
/// Returns a key's value as JSON.
nlohmann::json json_of(const Field& field, const Deck& deck);

/// Reads the rotary embedding: rope_theta and rope_scaling, or rope_parameters as in newer files, which may
/// have one object for each kind of layer. The deck has what single keys say.
void read_rope(const Members& c, const Architecture& a, Deck& deck);
void write_rope(const Architecture& a, const Deck& deck, nlohmann::json& config);
/// Returns whether the key says nothing with the deck's scaling of the rotary embedding.
bool is_of_other_scaling(const std::string& key, const Deck& deck);

/// Reads which layers have a window and a rotary embedding. The deck has what single keys say.
void read_layers(const Members& c, const Architecture& a, Model& model);
void write_layers(const Architecture& a, const Model& model, nlohmann::json& config);

}  // namespace ztrain::config
