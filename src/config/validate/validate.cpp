#include "config/validate/validate.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <vector>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "config/fields/fields.hpp"
#include "config/fields/value.hpp"
#include "config/layers.hpp"
#include "config/strategy.hpp"
#include "config/validate/refusals.hpp"
#include "config/validate/validate_rules.hpp"

namespace ztrain::config {
namespace {

/// Most tokens of a run; rows and random numbers are numbered by them.
constexpr std::int64_t most_tokens = std::int64_t{1} << 62;

void check_length(const Deck& deck) {
  struct Length {
    const char* key;
    bool given;
  };
  const std::array lengths{Length{"run.steps", deck.run.steps > 0}, Length{"run.tokens", deck.run.tokens > 0},
                           Length{"run.epochs", deck.run.epochs > 0}};
  std::vector<std::string> given;
  std::string of_file;  // part of the deck's file that would have to be taken back
  for (const auto& l : lengths) {
    if (!l.given) continue;
    const std::string source = source_of(deck, l.key);
    given.push_back(fmt::format("{} ({})", l.key, source));
    if (source != command_line) of_file += fmt::format(" --{}=0", l.key);
  }
  if (given.empty()) refuse(deck, "run.epochs run.steps run.tokens", {{"at", deck.path}});
  if (given.size() == 1) return;
  const bool all_of_file = std::ranges::count(of_file, '=') == std::ssize(given);
  refuse(deck, "run.steps run.tokens run.epochs",
         {{"given", fmt::join(given, " and ")},
          {"way_out", of_file.empty() || all_of_file ? "" : ": here with" + of_file}});
}

void check_model(Deck& deck) {
  Model& m = deck.model;
  if (m.num_key_value_heads == 0) {
    m.num_key_value_heads = m.num_attention_heads;
    set_source(deck, "model.num_key_value_heads", "model.num_attention_heads");
  }
  if (m.num_attention_heads % m.num_key_value_heads != 0)
    refuse(deck, "model.num_key_value_heads model.num_attention_heads",
           {{"legal", nearest_divisors(m.num_attention_heads, m.num_key_value_heads)}});
  if (m.head_dim == 0 && is_latent(m)) {
    m.head_dim = derived_head_dim(m);
    set_source(deck, "model.head_dim", "model.qk_nope_head_dim + model.qk_rope_head_dim");
  }
  if (m.head_dim == 0) {
    if (m.hidden_size % m.num_attention_heads != 0)
      refuse(deck, "model.num_attention_heads model.hidden_size",
             {{"legal", nearest_divisors(m.hidden_size, m.num_attention_heads)}});
    assign(*find_field("model.head_dim"), fmt::to_string(m.hidden_size / m.num_attention_heads), deck,
           blame(deck, {"model.num_attention_heads", "model.hidden_size"}));
    set_source(deck, "model.head_dim", "model.hidden_size / model.num_attention_heads");
  }
}

void check_schedule(const Deck& deck, std::int64_t steps) {
  const optim::Schedule& s = deck.schedule;
  const std::int64_t warmup = optim::warmup_steps(s, steps);
  if (warmup >= steps)
    refuse(deck, "schedule.warmup run.steps run.tokens run.epochs", {{"steps", steps}, {"legal", steps - 1}});
  if (optim::needs_decay(s) && warmup + s.decay > steps)
    refuse(deck, "schedule.decay schedule.warmup run.steps",
           {{"sum", warmup + s.decay}, {"steps", steps}, {"legal", steps - warmup}});
}

}  // namespace

void set_source(Deck& deck, std::string_view key, std::string source) {
  for (auto& origin : deck.origins) {
    if (origin.key == key) origin.source = std::move(source);
  }
}

void set_unused(Deck& deck, std::string_view key, std::string why) {
  set_source(deck, key, std::move(why));
  for (auto& origin : deck.origins) {
    if (origin.key == key) origin.used = false;
  }
}

std::string blame(const Deck& deck, std::initializer_list<std::string_view> keys) {
  for (const auto key : keys) {
    if (is_explicit(deck, key)) return source_of(deck, key);
  }
  return deck.path;
}

std::string nearest_divisors(std::int64_t n, std::int64_t x, std::int64_t least) {
  std::int64_t below = std::min(x, n), above = std::clamp(x, least, n);
  while (below > least && n % below != 0) --below;
  while (above < n && n % above != 0) ++above;
  if (below < least || n % below != 0) below = above;
  return below == above ? fmt::to_string(below) : fmt::format("{} or {}", below, above);
}

void validate(Deck& deck, Faults& faults) {
  using Check = void (*)(Deck&);
  constexpr std::array<Check, 10> checks{
      [](Deck& d) { check_length(d); },    [](Deck& d) { check_family(d); },
      [](Deck& d) { check_model(d); },     [](Deck& d) { check_precision(d); },
      [](Deck& d) { check_mesh(d); },      [](Deck& d) { check_cluster(d); },
      [](Deck& d) { check_patterns(d); },  [](Deck& d) { check_data(d); },
      [](Deck& d) { check_overrides(d); }, [](Deck& d) { check_profile(d); }};
  for (const Check check : checks) faults.attempt_derived([&] { check(deck); });
  for (const Refusal& row : refusals()) faults.attempt_derived([&] { check_refusal(row, deck); });
  const bool length_is_known = deck.batch.global > 0 && (deck.run.steps > 0 || deck.run.tokens > 0);
  if (deck.run.epochs == 0 && length_is_known) faults.attempt_derived([&] { total_steps(deck, 0); });
}

void validate(Deck& deck) {
  Faults faults;
  validate(deck, faults);
  faults.raise();
}

std::int64_t data_parallel_degree(const Deck& deck) {
  return deck.mesh.replicate * deck.mesh.shard;
}

std::int64_t accumulation_steps(const Deck& deck) {
  return deck.batch.global / (deck.batch.micro * data_parallel_degree(deck));
}

std::int64_t tokens_per_step(const Deck& deck) {
  return deck.batch.global * deck.data.sequence;
}

std::int64_t tokens_of(const Deck& deck, std::int64_t samples, const Earlier& earlier) {
  return earlier.tokens + (samples - earlier.samples) * deck.data.sequence;
}

double epochs_of(std::int64_t samples, std::int64_t sequences_per_epoch, const Earlier& earlier) {
  return earlier.epochs +
         static_cast<double>(samples - earlier.samples) / static_cast<double>(sequences_per_epoch);
}

std::int64_t total_steps(const Deck& deck, std::int64_t sequences_per_epoch, const Earlier& earlier) {
  std::int64_t steps = deck.run.steps;
  if (deck.run.tokens > 0) {
    const std::int64_t left = std::max<std::int64_t>(0, deck.run.tokens - earlier.tokens);
    steps = earlier.steps + ceil_div(left, tokens_per_step(deck));
  }
  if (deck.run.epochs > 0) {
    const double left = std::max(0.0, deck.run.epochs - earlier.epochs),
                 sequences = left * static_cast<double>(sequences_per_epoch);
    REQUIRE(sequences <= most_count,
            "{}: run.epochs = {} of {} sequences are more than can be counted; take fewer",
            source_of(deck, "run.epochs"), deck.run.epochs, sequences_per_epoch);
    const std::int64_t more = std::llround(sequences / static_cast<double>(deck.batch.global));
    steps = std::max<std::int64_t>(1, earlier.steps + more);
  }
  check_schedule(deck, steps);
  if (const std::int64_t most = most_tokens / tokens_per_step(deck); steps > most)
    refuse(deck, "run.steps run.tokens run.epochs batch.global data.sequence",
           {{"steps", steps}, {"tokens", tokens_per_step(deck)}, {"legal", most}});
  return steps;
}

std::int64_t reshard_group(const Deck& deck) {
  const std::string& text = deck.sharding.reshard_after_forward;
  return text == "auto" || text == "true" || text == "false" ? 0 : std::stoll(text);
}

bool reshard_after_forward(const Deck& deck) {
  const std::string& text = deck.sharding.reshard_after_forward;
  return text == "auto" ? find_strategy(deck.sharding.strategy).reshard_after_forward : text != "false";
}

bool stochastic_rounding(const Deck& deck) {
  const Precision& p = deck.precision;
  return p.rounding == "auto" ? p.master == DType::bf16 : p.rounding == "stochastic";
}

bool saves_behind_training(const Deck& deck) {
  return deck.checkpoint.async && deck.checkpoint.interval > 0;
}

bool copies_state(const Deck& deck) {
  return saves_behind_training(deck) || deck.checkpoint.memory_copies > 0;
}

bool saves_frozen(const Deck& deck) {
  const bool again = deck.model.from.empty() ? deck.lora.random_base : !deck.model.upcycled;
  return deck.checkpoint.frozen || !again;
}

std::string checkpoint_folder(const Deck& deck) {
  const std::filesystem::path folder =
      deck.checkpoint.folder.empty() ? deck.run.output + "/checkpoints" : deck.checkpoint.folder;
  return std::filesystem::absolute(folder).lexically_normal().string();
}

std::string source_of(const Deck& deck, std::string_view key) {
  for (const auto& origin : deck.origins) {
    if (origin.key == key) return origin.source;
  }
  return "default";
}

bool is_explicit(const Deck& deck, std::string_view key) {
  const std::string source = source_of(deck, key);
  return source.rfind(deck.path + ":", 0) == 0 || source.rfind("command line", 0) == 0;
}

}  // namespace ztrain::config
