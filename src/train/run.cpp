#include "train/run.hpp"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"
#include "config/hf/starting_point.hpp"
#include "config/text/print.hpp"
#include "config/validate/validate.hpp"
#include "data/tokens/staged_files.hpp"
#include "job/memory_report.hpp"
#include "job/peak.hpp"
#include "job/product_algorithms.hpp"
#include "job/require_memory.hpp"
#include "memory/provider.hpp"
#include "model/family.hpp"
#include "optim/schedule.hpp"
#include "plan/setup.hpp"
#include "program/passes/early_steps.hpp"
#include "train/run_files.hpp"

namespace ztrain::train {
namespace {

RunFacts facts_of(const config::Deck& deck, const data::Sampler& sampler, const model::Graph& graph,
                  int ranks) {
  RunFacts f;
  f.steps = config::total_steps(deck, sampler.rows_per_epoch());
  f.tokens_per_step = config::tokens_per_step(deck);
  f.flops_per_token = model::flops_per_token(deck.model, graph, deck.data.sequence);
  f.machine_bytes = static_cast<double>(memory::machine_memory().total);
  f.ranks = ranks;
  return f;
}

/// Takes the vocabulary from the data if the deck leaves it open, and marks the key as coming from there.
void take_vocabulary(config::Deck& deck, const data::Datasets& data) {
  if (deck.model.vocab_size == 0)
    for (config::Origin& origin : deck.origins)
      if (origin.key == "model.vocab_size") origin.source = "data.train";
  deck.model.vocab_size = data.vocab_size;
  deck.model.tokenizer_folder = data.tokenizer.folder;
  // A model keeps its own end tokens. Prepared data add the ends that the run trains; bytes of a text add
  // none.
  std::vector<std::int32_t>& ends = deck.model.ends;
  if (!ends.empty() && data.tokenizer.hash.empty()) return;
  for (const std::int32_t end : data.tokenizer.ends)
    if (std::ranges::count(ends, end) == 0) ends.push_back(end);
}

/// Collective. One rank of each node copies the data's files to the node's drive (data.stage). After each
/// turn all ranks agree that copying goes on.
void copy_data(const runtime::Session& session, telemetry::Console& console, const config::Deck& deck) {
  if (deck.data.stage.empty()) return;
  constexpr double turn = 1;  // seconds
  telemetry::Phase phase(console, "copying the data to data.stage");
  const double start = now();
  std::optional<data::FileCopies> copies;
  bool done = session.local_rank() != 0;
  session.agree("copying the data", [&] {
    if (done) return;
    std::vector<std::string> files = data::expand_patterns(deck.data.train, "data.train");
    std::ranges::copy(data::expand_patterns(deck.data.validation, "data.validation"),
                      std::back_inserter(files));
    copies.emplace(files, deck.data.stage);
  });
  std::int64_t copied = 0;
  for (bool all = false; !all;) {
    session.agree("copying the data", [&] { done = done || copies->work(turn); });
    std::vector<std::int64_t> counts{done ? 0 : 1, copies ? copies->done() : 0, copies ? copies->bytes() : 0};
    runtime::sum_of_all(session, counts);
    all = counts[0] == 0;
    copied = counts[1];
    phase.at(share_of(counts[1], counts[2], "copied"));
  }
  if (copies && session.rank() == 0)
    console.print(fmt::format(
        "data.stage: {} copied on {} in {:.1f} s; {} of the files were in '{}' of this node before\n",
        format_bytes(copied), count_text(session.nodes(), "node"), now() - start,
        format_bytes(copies->found()), deck.data.stage));
}

}  // namespace

Prepared prepare(const runtime::Session& session, telemetry::Console& console, config::Deck deck) {
  telemetry::Phase phase(console, "opening the data");
  session.agree("opening the data", [&] {
    config::validate_for_ranks(deck, session.size(), session.max_ranks_per_node());
    config::require_base_of_adapters(deck);
    if (session.rank() == 0) require_apart(deck);  // Copies of data would be left behind.
  });
  copy_data(session, console, deck);
  Prepared prepared = session.agree("opening the data", [&] {
    data::Datasets data = data::open_datasets(deck, [&](std::string_view next) { phase.at(next); });
    take_vocabulary(deck, data);
    job::require_readable_metadata(deck, data::identity_of(data), data::course_of(data.train));
    return Prepared{std::move(deck), std::move(data)};
  });
  // Ranks that failed above do not reach this exchange.
  const std::string mine =
      hex(config::deck_hash(prepared.deck)) + hex(data::hash_of(data::identity_of(prepared.data)));
  const std::string first = session.from_rank_0(mine);
  session.agree("comparing the ranks' inputs", [&] {
    REQUIRE(mine == first,
            "{} reads another deck or other data than rank 0: all nodes must see the same files",
            session.host());
  });
  return prepared;
}

Run::Run(const runtime::Session& ranks, telemetry::Console& lines, Prepared prepared, std::string program)
    : session(ranks),
      console(lines),
      preparing(std::in_place, console, "preparing data, memory and kernels"),
      deck(std::move(prepared.deck)),
      version(std::move(program)),
      data(std::move(prepared.data)),
      sampler(session.agree("opening the data", [&] { return data::make_sampler(deck, data); })),
      facts(
          session.agree("reading the schedule",
                        [&] { return facts_of(deck, sampler, plan::training_graph(deck), session.size()); })),
      skipped_steps(deck),
      worker{session,
             job::compile_and_verify(
                 session, console, plan::training_graph(deck),
                 session.agree("planning the job", [&] { return plan::job_spec(deck, build_target()); })),
             &deck, job::worker_options(deck), job::open_device(session, deck, preparing)} {
  progress.products =
      job::chosen_products(worker.queues().exec(runtime::compute_queue), deck.precision.parameters);
  progress.processor = job::processor_of(worker.device(), deck.precision.parameters);
  progress.run_steps = facts.steps;
  facts.offload = job::is_offloaded(worker.job().train());
  if (deck.offload.optimizer_ahead) facts.units_ahead = program::units_ahead(worker.job().train());
  facts.behind_training = config::saves_behind_training(deck);
  facts.pipeline = deck.mesh.pipeline > 1;
  facts.experts = deck.model.num_experts > 0;
  facts.loss_type = deck.preference.loss_type;
  facts.peak_flops = job::peak_of(deck, worker.device().name()).flops_per_second;
  if (job::has_memory_of_its_own(worker.device()))
    facts.machine_bytes = static_cast<double>(worker.device().memory().limits().total);
}

bool Run::has_diverged() const {
  return is_complete() ? skipped_steps.diverged_at_end() : skipped_steps.diverging();
}

std::string Run::doubt() const {
  if (skipped_steps.skipped_in_a_row() > 0) return "this step was skipped";
  return progress.evaluation_failed ? "the validation loss is not finite" : "";
}

std::string Run::agreed(const std::string& failed) const {
  try {
    session.agree("training", [&] {
      if (!failed.empty()) throw Error(failed);
    });
  } catch (const runtime::AgreedError& e) {
    return e.what();
  }
  return "";
}

nlohmann::json Run::metadata() const {
  nlohmann::json metadata = job::to_metadata(progress, deck, data::identity_of(data), version);
  if (frozen) metadata[checkpoint::frozen_key] = checkpoint::to_json(*frozen);
  return metadata;
}

void Run::set_scalars() {
  StepScalars& s = worker.scalars();
  const std::int64_t t = progress.optimizer_steps;
  s.learning_rate = optim::learning_rate(deck.schedule, deck.optimizer.lr, t, facts.steps);
  s.bias_correction1 = optim::bias_correction(deck.optimizer.beta1, t + 1);
  s.bias_correction2 = optim::bias_correction(deck.optimizer.beta2, t + 1);
  s.max_norm = deck.optimizer.max_norm;
  s.loss_scale = skipped_steps.loss_scale();
  s.optimizer_step = static_cast<double>(t);
}

}  // namespace ztrain::train
