#include "train/exchange_places.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "train/output_folder.hpp"

namespace ztrain::train {

std::unique_ptr<telemetry::Watchdog::Exchange> exchange_places(const runtime::Session& session,
                                                               telemetry::Console& console,
                                                               telemetry::Watchdog& watchdog,
                                                               const job::Worker& worker,
                                                               const config::Deck& deck) {
  if (session.size() == 1 || deck.watchdog.timeout <= 0) return nullptr;
  const std::string folder = (std::filesystem::path(deck.run.output) / places_name).string();
  const auto place = [&worker, host = session.host()] {
    telemetry::Place here = worker.place();
    here.host = host;
    return here;
  };
  std::unique_ptr<telemetry::Watchdog::Exchange> exchange;
  try {
    // What an earlier run has left would pass for an answer.
    session.agree("preparing the folder of the ranks' places", [&] {
      if (session.rank() != 0) return;
      std::filesystem::create_directory(folder);
      telemetry::remove_places(folder);
    });
    session.agree("writing the ranks' places", [&] {
      exchange = std::make_unique<telemetry::Watchdog::Exchange>(
          watchdog, telemetry::PlaceFolder{folder, session.size()}, place);
    });
  } catch (const runtime::AgreedError& e) {
    exchange.reset();
    console.print(
        fmt::format("warning: ranks that hang could not tell each other where they are, and each would tell "
                    "of itself: {}\n",
                    e.what()));
  }
  return exchange;
}

}  // namespace ztrain::train
