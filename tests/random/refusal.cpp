#include "tests/random/refusal.hpp"

#include "config/fields/fields.hpp"

namespace ztrain::random_decks {

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
  return refusal.find("defect") == refusal.npos && !key_of(refusal).empty();
}

}  // namespace ztrain::random_decks
