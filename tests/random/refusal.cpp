#include "tests/random/refusal.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "config/fields/fields.hpp"
#include "config/validate/refusals.hpp"

namespace ztrain::random_decks {
namespace {

/// What no table of keys can have: numbers that diverge, 8-bit moments in a checkpoint of other slices, and
/// patterns that match nothing of a model.
constexpr std::array<std::string_view, 3> beyond_decks{
    "is no linear layer of the model", "every step of the run had gradients that are not finite",
    "blocks of 256 elements do not follow other slices"};

}  // namespace

std::string key_of(const std::string& refusal) {
  std::string first;
  std::size_t place = refusal.npos;
  for (const config::Field& field : config::fields())
    if (const std::size_t at = refusal.find(field.key);
        at < place || (at == place && at != refusal.npos && field.key.size() > first.size())) {
      place = at;
      first = field.key;
    }
  return first;
}

bool is_of_a_deck(const std::string& refusal) {
  const bool beyond = std::ranges::any_of(
      beyond_decks, [&](std::string_view known) { return refusal.find(known) != refusal.npos; });
  return !key_of(refusal).empty() && (beyond || config::refusal_of(refusal) != nullptr);
}

}  // namespace ztrain::random_decks
