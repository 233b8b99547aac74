#include <fmt/format.h>

#include "app/commands.hpp"
#include "config/text/load.hpp"
#include "runtime/session/session.hpp"
#include "telemetry/console.hpp"
#include "telemetry/watchdog.hpp"
#include "train/trainer.hpp"

namespace ztrain::app {

int train(const Invocation& call) {
  auto deck = call.session.agree("reading the deck", [&] {
    const telemetry::Phase phase(call.console, "reading the deck");
    config::Deck read = config::load_deck(call.words.front(), {call.words.begin() + 1, call.words.end()});
    call.watchdog.set_timeout(read.watchdog.timeout);
    return read;
  });
  const train::Ending ending =
      train::Trainer(call.session, call.console, call.watchdog, std::move(deck), ZTRAIN_VERSION).run();
  if (ending != train::Ending::asked_to) return 0;
  call.console.print_error(fmt::format(
      "ztrain: the run is saved before its end: the same command goes on (exit status {})\n", saved_status));
  return saved_status;
}

}  // namespace ztrain::app
