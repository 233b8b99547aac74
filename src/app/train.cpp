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
  train::Trainer(call.session, call.console, call.watchdog, std::move(deck), ZTRAIN_VERSION).run();
  return 0;
}

}  // namespace ztrain::app
