// What is asked, as a deck and as the machine that its job is to run on.

#include "config/fields/fields.hpp"
#include "config/text/load.hpp"
#include "plan/cost.hpp"

namespace ztrain::plan {
namespace {

/// Overrides that leave no path in the sections that only a run reads.
std::vector<std::string> without_paths() {
  std::vector<std::string> overrides;
  for (const config::Field& f : config::fields()) {
    const std::string section = f.section();
    if (f.path == config::PathKind::none ||
        (section != "run" && section != "data" && section != "checkpoint"))
      continue;
    const bool list = config::type_name(f) == "list of strings";
    overrides.push_back(f.key + "=" + (list ? "[\"none\"]" : f.standard));
  }
  overrides.emplace_back("data.weights=[]");  // of the files that were there
  return overrides;
}

}  // namespace

config::Deck deck_of(const Question& q, const std::vector<std::string>& more) {
  std::vector<std::string> overrides = q.overrides;
  overrides.insert(overrides.end(), more.begin(), more.end());
  const std::vector<std::string> paths = without_paths();
  overrides.insert(overrides.end(), paths.begin(), paths.end());
  config::Deck deck = config::load_deck(q.deck, overrides, config::Files::elsewhere);
  if (deck.model.vocab_size == 0) deck.model.vocab_size = q.vocabulary;
  return deck;
}

Machine machine_for(const Question& q, const config::Deck& deck) {
  Machine m = machine_of(deck);
  m.ranks_per_node = q.limits.ranks_per_node.value_or(m.ranks_per_node);
  m.device_memory = q.limits.device_memory.value_or(m.device_memory);
  m.device_assumed = m.device_assumed && !q.limits.device_memory;
  // The assumed device's context goes with the device.
  if (m.device_memory <= 0) m.outside_memory = deck.cluster.outside_memory * 1e9;
  m.host_memory = q.limits.host_memory.value_or(m.host_memory);
  m.outside_memory = q.limits.outside_memory.value_or(m.outside_memory);
  m.target = q.limits.target.value_or(m.target);
  return m;
}

Limits limits_of_build(const Question& q) {
  const config::Deck deck = deck_of(q);
  Limits limits = q.limits;
  if (machine_of(deck).target == Target::cpu && deck.cluster.device_memory <= 0) limits.device_memory = 0.0;
  return limits;
}

}  // namespace ztrain::plan
