#include "plan/search.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "plan/setup.hpp"

namespace ztrain::plan {
namespace {

/// Those that need less come first.
const std::vector<std::vector<std::string>>& recompute_modes() {
  static const std::vector<std::vector<std::string>> modes{
      recompute_overrides("full"), recompute_overrides("selective", 1, R"(["norm", "swiglu"])"),
      recompute_overrides("none")};
  return modes;
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
    std::int64_t others = 1;
    for (const std::int64_t degree : {m.pipeline, m.context, m.tensor})
      others *= std::max<std::int64_t>(1, degree);
    data_ranks_ = std::max<std::int64_t>(1, question.ranks / others);
    shards_of_context_ = m.context > 1;
  }

  Search run(std::size_t most) {
    // An illegal batch or mesh is refused here, in the words of the deck's checks.
    resolved_deck(question_, mesh(1, data_ranks_, 1));
    own_ = resolved_deck(question_);
    strategies({});
    if (result_.best.empty()) strategies({"sharding.overlap_reduce=false"});
    sort();
    if (result_.best.size() > most) result_.best.resize(most);
    result_.frugal = frugal_overrides(question_);
    result_.least_ranks = least_ranks(question_, result_.frugal, watch_);
    if (result_.least_ranks && fits_as_it_is(*result_.least_ranks)) result_.frugal.clear();
    return std::move(result_);
  }

 private:
  /// Whether so many ranks need none of the frugal overrides, which cost time.
  bool fits_as_it_is(const LeastRanks& least) const {
    Question question = question_;
    question.ranks = least.ranks;
    return try_fit(question, least.overrides, {.detail = Detail::memory}).cost.has_value();
  }

  static std::vector<std::string> mesh(std::int64_t replicate, std::int64_t shard, std::int64_t micro) {
    return {fmt::format("mesh.replicate={}", replicate), fmt::format("mesh.shard={}", shard),
            fmt::format("batch.micro={}", micro)};
  }

  void strategies(const std::vector<std::string>& besides) {
    strategy("NO_SHARD", besides);
    if (data_ranks_ > 1 || shards_of_context_)
      for (const char* name : {"zero1", "zero2", "SHARD_GRAD_OP", "FULL_SHARD"}) strategy(name, besides);
  }

  /// From the most sharded mesh to the least; once nothing fits, less sharding does not either.
  void strategy(const std::string& name, const std::vector<std::string>& besides) {
    const std::int64_t least = name == "NO_SHARD" ? data_ranks_ : shards_of_context_ ? 1 : 2;
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
      if (watch_.expired()) {
        result_.complete = false;
        return best;
      }
      Setting setting{.overrides = keys, .cost = {}};
      for (const std::string& text : mesh(data_ranks_ / shard, shard, micro))
        setting.overrides.push_back(text);
      Trial trial = try_fit(question_, setting.overrides, {.detail = Detail::step});
      if (!trial.legal) continue;
      ++result_.tried;
      watch_.say(fmt::format("{} settings tried, {} fit", result_.tried, result_.best.size()));
      if (!trial.cost) return std::max(best, Outcome::too_large);
      best = Outcome::fits;
      setting.cost = std::move(*trial.cost);
      setting.effect = sums_alike(own_, setting.cost.deck) ? Effect::none : Effect::rounding;
      result_.best.push_back(std::move(setting));
    }
    return best;
  }

  void sort() {
    std::stable_sort(result_.best.begin(), result_.best.end(), [](const Setting& a, const Setting& b) {
      return a.cost.tokens_per_second() > b.cost.tokens_per_second();
    });
  }

  const Question& question_;
  const Watch& watch_;
  config::Deck deck_, own_;  ///< own_: resolved for the ranks
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

}  // namespace ztrain::plan
