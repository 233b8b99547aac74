#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "app/parse.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/hf/import.hpp"
#include "config/architectures.hpp"
#include "config/hf/starting_point.hpp"
#include "config/text/load.hpp"
#include "config/text/print.hpp"
#include "config/validate/validate.hpp"
#include "data/datasets.hpp"
#include "data/rows/row_source.hpp"
#include "job/memory_report.hpp"
#include "job/product_algorithms.hpp"
#include "job/require_checkpoint.hpp"
#include "job/save_proof.hpp"
#include "memory/provider.hpp"
#include "plan/cost.hpp"
#include "plan/memory.hpp"
#include "plan/rates/machine.hpp"
#include "plan/setup.hpp"
#include "program/jobs/compile.hpp"
#include "program/passes/units.hpp"
#include "runtime/session/session.hpp"
#include "telemetry/console.hpp"
#include "telemetry/watchdog.hpp"
#include "train/export_model.hpp"
#include "train/report.hpp"
#include "train/run_files.hpp"

namespace ztrain::app {
namespace {

/// The joint proof compiles one rank of each class. With more classes than this, `check` leaves the proof to
/// the run, in which every rank compiles itself.
constexpr std::size_t classes_proven_here = 16;

std::string proof_text(std::size_t classes) {
  if (classes > classes_proven_here) return "proven for this rank";
  return fmt::format("proven free of deadlock over all ranks ({} compiled)",
                     classes == 1 ? "one is" : fmt::format("one of each of {} classes is", classes));
}

/// Checks the rank that needs most memory, as `plan` does: against the device that the deck names, else
/// against this machine, where the job may never run.
void check_memory(telemetry::Console& console, plan::Question question, const plan::Machine& machine) {
  if (machine.device_assumed && machine.target == Target::cuda) return;
  const char* bound = "";
  if (machine.device_assumed) {
    const memory::MachineMemory here = memory::machine_memory();
    question.limits = plan::limits_of_build(question);
    question.limits.host_memory = here.total > 0 ? static_cast<double>(here.available) : 0.0;
    if (here.in_group) bound = memory::of_control_group;
  }
  const plan::Cost cost = plan::cost_of(question, {}, {.detail = plan::Detail::memory, .proven = false});
  if (const std::string attention = config::attention_summary(cost.deck); !attention.empty())
    console.print(fmt::format("attention: {}\n", attention));
  console.print(fmt::format("checkpoints: {}\n", config::saving_summary(cost.deck, cost.checkpoint_bytes)));
  const plan::Verdict v = verdict_of(cost);
  const auto of = [](double needed, double limit) {
    return fmt::format("{} of {}", format_decimal_bytes(needed), format_decimal_bytes(limit));
  };
  if (!machine.device_assumed) {
    const std::string device =
        fmt::format("{} of a device ({} of it outside of the plan)", of(v.device_needed, v.device_limit),
                    format_decimal_bytes(cost.machine.outside_memory));
    REQUIRE(v.fits(), "the job does not fit: {}, {} of a node; `ztrain plan` says what makes it fit", device,
            of(v.node_needed, v.node_limit));
    return console.print(fmt::format("memory: {}, {} of a node\n", device, of(v.node_needed, v.node_limit)));
  }
  if (!v.node_fits())
    console.print(fmt::format(
        "note: this machine has not the memory for it: {} on a node need {}, and {} are available here{}; of "
        "devices cluster.preset says how much they have\n",
        count_text(std::min(cost.ranks, cost.machine.ranks_per_node), "rank"),
        format_decimal_bytes(v.node_needed), format_decimal_bytes(v.node_limit), bound));
}

/// Plans the first save of all ranks, assuming that ranks fill one node after the other.
void check_saves(telemetry::Console& console, const config::Deck& deck, const model::Graph& graph,
                 const program::JobSpec& spec, int ranks_per_node) {
  if (deck.checkpoint.interval < 0) return;
  const telemetry::Phase phase(console, "planning the checkpoints");
  std::vector<std::int64_t> nodes;
  for (int rank = 0; rank < spec.mesh.ranks(); ++rank) nodes.push_back(rank / ranks_per_node);
  const job::SaveParts parts(graph, spec);
  const checkpoint::SavePlan saves = job::plan_saves(deck, spec.mesh, parts.by_place(), nodes);
  console.print(fmt::format("each checkpoint: {}, {}, {} in all; all ranks agree on it\n",
                            format_decimal_bytes(static_cast<double>(saves.bytes())),
                            count_text(std::ssize(saves.files), "shard file"),
                            count_text(saves.datasets(), "dataset")));
}

void check_for_ranks(telemetry::Console& console, config::Deck deck, const plan::Question& question) {
  const int ranks = question.ranks;
  const plan::Machine machine = plan::machine_of(deck);
  config::validate_for_ranks(deck, ranks, std::min(ranks, machine.ranks_per_node));
  const model::Graph graph = plan::training_graph(deck);
  const program::JobSpec spec = plan::job_spec(deck, machine.target);
  telemetry::Phase phase(console, "compiling and proving the step program");
  const program::Job job = program::compile(graph, spec, 0);
  const std::size_t classes = program::rank_classes(graph, spec).size();
  if (classes <= classes_proven_here)
    program::verify_job(graph, spec, job, [&](const std::string& what) { phase.at(what); });
  console.print(
      fmt::format("mesh {}\n{} tokens a step\nrank 0 of {}; the step program has {} ops and is {}\n{}",
                  spec.mesh.describe(), config::tokens_per_step(deck), ranks, job.train().issues(),
                  proof_text(classes), job::memory_table(job.train(), plan::memory_of(job.programs.all()))));
  check_saves(console, deck, graph, spec, std::min(ranks, machine.ranks_per_node));
  check_memory(console, question, machine);
}

/// Checks what no number of ranks would make legal.
void check_for_any_ranks(const config::Deck& deck, model::Graph graph) {
  const plan::Machine machine = plan::machine_of(deck);
  program::group_parameters(graph, plan::least_job(deck, machine.ranks_per_node, machine.target).units);
}

void print_data(telemetry::Console& console, const std::string& path, const config::Deck& deck,
                const data::Datasets& data) {
  const auto rows = [](const std::vector<data::RowSet>& sets) {
    std::int64_t sum = 0;
    for (const data::RowSet& set : sets) sum += set.rows->rows();
    return sum;
  };
  console.print(fmt::format("{}: {} training sequences of {} tokens, {} for validation, vocabulary {}\n",
                            path, rows(data.train), deck.data.sequence, rows(data.validation),
                            data.vocab_size));
  for (const auto& [what, value] : train::lines_on_data(deck, data, true))
    console.print(fmt::format("{:<10} {}\n", what, value));
  if (const std::string idle = config::device_note(deck, plan::device_kind(plan::machine_of(deck).target));
      !idle.empty())
    console.print(fmt::format("{:<10} note: {}\n", "device", idle));
}

/// Looks for token ids outside the vocabulary, which would otherwise end a run in its middle.
void check_ids(telemetry::Console& console, const data::Datasets& data) {
  constexpr double seconds = 10;  // time for each set
  telemetry::Phase phase(console, "reading the data");
  std::int64_t read = 0, all = 0, number = 0;
  for (const auto* sets : {&data.train, &data.validation})
    for (const data::RowSet& set : *sets) {
      phase.at(fmt::format("set {} of {}", ++number, data.train.size() + data.validation.size()));
      read += data::read_rows(*set.rows, seconds);
      all += set.rows->rows();
    }
  console.print(fmt::format("{} of {} sequences read: their ids are below model.vocab_size{}\n", read, all,
                            read < all ? fmt::format(" (reading went on for {} s a set)", seconds) : ""));
}

/// Prints what is trained, unless it is the whole model.
void print_trained(telemetry::Console& console, const config::Deck& deck, const model::Graph& graph) {
  std::int64_t trained = 0, all = 0;
  for (const model::Parameter& p : graph.parameters) {
    all += elements(p.shape);
    if (p.trainable) trained += elements(p.shape);
  }
  const std::string text = config::trained_summary(deck, trained, all);
  if (!text.empty()) console.print(fmt::format("{:<10} {}\n", "trained", text));
}

/// Checks the weights that a run would start from, by their headers alone.
void check_weights(telemetry::Console& console, const config::Deck& deck, const model::Graph& graph) {
  const telemetry::Phase phase(console, "looking at the weights");
  std::vector<ParameterShape> parameters;
  for (const model::Parameter& p : graph.parameters)
    parameters.push_back({p.name, p.shape, {}, p.unit, p.decay, p.trainable, p.adapter});
  const auto of_model = std::ranges::count(graph.parameters, false, &model::Parameter::adapter);
  const std::int64_t bytes =
      checkpoint::require_weights(deck.model.from, parameters, checkpoint::import_options(deck));
  console.print(
      fmt::format("{}: the {} tensors of the model, {}\n", deck.model.from, of_model, format_bytes(bytes)));
}

/// Returns the step that a run would resume, or 0 if it starts anew.
std::int64_t step_to_resume(const config::Deck& deck) {
  const std::string& resume = deck.checkpoint.resume;
  if (resume == "none") return 0;
  if (resume != "auto") {
    job::require_checkpoint_to_resume(resume);
    return checkpoint::step_of(resume);
  }
  const auto newest = checkpoint::newest(config::checkpoint_folder(deck));
  return newest ? checkpoint::step_of(*newest) : 0;
}

/// Checks what a run would write. Drives of nodes may not exist on the machine that checks.
void check_places(telemetry::Console& console, const config::Deck& deck, const data::Datasets& data) {
  for (const std::string& folder : deck.offload.nvme_path)
    if (std::error_code unknown; !std::filesystem::is_directory(folder, unknown))
      console.print(fmt::format(
          "note: offload.nvme_path: there is no folder '{}' here; each node of the job needs it\n", folder));
  train::require_apart(deck);
  train::require_writable(deck);
  const std::int64_t steps = config::total_steps(deck, data::make_sampler(deck, data).rows_per_epoch());
  if (step_to_resume(deck) < steps && !deck.checkpoint.export_to.empty()) train::require_exportable(deck);
}

/// Checks what a run would read, and completes the deck from its data.
void check_files(telemetry::Console& console, const std::string& path, config::Deck& deck) {
  std::optional<telemetry::Phase> phase(std::in_place, console, "opening the data");
  const data::Datasets data = data::open_datasets(deck, [&](std::string_view next) { phase->at(next); });
  deck.model.vocab_size = data.vocab_size;
  check_places(console, deck, data);
  phase.reset();
  job::require_products(deck.device);
  print_data(console, path, deck, data);
  check_ids(console, data);
}

}  // namespace

int check(const Invocation& call) {
  Parser parser("Validates a deck", "ztrain check");
  std::string path;
  int ranks = 0;
  bool without_files = false;
  parser.option("deck", path, "the deck").required().local_path();
  parser.option("--ranks", ranks, "check mesh, batch and memory for this many ranks").range(1, 1 << 20);
  parser.flag("--without-files", without_files,
              "look at neither data nor weights, which may be on another machine");
  parser.keep_others();
  if (const auto code = parser.parse(call)) return *code;
  const auto files = without_files ? config::Files::elsewhere : config::Files::here;
  call.session.agree("checking the deck", [&] {
    config::Deck deck = config::load_deck(path, parser.remaining(), files);
    config::require_base_of_adapters(deck);
    if (call.session.rank() != 0) return call.watchdog.set_timeout(0);  // this rank only waits for rank 0
    if (files == config::Files::here) {
      check_files(call.console, path, deck);
    } else {
      REQUIRE(deck.model.vocab_size > 0, "{}: model.vocab_size is not known without the data: give it", path);
      call.console.print(fmt::format("{}: its data and weights are not looked at\n", path));
      for (const std::string& note : config::notes_on_variables(deck))
        call.console.print(fmt::format("note: {}\n", note));
      if (deck.run.epochs > 0)
        call.console.print(
            fmt::format("note: run.epochs = {}: how many steps these are is not known without the data\n",
                        deck.run.epochs));
    }
    const model::Graph graph = plan::training_graph(deck);
    if (ranks == 0) check_for_any_ranks(deck, graph);
    print_trained(call.console, deck, graph);
    if (files == config::Files::here && !deck.model.from.empty()) check_weights(call.console, deck, graph);
    if (ranks > 0)
      check_for_ranks(call.console, deck,
                      {.deck = path,
                       .overrides = parser.remaining(),
                       .ranks = ranks,
                       .vocabulary = deck.model.vocab_size});
    call.console.print(ranks > 0
                           ? "the deck is valid\n"
                           : "the deck is valid; --ranks N looks at its mesh, batch and memory as well\n");
  });
  return 0;
}

}  // namespace ztrain::app
