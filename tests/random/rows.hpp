#pragma once
// The keys of random decks, and the values that each may get. Words are those of the command line.

#include <string_view>
#include <vector>

namespace ztrain::random_decks {

struct Row {
  std::string_view key;
  /// How often a deck has the key, from 0 to 1, among decks that may have it.
  double share;
  std::vector<std::string_view> values;
  /// Only decks that have one of these, "key" or "key=value" with | between them, may have the row's.
  std::string_view needs{};
};

/// Keys that shape numbers: the run on one rank has them too.
const std::vector<Row>& numerics();

/// Keys that say where and when, and change no number but by rounding: the run on one rank has none of them.
/// mesh, batch.global and batch.micro are not among them: they are drawn together.
const std::vector<Row>& placement();

/// Keys that are in no random deck, or the beginning of such keys, up to a point.
const std::vector<std::string_view>& left_out();

}  // namespace ztrain::random_decks
