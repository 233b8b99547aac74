#include <fmt/format.h>

#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "app/parse.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "config/text/print.hpp"
#include "data/datasets.hpp"
#include "evaluate/evaluator.hpp"
#include "evaluate/report.hpp"
#include "telemetry/console.hpp"
#include "telemetry/watchdog.hpp"

namespace ztrain::app {
namespace {

constexpr double seconds_to_check_ids = 20;

struct EvaluateArguments {
  std::string model, base, choices, format;
  std::vector<std::string> data;
  std::int64_t tokens = std::numeric_limits<std::int64_t>::max(), tensor = 1, pipeline = 1;
  evaluate::Settings settings;
  bool json = false, averages = false;
  std::string likelihoods;  ///< file of likelihoods to write; "": none
  std::int64_t top_k = 64;  ///< words of a token in it
};

/// Inputs as every rank has read them: rows of files, or choices.
struct EvaluationInputs {
  config::Deck deck;
  data::Datasets data;
  evaluate::Items items;
  std::shared_ptr<const evaluate::ChoiceRows> choices;
};

/// Throws AgreedError if a rank reads other files than rank 0.
void require_same_inputs(const runtime::Session& session, const EvaluationInputs& inputs) {
  const std::string mine = hex(config::deck_hash(inputs.deck)) +
                           hex(data::hash_of(data::identity_of(inputs.data))) +
                           hex(inputs.items ? evaluate::identity_of(*inputs.items) : 0);
  const std::string first = session.from_rank_0(mine);
  session.agree("comparing the ranks' inputs", [&] {
    REQUIRE(mine == first, "{} reads other files than rank 0: all nodes must see the same files",
            session.host());
  });
}

/// Collective.
EvaluationInputs read_inputs(const Invocation& call, const job::ModelSource& source, EvaluateArguments a) {
  telemetry::Phase phase(call.console, "opening the data");
  EvaluationInputs inputs;
  std::int64_t& sequence = a.settings.sequence;
  if (sequence == 0 && a.choices.empty()) sequence = evaluate::usual_sequence(call.session, source);
  call.session.agree("opening the data", [&] {
    if (!a.choices.empty()) {
      auto items = evaluate::read_choices(a.choices, source.deck.model.vocab_size);
      if (sequence == 0) sequence = evaluate::longest_row(items);
      inputs.items = std::make_shared<const std::vector<evaluate::Item>>(std::move(items));
      inputs.choices = std::make_shared<const evaluate::ChoiceRows>(inputs.items, sequence, a.choices);
    }
    inputs.deck = evaluate::deck_for(source, a.settings, call.session);
    if (a.data.empty()) return;
    inputs.data = data::open_to_evaluate(inputs.deck, a.data, "--data", a.tokens,
                                         [&](std::string_view next) { phase.at(next); });
    // Ids beyond the vocabulary are found before anything is computed.
    if (call.session.rank() == 0)
      for (const data::RowSet& set : inputs.data.validation) data::read_rows(*set.rows, seconds_to_check_ids);
  });
  require_same_inputs(call.session, inputs);
  return inputs;
}

/// Tells on stderr what is evaluated and how; stdout has the results alone.
void tell(telemetry::Console& console, const job::ModelSource& source, const EvaluationInputs& inputs,
          const evaluate::Evaluator& evaluator) {
  const config::Deck& deck = inputs.deck;
  const std::int64_t context = source.kind == job::ModelSource::Kind::checkpoint
                                   ? source.deck.data.sequence
                                   : job::context_of(source).positions;
  console.print_error(fmt::format("{}: {} in {}, rows of {} tokens\n", source.folder, deck.model.family,
                                  name_of(deck.precision.parameters), deck.data.sequence));
  if (context > 0 && deck.data.sequence > context)
    console.print_error(fmt::format(
        "warning: rows are longer than the {} tokens that the model was made for or trained on\n", context));
  if (inputs.choices && inputs.choices->shortened() > 0)
    console.print_error(
        fmt::format("warning: {} of {} rows are longer than --sequence {}: they lose the first "
                    "tokens of their context\n",
                    inputs.choices->shortened(), inputs.choices->rows(), deck.data.sequence));
  data::DocumentCounts counts;
  for (const data::RowSet& set : inputs.data.validation) counts += set.documents;
  if (counts.split > 0)
    console.print_error(fmt::format(
        "note: {} of {} are longer than a row and are cut, so that the tokens behind a cut see none "
        "before it: --sequence N makes rows longer\n",
        counts.split, count_text(counts.documents, "document")));
  for (const std::string& warning : inputs.data.warnings) console.print_error(warning + "\n");
  const std::string other = data::compare_with_model(inputs.data.tokenizer, source.origin);
  if (!other.empty()) console.print_error(fmt::format("tokenizer: {}\n", other));
  console.print_error(evaluator.memory_line() + "\n");
  for (const engine::Note& note : evaluator.notes())
    console.print_error(fmt::format("{}: {}\n", note.what, note.text));
}

/// Collective. Returns the losses of all files, and writes their likelihoods if these are asked for.
job::Losses losses_of_files(const Invocation& call, const EvaluateArguments& a,
                            const EvaluationInputs& inputs, evaluate::Evaluator& evaluator) {
  const std::vector<data::RowSet>& sets = inputs.data.validation;
  if (a.likelihoods.empty()) return evaluator.losses(sets);
  evaluate::LikelihoodWriter writer(
      call.session, a.likelihoods,
      {a.model, inputs.deck.model.vocab_size, inputs.deck.data.sequence, a.top_k, inputs.data.places});
  const job::Losses losses = evaluator.losses(sets, writer);
  writer.finish();
  call.console.print_error(fmt::format("{}: the {} likeliest words of each token\n", a.likelihoods, a.top_k));
  return losses;
}

/// Prints the model and the results.
template <class Found>
void print(const Invocation& call, const EvaluateArguments& a, const config::Deck& deck, const Found& found) {
  if (!a.json) return call.console.print(evaluate::text_of(found));
  nlohmann::ordered_json all{
      {"model", a.model}, {"dtype", name_of(deck.precision.parameters)}, {"sequence", deck.data.sequence}};
  all.update(evaluate::json_of(found));
  call.console.print(json_text(all, 2) + "\n");
}

void run(const Invocation& call, const EvaluateArguments& a) {
  job::ModelSource source = job::open_model(call.session, a.model, a.base);
  if (a.averages) source.values = checkpoint::WeightValues::averaged;
  call.session.agree("reading the command line", [&] {
    REQUIRE(a.choices.empty() || !source.gives_rewards(),
            "--choices: {} is a reward model (preference.loss_type = \"reward\"), which gives words no "
            "likelihoods: give pairs of answers with --data",
            a.model);
  });
  EvaluationInputs inputs = read_inputs(call, source, a);
  call.session.agree("reading the command line", [&] {
    const std::int64_t words = inputs.deck.model.vocab_size;
    REQUIRE(a.likelihoods.empty() || a.top_k <= words,
            "--top-k ({}) is above the model's vocabulary; nearest legal: {}", a.top_k, words);
  });
  evaluate::Evaluator evaluator(call.session, call.console, source, inputs.deck,
                                a.likelihoods.empty() ? 0 : a.top_k);
  call.session.agree("describing the evaluation", [&] {
    if (call.session.rank() == 0) tell(call.console, source, inputs, evaluator);
  });
  const double start = now();
  double tokens = 0;
  const char* what = "tokens";
  if (inputs.choices) {
    const auto losses = evaluator.losses_of_rows({a.choices, inputs.choices, {}, 0});
    tokens = static_cast<double>(inputs.choices->counts().tokens);
    print(call, a, inputs.deck, evaluate::score(inputs.items, losses, a.choices));
  } else {
    const evaluate::FileLosses found{losses_of_files(call, a, inputs, evaluator), inputs.data.validation,
                                     a.data};
    tokens = found.losses.tokens;
    if (found.losses.pairs) what = "pairs";
    print(call, a, inputs.deck, found);
  }
  call.console.print_error(fmt::format("{} {} in {:.1f} s\n", format_count(tokens), what, now() - start));
}

void add_options(Parser& parser, EvaluateArguments& a) {
  evaluate::Settings& s = a.settings;
  parser
      .option("model", a.model, "a folder step_N, one with config.json and safetensors files, or one of PEFT")
      .required()
      .local_path();
  parser.option("--base", a.base, "folder of the weights beside which adapters were trained, if moved")
      .local_path();
  parser.option("--data", a.data, "files of tokens or text whose loss is wanted: a line for each");
  parser
      .option("--choices", a.choices,
              "file of JSON lines with context, choices and answer, of which the likeliest is taken; with "
              "context_ids and choices_ids if the model is not one of bytes")
      .local_path();
  parser
      .option("--sequence", s.sequence,
              "tokens of a row; else the checkpoint's data.sequence, or what the model was made for, up to "
              "4,096; of choices what the longest needs")
      .range(1, 1 << 24);
  parser.option("--tokens", a.tokens, "of each file no more than so many tokens, in whole rows; else all")
      .positive();
  parser.option("--batch", s.batch, "rows that a rank evaluates at once; of choices one")
      .positive()
      .shows_default();
  parser.option("--packing", s.packing, "data.packing; else the checkpoint's, or auto");
  parser.option("--format", a.format, "data.format; else auto");
  parser.option("--dtype", s.dtype, "to compute in; else the checkpoint's, and bf16 for a folder")
      .one_of({"bf16", "fp16", "fp32", "fp64"});
  parser.option("--tensor", a.tensor, "ranks over which heads and feed-forwards are cut (mesh.tensor)")
      .positive();
  parser.option("--pipeline", a.pipeline, "groups of ranks that have some of the layers each (mesh.pipeline)")
      .positive();
  parser
      .option(
          "--write-likelihoods", a.likelihoods,
          "file that gets the likeliest words of each token of --data, for distillation.teacher of a deck")
      .local_path();
  parser.option("--top-k", a.top_k, "words of each token in the file of --write-likelihoods")
      .range(2, static_cast<int>(most_teacher_words))
      .shows_default();
  parser.flag("--ema", a.averages,
              "take the moving averages of the checkpoint's trained weights (optimizer.ema_decay)");
  parser.flag("--json", a.json, "print JSON, with the log-probabilities of all choices");
  parser.keep_others();
}

/// Returns what contradicts itself in the words, or "".
std::string contradiction(const EvaluateArguments& a) {
  if (a.data.empty() == a.choices.empty()) return "give files with --data, or a file with --choices";
  if (a.choices.empty()) return "";
  if (a.settings.batch != 1) return "--batch: choices are evaluated one by one on a rank: leave it out";
  const bool data =
      a.tokens != EvaluateArguments{}.tokens || !a.format.empty() || !a.settings.packing.empty();
  if (!a.likelihoods.empty()) return "--write-likelihoods is of the tokens of --data: leave it out";
  return data ? "--tokens, --format and --packing are of --data: leave them out" : "";
}

}  // namespace

int evaluate(const Invocation& call) {
  Parser parser(
      "Loss and perplexity of a model on files, or its accuracy in multiple choice. Keys of a deck that say "
      "how ranks share the work may follow, such as --mesh.context=2",
      "ztrain evaluate");
  EvaluateArguments a;
  add_options(parser, a);
  if (const auto code = parser.parse(call)) return *code;
  a.settings.overrides = parser.remaining();
  const auto set = [&](const char* key, const std::string& value) {
    if (!value.empty()) a.settings.overrides.push_back(fmt::format("--{}={}", key, value));
  };
  set("data.format", a.format);
  if (a.tensor > 1) set("mesh.tensor", fmt::to_string(a.tensor));
  if (a.pipeline > 1) set("mesh.pipeline", fmt::to_string(a.pipeline));
  if (!a.choices.empty()) set("data.packing", "windows");
  call.session.agree("reading the command line", [&] {
    const std::string wrong = contradiction(a);
    REQUIRE(wrong.empty(), "{}", wrong);
  });
  run(call, a);
  return 0;
}

}  // namespace ztrain::app
