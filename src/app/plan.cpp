#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <future>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/parse.hpp"
#include "app/question.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "config/text/load.hpp"
#include "files/file.hpp"
#include "plan/report/report.hpp"
#include "plan/setup.hpp"
#include "plan/trace/planned.hpp"
#include "plan/zero_paper.hpp"
#include "runtime/session/session.hpp"
#include "telemetry/console.hpp"
#include "telemetry/watchdog.hpp"

namespace ztrain::app {
namespace {

/// Bounds each search. The number of candidates ends a search earlier, so a busy machine changes no answer.
constexpr double most_seconds = 600;
/// Most ops of a compiled step up to which the same deck is compiled again for comparisons that nobody asked
/// for.
constexpr std::size_t most_compared_ops = 40'000;

struct Options {
  std::string deck;
  int ranks = 0;
  std::string machine, trace;
  bool json = false, fit = false, compare = false, alone = false, sbatch = false;
  double parameters = 0;
  double device_memory = -1, beside = -1;  ///< GB; -1: not given
};

void declare(Parser& parser, Options& o) {
  parser.option("deck", o.deck, "the deck").local_path();
  parser.option("--ranks", o.ranks, "ranks of the job; the product of a deck's mesh may say it")
      .range(1, plan::most_job_ranks);
  parser.flag("--json", o.json, "print one JSON object");
  parser.flag("--sbatch", o.sbatch, "print the script of a SLURM job instead: nodes, tasks, memory, time");
  parser
      .option("--trace", o.trace,
              "file for the step as a trace that ui.perfetto.dev and tools/plot_plan.py draw")
      .local_path();
  parser.flag("--fit", o.fit,
              "search strategy, mesh, micro-batch and recomputation for the fastest that fits");
  parser.flag("--compare", o.compare,
              "compare strategies, overlap of tensor communication and sums of gradients, also where that "
              "takes a while");
  parser.flag("--alone", o.alone, "neither compare with other settings nor look for what makes it fit");
  parser.option("--machine", o.machine, "machine file, or a preset's name: the rates that the time is of")
      .local_path();
  parser
      .option("--parameters", o.parameters, "no deck: the classic formula for so many parameters (70e9, 70B)")
      .positive_count();
  parser
      .option("--device-memory", o.device_memory,
              "GB of a rank's device; 0: it computes in the node's memory")
      .not_negative();
  parser
      .option("--beside", o.beside,
              "GB of a rank beside what is counted (default: the deck's cluster.outside_memory; with "
              "--parameters a quarter of the device)")
      .not_negative();
  parser.keep_others();
}

/// Returns the product of the mesh's degrees; an open degree counts as 1.
int ranks_of(const Options& o, const std::vector<std::string>& overrides) {
  if (o.ranks > 0) return o.ranks;
  const config::Mesh m = plan::deck_of({.deck = o.deck, .overrides = overrides}).mesh;
  std::int64_t product = 1;
  for (const std::int64_t degree : {m.pipeline, m.replicate, m.shard, m.context, m.tensor}) {
    product *= std::max<std::int64_t>(degree, 1);
    REQUIRE(product <= plan::most_job_ranks, "{}: the mesh has more than {} ranks", o.deck,
            plan::most_job_ranks);
  }
  return static_cast<int>(product);
}

plan::Question question_of(const Options& o, const std::vector<std::string>& overrides) {
  plan::Question q = question_for(o.deck, overrides);
  q.ranks = ranks_of(o, overrides);
  if (o.sbatch) q.limits = plan::limits_of_build(q);
  q.limits.machine = o.machine;
  if (o.device_memory >= 0) q.limits.device_memory = o.device_memory * 1e9;
  if (o.beside >= 0) q.limits.outside_memory = o.beside * 1e9;
  return q;
}

plan::Watch watch_of(std::size_t compiled_ops, telemetry::Phase& phase) {
  return {plan::candidates_for(compiled_ops), most_seconds, [&phase](const auto& text) { phase.at(text); }};
}

/// Searches for settings of a deck that does not go together with the ranks, and plans the fastest. `why` is
/// the message that refused the deck, which is thrown if nothing is found.
void plan_fastest(plan::Plan& plan, const std::string& why, telemetry::Phase& phase) {
  plan.search = plan::search_for(plan.question, watch_of(most_compared_ops, phase));
  if (plan.search->best.empty())
    fail(
        "{}{}", why,
        plan.search->tried == 0 ? "" : "\nother meshes and micro-batches go together with it, and none fits");
  const auto& overrides = plan.search->best.front().overrides;
  plan.question.overrides.insert(plan.question.overrides.end(), overrides.begin(), overrides.end());
  plan.cost = plan::cost_of(plan.question);
  plan.notes.push_back(
      fmt::format("this plan is that of the fastest setting, since the deck by itself is refused: {}", why));
}

/// Makes the plan without the comparisons.
plan::Plan plan_alone(const Options& o, const std::vector<std::string>& overrides,
                      telemetry::Console& console) {
  telemetry::Phase phase(console, "planning");
  plan::Plan plan{
      .question = question_of(o, overrides), .cost = {}, .strategies = {}, .fixes = {}, .search = {}};
  plan.notes = config::notes_on_variables(config::load_deck(o.deck, overrides, config::Files::elsewhere));
  try {
    plan.cost = plan::cost_of(plan.question);
  } catch (const Error& e) {
    if (!o.fit) throw;
    plan_fastest(plan, e.what(), phase);
  }
  return plan;
}

plan::Plan plan_of(const Options& o, const std::vector<std::string>& overrides, telemetry::Console& console) {
  plan::Plan plan = plan_alone(o, overrides, console);
  telemetry::Phase phase(console, "planning");
  const bool compare = o.compare || (!o.alone && plan.cost.compiled_ops <= most_compared_ops);
  std::future<std::vector<plan::Cost>> strategies;
  std::future<std::optional<plan::Cost>> overlap;
  std::future<std::vector<plan::OtherSums>> sums;
  if (compare) {
    strategies = std::async(std::launch::async, plan::costs_by_strategy, std::cref(plan.question),
                            std::cref(plan.cost));
    overlap = std::async(std::launch::async, plan::cost_with_other_overlap, std::cref(plan.question),
                         std::cref(plan.cost));
    sums =
        std::async(std::launch::async, plan::with_other_sums, std::cref(plan.question), std::cref(plan.cost));
  }
  const auto watch = [&] { return watch_of(plan.cost.compiled_ops, phase); };
  if (o.fit && !plan.search) plan.search = plan::search_for(plan.question, watch());
  const bool found = plan.search && !plan.search->best.empty();
  if (!o.alone && !found && !verdict_of(plan.cost).fits())
    plan.fixes = plan::fixes_for(plan.question, watch());
  if (compare) {
    plan.strategies = strategies.get();
    plan.other_overlap = overlap.get();
    plan.other_sums = sums.get();
  } else {
    plan.notes.push_back(fmt::format(
        "a step of {} ops is planned alone: --compare also says what other strategies{} and other sums of "
        "gradients cost",
        plan.cost.ops, plan.cost.deck.mesh.tensor > 1 ? ", tensor.overlap" : ""));
  }
  return plan;
}

/// Prints the script to stdout or a file, and notes for its user to stderr.
void print_sbatch(const Options& o, const plan::Plan& plan, telemetry::Console& console) {
  console.print(plan::sbatch_text(plan));
  const bool asked = o.device_memory == 0;
  if (plan.cost.machine.device_memory <= 0 && !asked)
    console.print_error(
        "warning: a job for processors, since the deck has no cluster.preset; for GPUs add "
        "--cluster.preset=NAME\n");
  std::error_code unknown;
  if (std::getenv("ZTRAIN_ROOT") == nullptr && !std::filesystem::exists("slurm/launch.sh", unknown))
    console.print_error(
        "warning: the job starts slurm/launch.sh, which is not below this folder: submit it with ZTRAIN_ROOT "
        "set to ztrain's own\n");
  for (const std::string& note : plan.notes) console.print_error(fmt::format("note: {}\n", note));
}

/// Refuses options that ask for different outputs, of which only one is printed.
void require_one_answer(const Options& o, const std::vector<std::string>& overrides) {
  const auto refuse = [](const char* what, const char* prints, bool given, const char* other) {
    REQUIRE(!given, "ztrain plan {} prints {}: leave {} out, or ask for it without {}", what, prints, other,
            what);
  };
  if (o.sbatch || o.parameters > 0) {
    const char* const what = o.parameters > 0 ? "--parameters" : "--sbatch";
    const char* const prints =
        o.parameters > 0 ? "the classic formula" : "the script of a job as it is planned";
    refuse(what, prints, o.json, "--json");
    refuse(what, prints, o.fit, "--fit");
    refuse(what, prints, o.compare, "--compare");
    refuse(what, prints, !o.trace.empty(), "--trace");
    refuse(what, prints, o.sbatch && o.parameters > 0, "--sbatch");
    if (o.parameters > 0) {
      refuse(what, prints, !o.deck.empty(), o.deck.c_str());
      refuse(what, prints, !overrides.empty(), overrides.empty() ? "" : overrides.front().c_str());
    }
  }
}

std::string zero_paper_text(const Options& o) {
  plan::ZeroPaperQuestion q;
  q.parameters = o.parameters;
  q.ranks = std::max(1, o.ranks);
  if (o.device_memory > 0) q.device_bytes = o.device_memory * 1e9;
  if (o.beside >= 0) q.beside_bytes = o.beside * 1e9;
  return plan::zero_paper_text(q);
}

}  // namespace

int plan(const Invocation& call) {
  Parser parser("What a job costs before it runs: memory, traffic, time; and what makes it fit",
                "ztrain plan");
  Options options;
  declare(parser, options);
  if (const auto code = parser.parse(call)) return *code;
  call.session.agree("planning", [&] {
    if (call.session.rank() != 0) return call.watchdog.set_timeout(0);  // this rank only waits for rank 0
    require_one_answer(options, parser.remaining());
    if (options.parameters > 0) return call.console.print(zero_paper_text(options));
    REQUIRE(!options.deck.empty(), "ztrain plan needs a deck, or --parameters; see ztrain plan --help");
    if (options.sbatch)
      return print_sbatch(options, plan_alone(options, parser.remaining(), call.console), call.console);
    std::optional<OutputFile> trace;
    if (!options.trace.empty()) trace.emplace(create_output(options.trace, "--trace", {options.deck}));
    const plan::Plan plan = plan_of(options, parser.remaining(), call.console);
    if (trace) plan::write_trace(plan.cost, options.deck, *trace);
    if (options.json) return call.console.print(json_text(plan::report_json(plan), 2) + "\n");
    call.console.print(plan::report_text(plan));
  });
  return 0;
}

}  // namespace ztrain::app
