// Decks: every field with every kind of value, and TOML that is broken.

#include <fmt/format.h>
#include <sys/stat.h>

#include <cmath>
#include <limits>

#include "bytes.hpp"
#include "case.hpp"
#include "config/fields/value.hpp"
#include "config/text/load.hpp"
#include "config/text/print.hpp"
#include "config/validate/validate.hpp"
#include "deck_values.hpp"

namespace ztrain::damaged_files {
namespace {

namespace fs = std::filesystem;

const config::Field& some_field(Random& random) {
  return random.pick(config::fields());
}

std::string value_for(const config::Field& field, Random& random) {
  return random.one_in(3) ? absurd_value(field, random) : plausible_value(field, random);
}

/// Text that is hard on a parser of TOML.
std::string hard_text(Random& random) {
  const auto repeated = [](const std::string& part, std::size_t times) {
    std::string text;
    for (std::size_t i = 0; i < times; ++i) text += part;
    return text;
  };
  const std::size_t times = std::size_t{1} << random.below(17);
  switch (random.below(9)) {
    case 0:
      return "a" + repeated(".a", times) + " = 1\n";
    case 1:
      return "[a" + repeated(".a", times) + "]\n";
    case 2:
      return "a = " + repeated("[", times) + repeated("]", times) + "\n";
    case 3:
      return "a = " + repeated("{a = ", times) + "1" + repeated("}", times) + "\n";
    case 4:
      return repeated("[[a]]\n", times);
    case 5:
      return "\"" + repeated("\\u001b[31m", 1 + times % 1000) + "\" = 1\n";
    case 6:
      return "[\"\\u0007x\"]\nb = 1\n";
    case 7:
      return "[run." + repeated("x", times) + "]\n";
    default:
      return "run.steps = 1\n[run]\nsteps = 2\n";
  }
}

std::string changed_text(std::string text, Case& c) {
  const std::size_t kind = c.random.below(4);
  if (kind < 2) {
    c.changed("deck.toml: " + damage(text, c.random));
    return text;
  }
  const std::string hard = hard_text(c.random);
  c.changed(fmt::format("deck.toml: {} bytes more: {}", hard.size(), hard.substr(0, 60)));
  return kind == 2 ? hard + text : text + hard;
}

/// What a run with this deck does takes no time.
bool is_short(const config::Deck& d) {
  const config::Model& m = d.model;
  return m.hidden_size <= 64 && m.intermediate_size <= 256 && m.num_hidden_layers <= 4 &&
         m.vocab_size <= 300 && m.num_attention_heads <= 8 && m.head_dim <= 64 && d.data.sequence <= 64 &&
         d.batch.global <= 8 && d.run.steps > 0 && d.run.steps <= 8 && d.lora.rank <= 16;
}

/// A deck that was accepted says what its keys say, and its numbers are legal.
void judge_deck(Case& c, const Words& overrides) {
  const config::Deck deck = config::load_deck("deck.toml", overrides, config::Files::elsewhere);
  for (const auto& field : config::fields()) {
    const auto& legal = field.legal;
    double value = 0;
    config::Deck copy = deck;
    if (const auto* integer = std::get_if<std::int64_t& (*)(config::Deck&)>(&field.access))
      value = static_cast<double>((*integer)(copy));
    else if (const auto* number = std::get_if<double& (*)(config::Deck&)>(&field.access))
      value = (*number)(copy);
    else
      continue;
    const bool inside = value >= legal.least && value <= legal.most &&
                        !(legal.open_least && value == legal.least) &&
                        !(legal.open_most && value == legal.most);
    if (!std::isfinite(value) || (!inside && !(legal.minus_one && value == -1)))
      c.found(fmt::format("accepts a deck with {} out of its range", field.key), fmt::format("{}", value));
  }
  const std::string text = config::resolved_toml(deck);
  const config::Deck again =
      config::parse_deck(text, fs::absolute("deck.toml"), {}, config::Files::elsewhere);
  for (const auto& field : config::fields())
    if (config::render(field, deck) != config::render(field, again))
      c.found(fmt::format("prints a resolved deck that is another: {}", field.key),
              config::render(field, deck) + " is " + config::render(field, again));
  if (config::tokens_per_step(deck) <= 0) c.found("accepts a deck of no tokens a step");
}

/// A deck with a few fields changed, in the file or on the command line.
Words change_fields(Case& c, DeckKeys& keys) {
  Words overrides;
  for (std::size_t i = 0, n = 1 + c.random.below(3); i < n; ++i) {
    const config::Field& field = some_field(c.random);
    const std::string value = value_for(field, c.random);
    const bool outside = c.random.one_in(4);
    c.changed(
        fmt::format("{} = {}{}", field.key, value.substr(0, 80), outside ? " on the command line" : ""));
    if (outside)
      overrides.push_back(fmt::format("--{}={}", field.key, value));
    else
      keys.emplace_back(field.key, value);
  }
  return overrides;
}

}  // namespace

void make_deck(Case& c) {
  write_bytes(c.folder / "text.txt", sound_text());
  fs::create_directory(c.folder / "folder");
  write_bytes(c.folder / "deck.toml", toml_of(small_deck()));
  c.run({"check", "deck.toml", "--ranks", "1"});
  judge_deck(c, {});
}

void attack_deck(Case& c) {
  c.copy("deck");
  ::mkfifo("fifo", 0600);
  fs::create_symlink("loop", "loop");
  DeckKeys keys = small_deck();
  Words overrides;
  if (c.random.one_in(4)) {
    write_bytes("deck.toml", changed_text(toml_of(keys), c));
  } else {
    overrides = change_fields(c, keys);
    write_bytes("deck.toml", toml_of(keys));
    if (c.random.one_in(20)) c.changed(replace_file("deck.toml", {}, c.random));
  }
  const auto with = [&](Words words) {
    words.insert(words.end(), overrides.begin(), overrides.end());
    return words;
  };
  const std::string ranks = fmt::format("{}", std::size_t{1} << c.random.below(4));
  switch (c.random.below(5)) {
    case 0:
      c.run(with({"plan", "deck.toml", "--ranks", ranks}));  // which leaves out what costs nothing
      return;
    case 1:
      if (!c.run(with({"check", "deck.toml", "--ranks", ranks})).accepted) return;
      break;
    case 2:
      if (!c.run(with({"check", "deck.toml", "--without-files"})).accepted) return;
      break;
    default:
      if (!c.run(with({"check", "deck.toml"})).accepted) return;
  }
  judge_deck(c, overrides);
  if (!c.random.one_in(3) || !is_short(config::load_deck("deck.toml", overrides, config::Files::elsewhere)))
    return;
  overrides.emplace_back("--run.max_minutes=0.01");
  c.run(with({"deck.toml"}));
}

}  // namespace ztrain::damaged_files
