#include "plan/search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <iterator>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "base/shape.hpp"
#include "config/validate/validate.hpp"
#include "plan/setup.hpp"

namespace ztrain::plan {

namespace {

constexpr int most_strategies_at_once = 4;  ///< strategies that are tried at the same time: each takes memory

/// Those that need less come first: with long sequences full recomputation of feed-forwards in parts.
std::vector<std::vector<std::string>> recompute_modes(const config::Deck& deck) {
  std::vector<std::vector<std::string>> modes;
  for (const Change& change : changes_for(deck)) {
    if (!is_tiling(change)) continue;
    modes.push_back(recompute_overrides("full"));
    modes.back().push_back(change.overrides.front());
  }
  modes.push_back(recompute_overrides("full"));
  modes.push_back(recompute_overrides("selective", 1, R"(["norm", "swiglu"])"));
  modes.push_back(recompute_overrides("none"));
  return modes;
}

/// Returns nothing if deck and ranks do not go together.
std::optional<config::Deck> legal_deck(const Question& question) {
  try {
    return resolved_deck(question);
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// Which sums a step forms, and in what order, follows from these.
bool sums_alike(const config::Deck& a, const config::Deck& b) {
  const auto [x, y] = std::pair{job_spec(a, build_target()), job_spec(b, build_target())};
  return x.mesh == y.mesh && x.micro_batches == y.micro_batches && x.recompute.tiles == y.recompute.tiles &&
         x.sharding.reduce.every_micro == y.sharding.reduce.every_micro;
}

/// Degrees of the axes that do not deal sequences.
struct Degrees {
  std::int64_t pipeline = 1, tensor = 1, context = 1;
  std::int64_t product() const { return pipeline * tensor * context; }
  bool operator==(const Degrees&) const = default;
};

/// The job and the degrees with which strategies are tried. The references outlive this struct.
struct Meshes {
  const Question& question;
  const Watch& watch;
  config::Deck deck{};
  /// The deck resolved for the ranks; nothing if the deck does not fit their number.
  std::optional<config::Deck> own{};
  Degrees deck_degrees{}, own_degrees{}, degrees{};  ///< the deck's, those of the first try, and those now
  std::int64_t data_ranks = 1;
  bool shards_of_context = false;  ///< state is cut over the context axis too

  /// Whether copies over mesh.replicate are tried: only with the degrees of the first try.
  bool copies() const { return degrees == own_degrees; }
  bool other_stages() const { return degrees.pipeline != own_degrees.pipeline; }
};

enum class Outcome : std::uint8_t { refused, too_large, fits };

/// Tries one strategy with meshes, recomputations and micro-batches.
class StrategySearch {
 public:
  /// At most `candidates` Programs are compiled.
  StrategySearch(const Meshes& meshes, std::int64_t candidates) : m_(meshes), left_(candidates) {}

  /// Goes from the most sharded mesh to the least. Once nothing fits, less sharding does not either.
  void run(const std::string& name, const std::vector<std::string>& besides) {
    const std::int64_t least = name == "NO_SHARD" || !m_.copies() ? m_.data_ranks
                               : m_.shards_of_context             ? 1
                                                                  : 2;
    for (std::int64_t shard = m_.data_ranks; shard >= least; --shard)
      if (m_.data_ranks % shard == 0 && recomputations(name, besides, shard) == Outcome::too_large) return;
  }

  std::vector<Setting> best;  ///< settings that fit
  int tried = 0;
  std::int64_t compiled = 0;  ///< Programs
  bool ran_out = false;       ///< whether candidates or time ended the search before all was tried

 private:
  std::vector<std::string> mesh(std::int64_t replicate, std::int64_t shard, std::int64_t micro) const {
    std::vector<std::string> keys{fmt::format("mesh.replicate={}", replicate),
                                  fmt::format("mesh.shard={}", shard)};
    const Degrees &now = m_.degrees, &given = m_.deck_degrees;
    if (now.pipeline != given.pipeline) keys.push_back(fmt::format("mesh.pipeline={}", now.pipeline));
    if (now.tensor != given.tensor) {
      keys.push_back(fmt::format("mesh.tensor={}", now.tensor));
      if (m_.deck.tensor.sequence_parallel && now.tensor > 1) keys.emplace_back("tensor.overlap=true");
    }
    if (now.context != given.context) keys.push_back(fmt::format("mesh.context={}", now.context));
    keys.push_back(fmt::format("batch.micro={}", micro));
    return keys;
  }

  /// Until one is too large: those that follow need more.
  Outcome recomputations(const std::string& name, const std::vector<std::string>& besides,
                         std::int64_t shard) {
    Outcome reached = Outcome::refused;
    for (std::vector<std::string> keys : recompute_modes(m_.deck)) {
      keys.insert(keys.begin(), "sharding.strategy=" + name);
      keys.insert(keys.end(), besides.begin(), besides.end());
      const Outcome outcome = micros(keys, shard);
      reached = std::max(reached, outcome);
      if (outcome == Outcome::too_large) break;
    }
    return reached;
  }

  /// Settings that the deck's other keys contradict are passed over.
  Outcome micros(const std::vector<std::string>& keys, std::int64_t shard) {
    Outcome reached = Outcome::refused;
    for (std::int64_t micro = 1; m_.deck.batch.global % (micro * m_.data_ranks) == 0; micro *= 2) {
      if (micro > 1 && m_.other_stages()) return reached;  // longer turns, longer waits
      const std::int64_t stages = m_.degrees.pipeline;     // of each, one rank is compiled
      ran_out = ran_out || left_ < compiled + stages || m_.watch.late();
      if (ran_out) return reached;
      compiled += stages;
      Setting setting{.overrides = keys, .cost = {}};
      std::ranges::move(mesh(m_.data_ranks / shard, shard, micro), std::back_inserter(setting.overrides));
      Trial trial = try_fit(m_.question, setting.overrides, {.detail = Detail::step, .proven = false});
      if (!trial.legal) continue;
      ++tried;
      if (!trial.cost) return std::max(reached, Outcome::too_large);
      reached = Outcome::fits;
      setting.cost = std::move(*trial.cost);
      setting.effect = m_.own && sums_alike(*m_.own, setting.cost.deck) ? Effect::none : Effect::rounding;
      best.push_back(std::move(setting));
    }
    return reached;
  }

  const Meshes& m_;
  std::int64_t left_;
};

class SettingSearch {
 public:
  SettingSearch(const Question& question, const Watch& watch)
      : question_(question), watch_(watch), m_{question, watch, deck_of(question)} {
    const config::Mesh& mesh = m_.deck.mesh;
    m_.deck_degrees = {known_degree(mesh.pipeline), known_degree(mesh.tensor), known_degree(mesh.context)};
    divides_ranks_ = question.ranks % m_.deck_degrees.product() == 0;
    if (divides_ranks_) m_.own_degrees = m_.deck_degrees;
    take(m_.own_degrees);
    m_.own = legal_deck(question);
  }

  Search run(std::size_t most) {
    over_tensor({}, m_.own_degrees);
    over_experts();
    if (result_.best.empty())
      for (const std::int64_t context : others_of("mesh.context", question_.ranks)) {
        Degrees degrees = m_.own_degrees;
        degrees.context = context;
        over_tensor({}, degrees);
      }
    if (result_.best.empty()) over_tensor({"sharding.overlap_reduce=false"}, m_.own_degrees);
    if (result_.best.empty()) over_offloads();
    over_stages();
    sort();
    if (result_.best.size() > most) result_.best.resize(most);
    result_.ended = watch_.ended();
    result_.frugal = frugal_overrides(question_);
    result_.least_ranks = least_ranks(question_, result_.frugal, watch_.part(most_sizes));
    if (result_.least_ranks && fits_as_it_is(*result_.least_ranks)) result_.frugal.clear();
    return std::move(result_);
  }

 private:
  /// Whether so many ranks need none of the frugal overrides, which cost time.
  bool fits_as_it_is(const LeastRanks& least) const {
    Question question = question_;
    question.ranks = least.ranks;
    return try_fit(question, least.overrides, {.detail = Detail::memory, .proven = false}).cost.has_value();
  }

  void take(Degrees degrees) {
    m_.degrees = degrees;
    m_.data_ranks = std::max<std::int64_t>(1, question_.ranks / degrees.product());
    m_.shards_of_context = degrees.context > 1;
  }

  /// Returns what is tried beside a degree that the deck leaves open, or that divides the ranks as little as
  /// the others do: powers of two, and all divisors of the ranks if the deck's own mesh is not legal.
  std::vector<std::int64_t> others_of(const char* key, std::int64_t most) const {
    std::vector<std::int64_t> degrees;
    const bool open = !divides_ranks_ || config::source_of(m_.deck, key) == "default";
    for (std::int64_t degree = 2; open && degree <= most; ++degree)
      if (m_.own ? std::has_single_bit(static_cast<std::uint64_t>(degree)) : question_.ranks % degree == 0)
        degrees.push_back(degree);
    return degrees;
  }

  /// The deck's degree of mesh.tensor, or several within a node.
  void over_tensor(const std::vector<std::string>& besides, Degrees degrees) {
    std::vector<std::int64_t> tensors{degrees.tensor};
    const std::int64_t node = machine_for(question_, m_.deck).ranks_per_node;
    for (const std::int64_t degree : others_of("mesh.tensor", std::min<std::int64_t>(node, question_.ranks)))
      tensors.push_back(degree);
    for (const std::int64_t tensor : tensors) {
      degrees.tensor = tensor;
      if (question_.ranks % degrees.product() != 0) continue;
      take(degrees);
      strategies(besides);
    }
  }

  /// Groups of ranks of a node that divide the experts, if there are any, with room for all rows and for two
  /// even shares.
  void over_experts() {
    take(m_.own_degrees);
    const std::int64_t node = machine_for(question_, m_.deck).ranks_per_node,
                       experts = m_.deck.model.num_experts;
    for (const std::int64_t degree : others_of("mesh.expert", std::min(node, experts))) {
      if (experts % degree != 0) continue;
      const std::string over = fmt::format("mesh.expert={}", degree);
      strategies({over});
      if (config::source_of(m_.deck, "experts.capacity") == "default")
        strategies({over, "experts.capacity=2"});
    }
  }

  /// Each change that sends something away, and each two that go together.
  void over_offloads() {
    std::vector<Change> away = changes_for(question_);
    std::erase_if(away, std::not_fn(is_offload));
    for (std::size_t i = 0; i < away.size(); ++i) {
      over_tensor(away[i].overrides, m_.own_degrees);
      for (std::size_t j = i + 1; j < away.size(); ++j) {
        if (!compatible(away[i], away[j])) continue;
        std::vector<std::string> both = away[i].overrides;
        both.insert(both.end(), away[j].overrides.begin(), away[j].overrides.end());
        over_tensor(both, m_.own_degrees);
      }
    }
  }

  /// A stage is compiled for each rank of the pipeline, so these take longest: a third of what is left is
  /// tried.
  void over_stages() {
    least_left_ = watch_.left() - watch_.left() / 3;
    const std::int64_t most = std::min<std::int64_t>(question_.ranks, m_.deck.model.num_hidden_layers);
    for (const std::int64_t pipeline : others_of("mesh.pipeline", most)) {
      Degrees degrees = m_.own_degrees;
      degrees.pipeline = pipeline;
      over_tensor({}, degrees);
    }
  }

  /// Strategies are tried side by side, each with an even share of the candidates that are left.
  void strategies(const std::vector<std::string>& besides) {
    std::vector<std::string> names{"NO_SHARD"};
    if (m_.data_ranks > 1 || m_.shards_of_context)
      names = m_.other_stages()
                  ? std::vector<std::string>{"NO_SHARD", "zero1", "FULL_SHARD"}  // the ends of the scale
                  : std::vector<std::string>{"NO_SHARD", "zero1", "zero2", "SHARD_GRAD_OP", "FULL_SHARD"};
    const auto count = std::ssize(names);
    const std::int64_t share = std::max<std::int64_t>(0, watch_.left() - least_left_) / count;
    std::vector<StrategySearch> found(names.size(), StrategySearch(m_, share));
    in_parallel(
        static_cast<int>(count), [&](int s) { found[at(s)].run(names[at(s)], besides); },
        most_strategies_at_once);
    for (StrategySearch& strategy : found) {
      watch_.take(strategy.compiled);
      if (strategy.ran_out) watch_.leave_some();
      result_.tried += strategy.tried;
      std::ranges::move(strategy.best, std::back_inserter(result_.best));
    }
    watch_.say(fmt::format("{} settings tried, {} fit", result_.tried, result_.best.size()));
  }

  void sort() {
    std::ranges::stable_sort(result_.best, {}, [](const Setting& s) { return -s.cost.tokens_per_second(); });
  }

  const Question& question_;
  const Watch& watch_;
  Meshes m_;
  std::int64_t least_left_ = 0;  ///< of the watch's candidates, behind what is searched now
  bool divides_ranks_ = true;    ///< whether the deck's degrees do
  Search result_;
};

}  // namespace

std::vector<std::string> Search::least_overrides() const {
  std::vector<std::string> all = frugal;
  if (least_ranks) all.insert(all.end(), least_ranks->overrides.begin(), least_ranks->overrides.end());
  return all;
}

Search search_for(const Question& question, const Watch& watch, std::size_t most) {
  return SettingSearch(question, watch).run(most);
}

namespace {

std::vector<Change> ways(const config::Deck& deck) {
  std::vector<Change> changes;
  if (config::accumulation_steps(deck) > 1)
    changes.push_back({{"sharding.gradient_accumulation=no_sync"},
                       Effect::rounding,
                       "gradients are summed over ranks once a step, and are whole until then"});
  if (deck.precision.parameters == DType::bf16 && deck.precision.reduce == DType::f32)
    changes.push_back(
        {{"precision.reduce=bf16"}, Effect::numerics, "gradients travel in bf16, and are added in fp32"});
  return changes;
}

bool reduces(const Cost& cost) {
  return std::ranges::any_of(cost.traffic, [](const TrafficRow& row) {
    return row.bytes > 0 &&
           (row.kind == program::CommKind::reduce_scatter || row.kind == program::CommKind::all_reduce);
  });
}

}  // namespace

std::vector<OtherSums> with_other_sums(const Question& question, const Cost& own) {
  constexpr double worth_a_look = 0.05, worth_saying = 0.98;
  std::vector<OtherSums> found;
  if (own.step.exposed < worth_a_look * own.step.seconds || !reduces(own)) return found;
  if (!verdict_of(own).fits()) return found;  // what makes it fit comes first
  for (Change& change : ways(own.deck)) {
    Trial trial = try_fit(question, change.overrides, {.detail = Detail::step, .proven = false});
    if (trial.cost && trial.cost->step.seconds <= worth_saying * own.step.seconds)
      found.push_back({std::move(change), *std::move(trial.cost)});
  }
  std::ranges::sort(found, {}, [](const OtherSums& x) { return x.cost.step.seconds; });
  return found;
}

}  // namespace ztrain::plan
