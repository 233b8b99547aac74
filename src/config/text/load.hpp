#pragma once
// Reading a deck: defaults, then presets, then the file, then overrides from the command line; the dims of a
// model that model.from names must not contradict what was given.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/deck.hpp"

namespace ztrain::config {

/// Whether the files that a deck names are to be looked at.
enum class Files : std::uint8_t {
  here,
  /// They may be on the machine that the deck is for: a variable that is not set stays as it is written, and
  /// where the folder of model.from is not here, model.preset says what the model is.
  elsewhere
};

/// Reads and checks the TOML file at path. overrides: "--section.key=value" (the dashes may be left out),
/// value as TOML or a bare string; the last of several for one key wins, and all win over the file.
///
/// In paths `${VAR}` is expanded. Those of what a run reads become whole ones: relative to the deck's folder
/// where they stand in the deck, to the working folder where they are overrides. Those of what it writes stay
/// as they are, relative to the working folder; run.output is never empty. head_dim and num_key_value_heads
/// are resolved to positive values; vocab_size stays 0 where the data are to say it, and mesh degrees may be
/// -1 until validate_for_ranks. Deck::origins tells for each key where its value came from.
///
/// Throws Error, with file:line where there is one, for what cannot be read, unknown keys, wrong types,
/// illegal values and contradictions.
Deck load_deck(const std::string& path, const std::vector<std::string>& overrides = {},
               Files files = Files::here);

/// The same for the text of a deck; path is used for messages, for relative paths and for the name of the
/// output.
Deck parse_deck(std::string_view text, const std::string& path,
                const std::vector<std::string>& overrides = {}, Files files = Files::here);

/// Of a deck that was loaded with Files::elsewhere: a sentence on each path with a variable that is not set.
std::vector<std::string> notes_on_variables(Deck deck);

}  // namespace ztrain::config
