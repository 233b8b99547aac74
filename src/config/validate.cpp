#include "config/validate.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "config/value.hpp"

namespace ztrain::config {
namespace {

void set_source(Deck& deck, std::string_view key, std::string source) {
  for (auto& origin : deck.origins) {
    if (origin.key == key) origin.source = std::move(source);
  }
}

/// The place to name in a message about several keys: the first that was given explicitly, or else the deck.
std::string blame(const Deck& deck, std::initializer_list<std::string_view> keys) {
  for (const auto key : keys) {
    if (is_explicit(deck, key)) return source_of(deck, key);
  }
  return deck.path;
}

void check_length(const Deck& deck) {
  struct Length {
    const char* key;
    bool given;
  };
  const std::array lengths{Length{"run.steps", deck.run.steps > 0}, Length{"run.tokens", deck.run.tokens > 0},
                           Length{"run.epochs", deck.run.epochs > 0}};
  std::vector<std::string> given;
  for (const auto& l : lengths) {
    if (l.given) given.push_back(fmt::format("{} ({})", l.key, source_of(deck, l.key)));
  }
  REQUIRE(!given.empty(),
          "{}: the length of the run is missing; give one of run.steps, run.tokens, run.epochs", deck.path);
  REQUIRE(given.size() == 1,
          "{} contradict each other; give exactly one of run.steps, run.tokens, run.epochs",
          fmt::join(given, " and "));
}

/// Divisors of n nearest to x, below and above.
std::string nearest_divisors(std::int64_t n, std::int64_t x) {
  std::int64_t below = std::min(x, n), above = std::min(x, n);
  while (below > 1 && n % below != 0) --below;
  while (above < n && n % above != 0) ++above;
  return below == above ? fmt::to_string(below) : fmt::format("{} or {}", below, above);
}

void check_model(Deck& deck) {
  Model& m = deck.model;
  if (m.num_key_value_heads == 0) {
    m.num_key_value_heads = m.num_attention_heads;
    set_source(deck, "model.num_key_value_heads", "model.num_attention_heads");
  }
  REQUIRE(
      m.num_attention_heads % m.num_key_value_heads == 0,
      "{}: model.num_key_value_heads ({}) does not divide model.num_attention_heads ({}); nearest legal: {}",
      blame(deck, {"model.num_key_value_heads", "model.num_attention_heads"}), m.num_key_value_heads,
      m.num_attention_heads, nearest_divisors(m.num_attention_heads, m.num_key_value_heads));
  if (m.head_dim == 0) {
    REQUIRE(m.hidden_size % m.num_attention_heads == 0,
            "{}: model.num_attention_heads ({}) does not divide model.hidden_size ({}); nearest legal: {}, "
            "or give "
            "model.head_dim",
            blame(deck, {"model.num_attention_heads", "model.hidden_size"}), m.num_attention_heads,
            m.hidden_size, nearest_divisors(m.hidden_size, m.num_attention_heads));
    m.head_dim = m.hidden_size / m.num_attention_heads;
    set_source(deck, "model.head_dim", "model.hidden_size / model.num_attention_heads");
  }
  REQUIRE(m.head_dim % 2 == 0,
          "{}: model.head_dim ({}) is odd; rotary embedding turns pairs: nearest legal: {}",
          blame(deck, {"model.head_dim", "model.num_attention_heads", "model.hidden_size"}), m.head_dim,
          m.head_dim + 1);
  REQUIRE(m.rope_scaling != "llama3" || m.rope_high_freq_factor > m.rope_low_freq_factor,
          "{}: model.rope_high_freq_factor ({}) must be above model.rope_low_freq_factor ({})",
          blame(deck, {"model.rope_high_freq_factor", "model.rope_low_freq_factor", "model.rope_scaling"}),
          m.rope_high_freq_factor, m.rope_low_freq_factor);
}

void check_precision(const Deck& deck) {
  const Precision& p = deck.precision;
  const std::array all{p.parameters, p.gradients, p.reduce, p.master, p.moments};
  const auto doubles = std::count(all.begin(), all.end(), DType::f64);
  REQUIRE(doubles == 0 || doubles == static_cast<std::ptrdiff_t>(all.size()),
          "{}: fp64 is legal for all five dtypes of [precision] together only; {} of them {} fp64: write "
          "precision.preset = \"fp64\" alone",
          blame(deck, {"precision.parameters", "precision.gradients", "precision.reduce", "precision.master",
                       "precision.moments", "precision.preset"}),
          doubles, doubles == 1 ? "is" : "are");
  const bool mixed =
      std::count(all.begin(), all.end(), DType::f32) != static_cast<std::ptrdiff_t>(all.size());
  REQUIRE(
      p.parameters != DType::f32 || !mixed ||
          (p.gradients == DType::f32 && p.master == DType::f32 && p.moments == DType::f32),
      "{}: fp32 parameters go with fp32 gradients, master and moments (reduce may be bf16); for 16-bit state "
      "write "
      "precision.parameters = \"bf16\"",
      blame(deck, {"precision.gradients", "precision.master", "precision.moments", "precision.parameters"}));
}

void check_schedule(const Deck& deck, std::int64_t steps) {
  const Schedule& s = deck.schedule;
  REQUIRE(s.warmup < steps, "{}: schedule.warmup ({}) is not below the run's {} steps; nearest legal: {}",
          blame(deck, {"schedule.warmup", "run.steps", "run.tokens", "run.epochs"}), s.warmup, steps,
          steps - 1);
  if (s.name != "wsd") return;
  REQUIRE(s.decay > 0, "{}: schedule.name = \"wsd\" needs schedule.decay, the steps of its final decay",
          source_of(deck, "schedule.name"));
  REQUIRE(s.warmup + s.decay <= steps,
          "{}: schedule.warmup ({}) + schedule.decay ({}) = {} exceeds the run's {} steps; nearest legal "
          "decay: {}",
          blame(deck, {"schedule.decay", "schedule.warmup", "run.steps"}), s.warmup, s.decay,
          s.warmup + s.decay, steps, steps - s.warmup);
}

struct AxisDegree {
  const char* key;
  std::int64_t& degree;
};
std::array<AxisDegree, 5> axes(Mesh& mesh) {
  return {AxisDegree{"mesh.pipeline", mesh.pipeline}, AxisDegree{"mesh.replicate", mesh.replicate},
          AxisDegree{"mesh.shard", mesh.shard}, AxisDegree{"mesh.context", mesh.context},
          AxisDegree{"mesh.tensor", mesh.tensor}};
}

void check_mesh(Deck& deck) {
  std::vector<std::string> open;
  for (const auto& axis : axes(deck.mesh)) {
    if (axis.degree == -1) open.push_back(fmt::format("{} ({})", axis.key, source_of(deck, axis.key)));
  }
  // mesh.shard is -1 by default: it yields to another degree that was given as -1.
  if (open.size() == 2 && deck.mesh.shard == -1 && !is_explicit(deck, "mesh.shard")) {
    deck.mesh.shard = 1;
    set_source(deck, "mesh.shard", "another degree is -1");
    return;
  }
  REQUIRE(open.size() < 2, "{} are both -1; at most one degree of the mesh may be", fmt::join(open, " and "));
}

std::string mesh_equation(Deck& deck) {
  std::vector<std::string> factors;
  for (const auto& axis : axes(deck.mesh)) factors.push_back(fmt::format("{} ({})", axis.key, axis.degree));
  return fmt::format("{}", fmt::join(factors, " x "));
}

/// HYBRID_SHARD in a deck that leaves shard or replicate open: shards stay within a node, copies fill the
/// rest.
void place_hybrid(Deck& deck, int ranks, int ranks_per_node) {
  const bool replicate_given = is_explicit(deck, "mesh.replicate") && deck.mesh.replicate != -1;
  if (deck.sharding.strategy != "HYBRID_SHARD" || replicate_given) return;
  if (!is_explicit(deck, "mesh.shard")) {
    const auto given = static_cast<int>(deck.cluster.ranks_per_node);
    const int per_node = std::min(given > 0 ? given : ranks_per_node, ranks);
    REQUIRE(per_node > 0 && ranks % per_node == 0,
            "sharding.strategy = HYBRID_SHARD ({}): {} ranks are not whole nodes of {}; give mesh.shard, a "
            "divisor of "
            "{}: {}",
            source_of(deck, "sharding.strategy"), ranks, per_node, ranks,
            nearest_divisors(ranks, std::max(per_node, 1)));
    deck.mesh.shard = per_node;
    set_source(deck, "mesh.shard", fmt::format("HYBRID_SHARD, {} ranks per node", per_node));
  }
  const auto all = axes(deck.mesh);
  if (std::none_of(all.begin(), all.end(), [](const AxisDegree& a) { return a.degree == -1; })) {
    deck.mesh.replicate = -1;
  }
}

void resolve_mesh(Deck& deck, int ranks) {
  const std::string equation = mesh_equation(deck);
  const AxisDegree* open = nullptr;
  std::int64_t product = 1;
  const auto all = axes(deck.mesh);
  for (const auto& axis : all) {
    if (axis.degree == -1)
      open = &axis;
    else
      product *= axis.degree;
  }
  if (open != nullptr) {
    REQUIRE(ranks % product == 0,
            "{}: {} = -1 cannot be resolved: the other degrees of {} multiply to {}, which does not divide "
            "the job's {} "
            "ranks; nearest legal numbers of ranks: {} or {}",
            source_of(deck, open->key), open->key, equation, product, ranks,
            std::max(product, ranks / product * product), round_up(ranks, product));
    open->degree = ranks / product;
    set_source(deck, open->key, fmt::format("{} ranks / {}", ranks, product));
    return;
  }
  REQUIRE(product == ranks,
          "{} = {}, but the job has {} ranks: launch {}, or set one degree to -1 and it becomes what is left",
          equation, product, ranks, product);
}

void check_supported_axes(Deck& deck) {
  for (const auto& axis : axes(deck.mesh)) {
    const std::string name = std::string(axis.key).substr(5);
    if (name == "replicate" || name == "shard") continue;
    REQUIRE(
        axis.degree == 1,
        "{}: {} = {}: this version does not train over the {} axis yet; nearest legal: 1 (use mesh.shard and "
        "mesh.replicate)",
        source_of(deck, axis.key), axis.key, axis.degree, name);
  }
}

void check_batch(const Deck& deck) {
  const std::int64_t per_micro = deck.batch.micro * data_parallel_degree(deck);
  if (deck.batch.global % per_micro == 0) return;
  const std::int64_t below = deck.batch.global / per_micro * per_micro, above = below + per_micro;
  const std::string legal =
      below > 0 ? fmt::format("values {} or {}", below, above) : fmt::format("value {}", above);
  fail(
      "{}: batch.global ({}) = batch.micro ({}) x data-parallel ranks ({}) x accumulation ({:.4g}): the "
      "accumulation "
      "must be whole; nearest legal {}",
      source_of(deck, "batch.global"), deck.batch.global, deck.batch.micro, data_parallel_degree(deck),
      static_cast<double>(deck.batch.global) / static_cast<double>(per_micro), legal);
}

}  // namespace

void validate(Deck& deck) {
  check_length(deck);
  check_model(deck);
  check_precision(deck);
  check_mesh(deck);
  REQUIRE(!deck.data.train.empty(), "{}: data.train is empty; name files or patterns",
          source_of(deck, "data.train"));
  REQUIRE(deck.evaluation.interval == 0 || !deck.data.validation.empty() || deck.data.validation_fraction > 0,
          "{}: evaluation.interval = {} needs validation data: give data.validation, or a "
          "data.validation_fraction above 0",
          source_of(deck, "evaluation.interval"), deck.evaluation.interval);
  if (deck.run.epochs == 0) check_schedule(deck, total_steps(deck, 0));
}

void validate_for_ranks(Deck& deck, int ranks, int ranks_per_node) {
  REQUIRE(ranks > 0, "a job needs at least one rank, not {}", ranks);
  check_supported_axes(deck);
  place_hybrid(deck, ranks, ranks_per_node);
  resolve_mesh(deck, ranks);
  check_batch(deck);
  for (std::size_t i = 0; i < deck.origins.size(); ++i) deck.origins[i].value = render(fields()[i], deck);
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

std::int64_t total_steps(const Deck& deck, std::int64_t sequences_per_epoch) {
  std::int64_t steps = deck.run.steps;
  if (deck.run.tokens > 0) steps = ceil_div(deck.run.tokens, tokens_per_step(deck));
  if (deck.run.epochs > 0) {
    const double sequences = deck.run.epochs * static_cast<double>(sequences_per_epoch);
    steps = std::max<std::int64_t>(1, std::llround(sequences / static_cast<double>(deck.batch.global)));
  }
  check_schedule(deck, steps);
  return steps;
}

std::string checkpoint_folder(const Deck& deck) {
  return deck.checkpoint.folder.empty() ? deck.run.output + "/checkpoints" : deck.checkpoint.folder;
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
