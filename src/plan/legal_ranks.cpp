#include "plan/legal_ranks.hpp"

#include <algorithm>
#include <string>

#include "base/error.hpp"
#include "config/validate/validate.hpp"
#include "plan/setup.hpp"

namespace ztrain::plan {
namespace {

/// Only cuts of the head look at it, and no vocabulary is as small as a mesh.
constexpr std::int64_t some_vocabulary = 1 << 20;

/// What speaks against so many; "" where nothing does.
std::string refusal(config::Deck deck, int ranks, int ranks_per_node, Target target) {
  try {
    config::validate_for_ranks(deck, ranks, std::min(ranks, ranks_per_node));
    job_spec(deck, target);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

bool fixes_ranks(const config::Mesh& m) {
  return std::min({m.pipeline, m.replicate, m.shard, m.context, m.tensor}) > 0;
}

}  // namespace

int largest_legal_ranks(const config::Deck& given, int most, int ranks_per_node, Target target) {
  config::Deck deck = given;
  if (deck.model.vocab_size == 0) deck.model.vocab_size = some_vocabulary;
  std::string first;
  for (int ranks = most; ranks > 0; --ranks) {
    const std::string why = refusal(deck, ranks, ranks_per_node, target);
    if (why.empty()) return ranks;
    if (first.empty()) first = why;
  }
  fail("{}: no number of ranks up to {} is legal{}. With {}: {}", given.path, most,
       fixes_ranks(given.mesh) ? ": the deck fixes its mesh, each of whose degrees it gives" : "", most,
       first);
}

}  // namespace ztrain::plan
