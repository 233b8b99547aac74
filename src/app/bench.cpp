#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "app/parse.hpp"
#include "app/question.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "bench/bench.hpp"
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

}  // namespace

int bench(const Invocation& call) {
  Parser parser("Times a deck's step on random tokens; its data and weights are not read", "ztrain bench");
  std::string path, json;
  bench::BenchRequest request;
  parser.option("deck", path, "the deck").required().local_path();
  parser.option("--steps", request.steps, "timed steps (default: 10)").range(1, 1'000'000);
  parser.option("--warmup", request.warmup, "steps before them (default: 3)").range(0, 1'000'000);
  parser.flag("--kernels", request.kernels, "also run each kernel of the step alone");
  parser.option("--json", json, "file for the same numbers as one JSON object").local_path();
  parser.keep_others();
  if (const auto code = parser.parse(call)) return *code;
  const bool first = call.session.rank() == 0;
  std::optional<OutputFile> file;
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
