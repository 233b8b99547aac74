#pragma once
// Internal to config. The parts of validate(), and what their messages share. Each throws Error naming the
// keys, where they were given, and what would be legal.

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "config/deck.hpp"
#include "config/validate/faults.hpp"

namespace ztrain::config {

/// Does what validate() does, and adds what it finds to the faults.
void validate(Deck& deck, Faults& faults);

/// Replaces the source of a key in Deck::origins.
void set_source(Deck& deck, std::string_view key, std::string source);

/// Marks a key that others leave without effect; `why` is its source in the resolved deck.
void set_unused(Deck& deck, std::string_view key, std::string why);

/// Returns the place to name in a message about several keys: the first that was given explicitly, or else
/// the deck.
std::string blame(const Deck& deck, std::initializer_list<std::string_view> keys);

/// Returns the divisors of n nearest to x, below and above, as "2 or 4". None is smaller than `least`, which
/// n is not either.
std::string nearest_divisors(std::int64_t n, std::int64_t x, std::int64_t least = 1);

/// Sets keys that were not given to the values of the family, and refuses values that it does not have.
void check_family(Deck& deck);

/// Checks which dtypes go together, the rounding, and what depends on the dtypes: loss scaling and the
/// optimizer's states.
void check_precision(Deck& deck);

void check_data(const Deck& deck);
/// Checks that no list of patterns holds an empty one.
void check_patterns(const Deck& deck);

/// Checks that each entry of checkpoint.override names a key that may change on resume.
void check_overrides(const Deck& deck);

/// Checks that profile.steps is empty, or a first and a last step.
void check_profile(const Deck& deck);

/// Checks that at most one degree is open.
void check_mesh(Deck& deck);

/// Drops a preset's peak if it is not for the parameters' dtype.
void check_cluster(Deck& deck);

}  // namespace ztrain::config
