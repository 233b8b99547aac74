#include "app/commands.hpp"
#include "config/text/load.hpp"
#include "runtime/session/session.hpp"
#include "train/trainer.hpp"

namespace ztrain::app {

int train(const Invocation& call) {
  auto deck = call.session.agree("reading the deck", [&] {
    return config::load_deck(call.words.front(), {call.words.begin() + 1, call.words.end()});
  });
  train::Trainer(call.session, call.console, std::move(deck), ZTRAIN_VERSION).run();
  return 0;
}

}  // namespace ztrain::app
