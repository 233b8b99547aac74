#include "plan/search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <iterator>

#include "base/error.hpp"
#include "config/validate/validate.hpp"
#include "plan/setup.hpp"

namespace ztrain::plan {

namespace {

/// Those that need less come first.
std::vector<std::vector<std::string>> recompute_modes() {
  return {recompute_overrides("full"), recompute_overrides("selective", 1, R"(["norm", "swiglu"])"),
          recompute_overrides("none")};
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
  return x.mesh == y.mesh && x.micro_batches == y.micro_batches &&
         x.sharding.reduce.every_micro == y.sharding.reduce.every_micro;
}

enum class Outcome : std::uint8_t { refused, too_large, fits };

class SettingSearch {
 public:
  SettingSearch(const Question& question, const Watch& watch)
      : question_(question), watch_(watch), deck_(deck_of(question)) {
    const config::Mesh& m = deck_.mesh;
    deck_degrees_ = {known_degree(m.pipeline), known_degree(m.tensor), known_degree(m.context)};
    divides_ranks_ = question.ranks % deck_degrees_.product() == 0;
    if (divides_ranks_) own_degrees_ = deck_degrees_;
    take(own_degrees_);
    own_ = legal_deck(question);
  }

  Search run(std::size_t most) {
    over_tensor({}, own_degrees_);
    over_experts();
    if (result_.best.empty())
      for (const std::int64_t context : others_of("mesh.context", question_.ranks)) {
        Degrees degrees = own_degrees_;
        degrees.context = context;
        over_tensor({}, degrees);
      }
    if (result_.best.empty()) over_tensor({"sharding.overlap_reduce=false"}, own_degrees_);
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

  /// Of the axes that do not deal sequences.
  struct Degrees {
    std::int64_t pipeline = 1, tensor = 1, context = 1;
    std::int64_t product() const { return pipeline * tensor * context; }
    bool operator==(const Degrees&) const = default;
  };

  void take(Degrees degrees) {
    degrees_ = degrees;
    data_ranks_ = std::max<std::int64_t>(1, question_.ranks / degrees.product());
    shards_of_context_ = degrees.context > 1;
  }

  /// Returns what is tried beside a degree that the deck leaves open, or that divides the ranks as little as
  /// the others do: powers of two, and all divisors of the ranks if the deck's own mesh is not legal.
  std::vector<std::int64_t> others_of(const char* key, std::int64_t most) const {
    std::vector<std::int64_t> degrees;
    const bool open = !divides_ranks_ || config::source_of(deck_, key) == "default";
    for (std::int64_t degree = 2; open && degree <= most; ++degree)
      if (own_ ? std::has_single_bit(static_cast<std::uint64_t>(degree)) : question_.ranks % degree == 0)
        degrees.push_back(degree);
    return degrees;
  }

  /// The deck's degree of mesh.tensor, or several within a node.
  void over_tensor(const std::vector<std::string>& besides, Degrees degrees) {
    std::vector<std::int64_t> tensors{degrees.tensor};
    const std::int64_t node = machine_for(question_, deck_).ranks_per_node;
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
    take(own_degrees_);
    const std::int64_t node = machine_for(question_, deck_).ranks_per_node, experts = deck_.model.num_experts;
    for (const std::int64_t degree : others_of("mesh.expert", std::min(node, experts))) {
      if (experts % degree != 0) continue;
      const std::string over = fmt::format("mesh.expert={}", degree);
      strategies({over});
      if (config::source_of(deck_, "experts.capacity") == "default") strategies({over, "experts.capacity=2"});
    }
  }

  /// Each change that sends something away, and each two that go together.
  void over_offloads() {
    std::vector<Change> away = changes_for(question_);
    std::erase_if(away, std::not_fn(is_offload));
    for (std::size_t i = 0; i < away.size(); ++i) {
      over_tensor(away[i].overrides, own_degrees_);
      for (std::size_t j = i + 1; j < away.size(); ++j) {
        if (!compatible(away[i], away[j])) continue;
        std::vector<std::string> both = away[i].overrides;
        both.insert(both.end(), away[j].overrides.begin(), away[j].overrides.end());
        over_tensor(both, own_degrees_);
      }
    }
  }

  /// A stage is compiled for each rank of the pipeline, so these take longest: a third of what is left is
  /// tried.
  void over_stages() {
    least_left_ = watch_.left() - watch_.left() / 3;
    const std::int64_t most = std::min<std::int64_t>(question_.ranks, deck_.model.num_hidden_layers);
    for (const std::int64_t pipeline : others_of("mesh.pipeline", most)) {
      Degrees degrees = own_degrees_;
      degrees.pipeline = pipeline;
      over_tensor({}, degrees);
    }
  }

  std::vector<std::string> mesh(std::int64_t replicate, std::int64_t shard, std::int64_t micro) const {
    std::vector<std::string> keys{fmt::format("mesh.replicate={}", replicate),
                                  fmt::format("mesh.shard={}", shard)};
    if (degrees_.pipeline != deck_degrees_.pipeline)
      keys.push_back(fmt::format("mesh.pipeline={}", degrees_.pipeline));
    if (degrees_.tensor != deck_degrees_.tensor) {
      keys.push_back(fmt::format("mesh.tensor={}", degrees_.tensor));
      if (deck_.tensor.sequence_parallel && degrees_.tensor > 1) keys.emplace_back("tensor.overlap=true");
    }
    if (degrees_.context != deck_degrees_.context)
      keys.push_back(fmt::format("mesh.context={}", degrees_.context));
    keys.push_back(fmt::format("batch.micro={}", micro));
    return keys;
  }

  void strategies(const std::vector<std::string>& besides) {
    strategy("NO_SHARD", besides);
    std::vector<std::string> names{"zero1", "zero2", "SHARD_GRAD_OP", "FULL_SHARD"};
    if (degrees_.pipeline != own_degrees_.pipeline) names = {"zero1", "FULL_SHARD"};  // the ends of the scale
    if (data_ranks_ > 1 || shards_of_context_)
      for (const std::string& name : names) strategy(name, besides);
  }

  /// From the most sharded mesh to the least; once nothing fits, less sharding does not either.
  void strategy(const std::string& name, const std::vector<std::string>& besides) {
    const bool copies =
        degrees_ == own_degrees_;  // of a layer that is shared, or a stage, they are not tried
    const std::int64_t least = name == "NO_SHARD" || !copies ? data_ranks_ : shards_of_context_ ? 1 : 2;
    for (std::int64_t shard = data_ranks_; shard >= least; --shard)
      if (data_ranks_ % shard == 0 && recomputations(name, besides, shard) == Outcome::too_large) return;
  }

  /// Until one is too large: those that follow need more.
  Outcome recomputations(const std::string& name, const std::vector<std::string>& besides,
                         std::int64_t shard) {
    Outcome best = Outcome::refused;
    for (std::vector<std::string> keys : recompute_modes()) {
      keys.insert(keys.begin(), "sharding.strategy=" + name);
      keys.insert(keys.end(), besides.begin(), besides.end());
      const Outcome outcome = micros(keys, shard);
      best = std::max(best, outcome);
      if (outcome == Outcome::too_large) break;
    }
    return best;
  }

  /// Settings that the deck's other keys contradict are passed over.
  Outcome micros(const std::vector<std::string>& keys, std::int64_t shard) {
    Outcome best = Outcome::refused;
    for (std::int64_t micro = 1; deck_.batch.global % (micro * data_ranks_) == 0; micro *= 2) {
      if (micro > 1 && degrees_.pipeline != own_degrees_.pipeline) return best;  // longer turns, longer waits
      const std::int64_t compiled = degrees_.pipeline;                           // a rank of each stage
      if (watch_.left() - compiled < least_left_) watch_.take_no_more();
      if (watch_.take(compiled) < compiled) return best;
      Setting setting{.overrides = keys, .cost = {}};
      std::ranges::move(mesh(data_ranks_ / shard, shard, micro), std::back_inserter(setting.overrides));
      Trial trial = try_fit(question_, setting.overrides, {.detail = Detail::step, .proven = false});
      if (!trial.legal) continue;
      ++result_.tried;
      watch_.say(fmt::format("{} settings tried, {} fit", result_.tried, result_.best.size()));
      if (!trial.cost) return std::max(best, Outcome::too_large);
      best = Outcome::fits;
      setting.cost = std::move(*trial.cost);
      setting.effect = own_ && sums_alike(*own_, setting.cost.deck) ? Effect::none : Effect::rounding;
      result_.best.push_back(std::move(setting));
    }
    return best;
  }

  void sort() {
    std::ranges::stable_sort(result_.best, {}, [](const Setting& s) { return -s.cost.tokens_per_second(); });
  }

  const Question& question_;
  const Watch& watch_;
  std::int64_t least_left_ = 0;  ///< of the watch's candidates, behind what is searched now
  config::Deck deck_;
  std::optional<config::Deck> own_;  ///< resolved for the ranks; nothing if it does not go together with them
  bool divides_ranks_ = true;        ///< whether the deck's degrees do
  Degrees deck_degrees_, own_degrees_, degrees_;  ///< as given, to begin with, and now
  std::int64_t data_ranks_ = 1;
  bool shards_of_context_ = false;  ///< state is cut over the context axis too
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
