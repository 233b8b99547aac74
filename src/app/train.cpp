#include <fmt/format.h>

#include <exception>

#include "app/commands.hpp"
#include "base/error.hpp"
#include "config/text/load.hpp"
#include "runtime/session/session.hpp"
#include "telemetry/console.hpp"
#include "telemetry/watchdog.hpp"
#include "train/trainer.hpp"

namespace ztrain::app {
namespace {

/// A failure of this rank alone ends the job while the trainer still exists: destroying it may wait for a
/// file system to which a checkpoint is being written.
train::Ending run(const Invocation& call, train::Trainer& trainer) try {
  return trainer.run();
} catch (const runtime::AgreedError&) {
  throw;
} catch (const std::exception& e) {
  call.console.clear();
  call.session.abort_all(reason_of(e));
}

}  // namespace

int train(const Invocation& call) {
  auto deck = call.session.agree("reading the deck", [&] {
    const telemetry::Phase phase(call.console, "reading the deck");
    config::Deck read = config::load_deck(call.words.front(), {call.words.begin() + 1, call.words.end()});
    call.watchdog.set_timeout(read.watchdog.timeout);
    return read;
  });
  train::Trainer trainer(call.session, call.console, call.watchdog, std::move(deck), ZTRAIN_VERSION);
  if (run(call, trainer) != train::Ending::asked_to) return 0;
  call.console.print_error(fmt::format(
      "ztrain: the run is saved before its end: the same command goes on (exit status {})\n", saved_status));
  return saved_status;
}

}  // namespace ztrain::app
