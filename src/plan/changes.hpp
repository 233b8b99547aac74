#pragma once
// Changes of a deck that save memory, as one table.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/deck.hpp"

namespace ztrain::plan {

/// What a change does to the numbers that training computes.
enum class Effect : std::uint8_t {
  none,      ///< not a bit
  rounding,  ///< sums are formed in another order
  numerics   ///< other precision
};
std::string_view name_of(Effect effect);

struct Change {
  std::vector<std::string> overrides;  ///< "section.key=value"
  Effect effect = Effect::none;
  std::string reason;
  bool frugal = false;  ///< one of those that together need least memory without touching numerics
};

/// All keys of [recompute]: a mode is refused beside the pieces, or the distance, of another.
std::vector<std::string> recompute_overrides(std::string_view mode, int every = 1,
                                             std::string_view pieces = "[]");

/// The rows of the table that would change this deck, which need not be resolved for ranks.
std::vector<Change> changes_for(const config::Deck& deck);

/// It sends something to the host.
bool is_offload(const Change& change);

/// It sets recompute.tiles, which some ops refuse when they are compiled.
bool is_tiling(const Change& change);

/// True where the two set no key in common.
bool compatible(const Change& a, const Change& b);

/// "--section.key=value --section.key=value", quoted for a shell where needed
std::string command_line(const std::vector<std::string>& overrides);

}  // namespace ztrain::plan
