#pragma once
// What rows hold, for people.

#include <string>
#include <utility>
#include <vector>

#include "config/deck.hpp"
#include "data/datasets.hpp"

namespace ztrain::data {

/// "packed documents: 120 rows of 512, 700 documents, 58.9k tokens (95.9% of the rows), 20.1k trained; of 712
/// documents 12 truncated to data.sequence"
std::string describe(const RowSet& set);

/// A line per source and per validation set, as (label of at most 10 characters, text).
std::vector<std::pair<std::string, std::string>> describe(const config::Deck& deck, const Datasets& sets);

/// What the files of [data] are that the deck's author may not have meant, a line each. Looks for the files
/// again.
std::vector<std::string> warnings_on(const config::Deck& deck);

}  // namespace ztrain::data
