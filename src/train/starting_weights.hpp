#pragma once
// The weights that model.from names, read where other runs draw theirs.

#include <functional>
#include <string>

#include "config/deck.hpp"
#include "runtime/session.hpp"
#include "train/worker.hpp"

namespace ztrain::train {

/// Collective: reads the weights, draws adapters that they lack, and makes the rest of the state that of a
/// new run. Says through `say`, which rank 0 prints, how it goes on, how fast it was, and what memory the
/// operating system counts for each rank before anything but the weights was touched. Throws AgreedError.
void start_from_weights(const runtime::Session& session, Worker& worker, const config::Deck& deck,
                        const std::function<void(const std::string& line)>& say);

}  // namespace ztrain::train
