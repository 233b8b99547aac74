#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "app/parse.hpp"
#include "app/question.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "bench/bench.hpp"
#include "bench/calibrate/calibrate.hpp"
#include "config/validate/validate.hpp"
#include "files/file.hpp"
#include "plan/cost.hpp"
#include "runtime/session/session.hpp"

namespace ztrain::app {
namespace {

/// Returns the deck, resolved for the session's ranks.
config::Deck read_deck(const runtime::Session& session, const std::string& path,
                       const std::vector<std::string>& overrides) {
  config::Deck deck = plan::deck_of(question_for(path, overrides));
  config::validate_for_ranks(deck, session.size(), session.max_ranks_per_node());
  return deck;
}

/// Prints the machine file. `json` is the file that gets the measurements, if it has a name.
int calibrate(const Invocation& call, const bench::CalibrationRequest& request, const std::string& json) {
  const bool first = call.session.rank() == 0;
  std::optional<OutputFile> file;
  call.session.agree("writing the measurements", [&] {
    if (first && !json.empty()) file.emplace(create_output(json, "--json", {}));
  });
  const bench::Calibrated found = bench::calibrate(call.session, call.console, request);
  call.session.agree("writing the measurements", [&] {
    if (!first) return;
    call.console.print(plan::machine_text(found.rates));
    if (!file) return;
    file->write(json_text(bench::times_json(found), 1) + "\n");
    file->close();
  });
  return 0;
}

}  // namespace

int bench(const Invocation& call) {
  Parser parser("Times a deck's step on random tokens; its data and weights are not read", "ztrain bench");
  std::string path, json;
  bench::BenchRequest request;
  bench::CalibrationRequest calibration;
  bool calibrates = false;
  parser.option("deck", path, "the deck").local_path();
  parser.option("--steps", request.steps, "timed steps (default: 10)").range(1, 1'000'000);
  parser.option("--warmup", request.warmup, "steps before them (default: 3)").range(0, 1'000'000);
  parser.flag("--kernels", request.kernels, "also run each kernel of the step alone");
  parser.flag(
      "--calibrate", calibrates,
      "no deck: print a machine file of this node, which `ztrain plan --machine FILE` takes (CPU ranks)");
  parser.flag("--quick", calibration.quick, "with --calibrate: small decks alone, seconds, rough rates");
  parser.option("--json", json, "file for the same numbers as one JSON object").local_path();
  parser.keep_others();
  if (const auto code = parser.parse(call)) return *code;
  if (path.empty() && !calibrates) {
    call.console.print_error("ztrain bench: give a deck, or --calibrate; see ztrain bench --help\n");
    return 2;
  }
  call.session.agree("reading the command", [&] {
    REQUIRE(path.empty() || !calibrates, "--calibrate has decks of its own: leave {} out", path);
    REQUIRE(calibrates || !calibration.quick, "--quick is for --calibrate");
    REQUIRE(!calibrates || (!request.kernels && parser.remaining().empty()),
            "--calibrate takes no options but --quick and --json");
  });
  const bool first = call.session.rank() == 0;
  std::optional<OutputFile> file;
  if (calibrates) return calibrate(call, calibration, json);
  const config::Deck deck = call.session.agree("reading the deck", [&] {
    config::Deck d = read_deck(call.session, path, parser.remaining());
    // The file is made before the benchmark, so that a path that cannot be written is found at once.
    if (first && !json.empty()) file.emplace(create_output(json, "--json", {path}));
    return d;
  });
  const bench::Bench result = bench::run_bench(call.session, call.console, deck, request);
  call.session.agree("writing the report", [&] {
    if (!first) return;
    call.console.print(fmt::format("ztrain {}, {} of {} steps after {}\n{}", ZTRAIN_VERSION, path,
                                   request.steps, request.warmup, bench::bench_text(result, deck)));
    if (!file) return;
    file->write(json_text(bench::bench_json(result, deck, ZTRAIN_VERSION), 1) + "\n");
    file->close();
  });
  return 0;
}

}  // namespace ztrain::app
