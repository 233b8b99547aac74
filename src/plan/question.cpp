// What is asked, as a deck and as the machine that its job is to run on.

#include "config/fields/fields.hpp"
#include "config/text/load.hpp"
#include "config/validate/validate.hpp"
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
  const std::vector<std::string> paths = without_paths();
  const auto load = [&](std::vector<std::string> overrides) {
    overrides.insert(overrides.end(), q.overrides.begin(), q.overrides.end());
    overrides.insert(overrides.end(), more.begin(), more.end());
    overrides.insert(overrides.end(), paths.begin(), paths.end());
    return config::load_deck(q.deck, overrides, config::Files::elsewhere);
  };
  config::Deck deck = load({});
  if (const std::string& machine = q.limits.machine.empty() ? deck.cluster.machine : q.limits.machine;
      !machine.empty()) {
    // Keys that the deck gives stay, but for the preset in whose place the user asks for another machine.
    std::vector<std::string> known = read_rates(machine).cluster;
    std::erase_if(known, [&](const std::string& setting) {
      const std::string key = setting.substr(0, setting.find('='));
      return config::is_explicit(deck, key) && (key != "cluster.preset" || q.limits.machine.empty());
    });
    deck = load(std::move(known));
  }
  if (deck.model.vocab_size == 0) deck.model.vocab_size = q.vocabulary;
  return deck;
}

Machine machine_for(const Question& q, const config::Deck& deck) {
  Machine m = machine_of(deck, q.limits.machine.empty() ? deck.cluster.machine : q.limits.machine, q.ranks);
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
