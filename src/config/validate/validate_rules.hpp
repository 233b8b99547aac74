#pragma once
// Internal to config: the parts of validate(), and what their messages share. Each throws Error naming the
// keys, where they were given, and what would be legal.

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "config/deck.hpp"
#include "config/validate/faults.hpp"

namespace ztrain::config {

/// validate(), with what it finds added to the faults.
void validate(Deck& deck, Faults& faults);

/// Replaces what Deck::origins says of a key.
void set_source(Deck& deck, std::string_view key, std::string source);

/// Marks a key that the others leave without effect; why: a source for the resolved deck.
void set_unused(Deck& deck, std::string_view key, std::string why);

/// The place to name in a message about several keys: the first that was given explicitly, or else the deck.
std::string blame(const Deck& deck, std::initializer_list<std::string_view> keys);

/// Divisors of n nearest to x, below and above: "2 or 4". None is smaller than `least`, which n is not.
std::string nearest_divisors(std::int64_t n, std::int64_t x, std::int64_t least = 1);

/// Gives the keys that the family decides their values, where they were not given, and refuses what it does
/// not have.
void check_family(Deck& deck);

/// Which dtypes go together, the rounding, and what depends on the dtypes: loss scaling, the optimizer's
/// states.
void check_precision(Deck& deck);

void check_data(const Deck& deck);
/// No list of patterns holds an empty one.
void check_patterns(const Deck& deck);

/// At most one degree is open.
void check_mesh(Deck& deck);

/// Also drops a preset's peak where it is not that of the parameters' dtype.
void check_cluster(Deck& deck);

}  // namespace ztrain::config
