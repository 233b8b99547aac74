#pragma once
// Reads a deck: defaults, then presets, then the file, then overrides from the command line. The dims of a
// model that model.from names must not contradict what was given.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/deck.hpp"

namespace ztrain::config {

/// Whether to look at the files that a deck names.
enum class Files : std::uint8_t {
  here,
  /// Files may be on the machine that the deck is for. A variable that is not set stays as it is written, and
  /// if the folder of model.from is missing here, model.preset says what the model is.
  elsewhere
};

/// Reads and checks the TOML file at path. An override is "--section.key=value" (the dashes may be left out),
/// with the value as TOML or a bare string. The last of several for one key wins, and all win over the file.
///
/// Expands `${VAR}` in paths. Paths that a run reads become whole: relative to the deck's folder if they
/// stand in the deck, to the working folder if they are overrides. Paths that it writes stay relative to the
/// working folder. run.output is never empty. head_dim and num_key_value_heads are resolved to positive
/// values. vocab_size stays 0 if the data are to give it, and mesh degrees may be -1 until
/// validate_for_ranks. Deck::origins has the source of each key's value.
///
/// Throws Error, with file:line if there is one, for what cannot be read, unknown keys, wrong types, illegal
/// values and contradictions.
Deck load_deck(const std::string& path, const std::vector<std::string>& overrides = {},
               Files files = Files::here);

/// Reads the text of a deck. path is used for messages, for relative paths and for the name of the output.
Deck parse_deck(std::string_view text, const std::string& path,
                const std::vector<std::string>& overrides = {}, Files files = Files::here);

/// Returns a sentence on each path with a variable that is not set, for a deck that was loaded with
/// Files::elsewhere.
std::vector<std::string> notes_on_variables(Deck deck);

}  // namespace ztrain::config
