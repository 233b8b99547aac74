#include "evaluate/evaluator.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "base/text.hpp"
#include "config/fields/value.hpp"
#include "config/text/load.hpp"
#include "config/validate/validate.hpp"
#include "job/open_device.hpp"
#include "job/progress.hpp"
#include "job/weights.hpp"
#include "plan/memory.hpp"
#include "plan/setup.hpp"

namespace ztrain::evaluate {
namespace {

constexpr std::int64_t usual_limit = 4096;  ///< tokens of a row; some models were made for a million

/// Globs of the keys of the source's deck that decide what its model computes and how rows are made.
constexpr std::array own_keys{"model.*",
                              "lora.*",
                              "experts.*",
                              "device.*",
                              "precision.parameters",
                              "precision.fp8",
                              "data.packing",
                              "data.max_documents",
                              "sparse_attention.*",
                              "sharding.gather_codes",
                              "sharding.persistence_threshold"};
/// Globs of such keys of a reward model: another model's loss is that of words, however it was trained.
constexpr std::array reward_keys{"preference.loss_type", "preference.center_rewards_coefficient"};
/// Keys among these that concern the training run alone.
constexpr std::array other_keys{
    "model.from",       "model.base",       "model.add_tokens", "model.trust_config",
    "model.new_rows",   "lora.random_base", "experts.capacity", "experts.bias_update_speed",
    "device.algorithms"};
/// Sections of which a user may give keys.
constexpr std::array free_sections{"mesh",    "sharding", "tensor", "context", "pipeline",
                                   "offload", "data",     "device", "debug"};

template <class Globs>
bool matches(const Globs& globs, const std::string& key) {
  return std::ranges::any_of(globs, [&](const char* glob) { return glob_match(glob, key); });
}

/// Returns the keys of the source's deck that an evaluation shares with its run, as TOML.
std::string own_deck(const job::ModelSource& source) {
  std::string text;
  for (std::size_t i = 0; i < config::fields().size(); ++i) {
    const config::Field& field = config::fields()[i];
    const bool used = i >= source.deck.origins.size() || source.deck.origins[i].used;
    const bool own = matches(own_keys, field.key) && !matches(other_keys, field.key);
    if (used && (own || (source.gives_rewards() && matches(reward_keys, field.key))))
      text += fmt::format("{} = {}\n", field.key, config::render(field, source.deck));
  }
  return text;
}

void require_free(const std::string& word) {
  const std::string key = word.substr(word.starts_with("--") ? 2 : 0), section = key.substr(0, key.find('.'));
  REQUIRE(std::ranges::find(free_sections, section) != free_sections.end(),
          "'{}' is no option of an evaluation; of a deck's keys it takes those of the sections {}", word,
          fmt::join(free_sections, ", "));
}

std::vector<std::string> overrides_of(const job::ModelSource& source, const Settings& settings) {
  const DType type = settings.dtype.empty() ? source.dtype : dtype_from(settings.dtype);
  std::vector<std::string> words{
      R"(data.train=["none"])",
      "run.steps=1",
      "batch.global=1",
      source.gives_rewards() ? "data.long_documents=truncate" : "data.long_documents=split",
      fmt::format("data.sequence={}", settings.sequence),
      fmt::format("batch.micro={}", settings.batch),
      fmt::format("precision.parameters={}", name_of(type))};
  if (type == DType::f64)
    for (const char* key : {"gradients", "reduce", "master", "moments"})
      words.push_back(fmt::format("precision.{}={}", key, name_of(type)));
  if (!settings.dtype.empty() && type != source.dtype) words.emplace_back("precision.fp8=none");
  if (!settings.packing.empty()) words.push_back("data.packing=" + settings.packing);
  for (const std::string& word : settings.overrides) {
    require_free(word);
    words.push_back(word);
  }
  return words;
}

job::Worker worker_of(const runtime::Session& session, telemetry::Console& console, const config::Deck& deck,
                      std::int64_t likelihoods) {
  const model::Graph graph =
      session.agree("reading the model", [&] { return plan::training_graph(deck, likelihoods); });
  const program::JobSpec spec =
      session.agree("planning the job", [&] { return plan::evaluation_spec(deck, build_target()); });
  return {session, job::compile_and_verify(session, console, graph, spec), &deck, job::worker_options(deck),
          job::open_device(session, deck)};
}

}  // namespace

std::int64_t usual_sequence(const runtime::Session& session, const job::ModelSource& source) {
  if (source.kind == job::ModelSource::Kind::checkpoint) return source.deck.data.sequence;
  const std::string tokens = session.from_rank_0(session.agree("reading the model", [&] {
    if (session.rank() != 0) return std::string();
    const std::int64_t made_for = job::context_of(source).positions;
    REQUIRE(made_for > 0, "{} does not say how many tokens the model was made for: give --sequence",
            source.folder);
    return fmt::to_string(std::min(made_for, usual_limit));
  }));
  return std::stoll(tokens);
}

config::Deck deck_for(const job::ModelSource& source, const Settings& settings,
                      const runtime::Session& session) {
  const config::SparseAttention& sparse = source.deck.sparse_attention;
  REQUIRE(!sparse.is_on() || settings.sequence % sparse.block == 0,
          "--sequence: rows of {} tokens are not whole blocks of {} tokens (sparse_attention.block of {}); "
          "nearest legal: {}",
          settings.sequence, sparse.block, source.folder,
          std::max(sparse.block, settings.sequence / sparse.block * sparse.block));
  job::require_same_blocks(source.attention_blocks, source.deck, source.folder);
  config::Deck deck = config::parse_deck(own_deck(source), source.folder, overrides_of(source, settings));
  deck.model.origin = source.origin;
  deck.batch.global = deck.batch.micro * session.size();
  config::validate_for_ranks(deck, session.size(), session.max_ranks_per_node());
  return deck;
}

Evaluator::Evaluator(const runtime::Session& session, telemetry::Console& console,
                     const job::ModelSource& source, const config::Deck& deck, std::int64_t likelihoods)
    : session_(session),
      console_(console),
      deck_(deck),
      worker_(worker_of(session, console, deck_, likelihoods)) {
  telemetry::Phase phase(console, "reading the weights", [this] { return worker_.position(); });
  const auto shards = session.agree("planning the weights", [&] { return worker_.state(false); });
  const program::Job& job = worker_.job();
  job::read_weights(session, source, job::place_of(job.load(), job.layout), shards,
                    [&](std::int64_t done, std::int64_t total) { phase.at(share_of(done, total, "read")); });
  worker_.derive_parameters();
}

void Evaluator::require_sound(const std::string& failure, bool finite) {
  session_.agree("evaluating", [&] {
    REQUIRE(failure.empty(), "{}", failure);
    REQUIRE(finite, "the loss is not finite in {}: look at the weights, or give a wider --dtype",
            name_of(deck_.precision.parameters));
  });
}

job::Losses Evaluator::losses(const std::vector<data::RowSet>& sets) {
  return losses(sets, job::BatchHearer{});
}

job::Losses Evaluator::losses(const std::vector<data::RowSet>& sets, LikelihoodWriter& writer) {
  std::vector<std::int64_t> places(
      static_cast<std::size_t>(job::own_tokens(worker_, deck_.batch.micro * deck_.data.sequence)));
  return losses(sets, {places, [&] { writer.write(places, worker_.likeliest()); }});
}

job::Losses Evaluator::losses(const std::vector<data::RowSet>& sets, const job::BatchHearer& hearer) {
  telemetry::Phase phase(console_, "evaluation", [this] { return worker_.position(); });
  config::Deck whole = deck_;
  whole.evaluation.batches = std::numeric_limits<std::int64_t>::max();
  job::Losses losses = job::evaluate(
      worker_, whole, sets, [&](const std::string& batch) { phase.at(batch); }, hearer);
  require_sound(losses.failure, losses.finite());
  return losses;
}

std::vector<double> Evaluator::losses_of_rows(const data::RowSet& set) {
  telemetry::Phase phase(console_, "evaluation", [this] { return worker_.position(); });
  job::RowLosses losses =
      job::losses_of_rows(worker_, set, [&](const std::string& batch) { phase.at(batch); });
  require_sound(losses.failure, std::ranges::all_of(losses.nats, [](double x) { return std::isfinite(x); }));
  return std::move(losses.nats);
}

std::string Evaluator::memory_line() const {
  const plan::RankMemory memory = plan::memory_of(worker_.job().programs.all());
  const auto device = program::Tier::device;
  return fmt::format("memory per rank: {} kept, most of it weights in {}, and {} while it computes",
                     format_bytes(memory.persistent(device)), name_of(deck_.precision.parameters),
                     format_bytes(memory.transient(device)));
}

}  // namespace ztrain::evaluate
