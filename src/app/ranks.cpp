#include <fmt/format.h>

#include "app/parse.hpp"
#include "config/text/load.hpp"
#include "kernel_interface/target.hpp"
#include "plan/setup.hpp"
#include "runtime/session/session.hpp"
#include "telemetry/console.hpp"
#include "telemetry/watchdog.hpp"

namespace ztrain::app {

int ranks(const Invocation& call) {
  Parser parser(
      "The largest number of ranks that a deck's mesh and batch take, on one line. slurm/launch.sh asks it "
      "where nodes have failed; whether the job fits their memory is for the run to find",
      "ztrain ranks");
  std::string path;
  int most = 0, per_node = 0;
  parser.option("deck", path, "the deck").required().local_path();
  parser.option("--most", most, "ranks that there may be").required().range(1, 1 << 20);
  parser.option("--per-node", per_node, "ranks that a node may have (default: all)").range(1, 1 << 20);
  parser.keep_others();
  if (const auto code = parser.parse(call)) return *code;
  call.session.agree("looking for a number of ranks", [&] {
    const config::Deck deck = config::load_deck(path, parser.remaining(), config::Files::elsewhere);
    const int largest = plan::largest_legal_ranks(deck, most, per_node > 0 ? per_node : most, build_target());
    call.console.print(fmt::format("{}\n", largest));
  });
  return 0;
}

}  // namespace ztrain::app
