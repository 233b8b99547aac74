#pragma once
// What `ztrain bench` prints and writes.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/bench.hpp"

namespace ztrain::bench {

/// Tables for people.
std::string bench_text(const Bench& bench, const config::Deck& deck);

/// The same numbers; what is not known is null.
nlohmann::json bench_json(const Bench& bench, const config::Deck& deck, const std::string& version);

}  // namespace ztrain::bench
