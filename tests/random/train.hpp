#pragma once
// Runs of random decks, in this process and its peers.

#include <cstdint>
#include <string>

#include "tests/random/draw.hpp"

namespace ztrain::random_decks {

/// Writes what samples train on into a folder.
void write_data(const std::string& folder);

/// Collective over the session. Trains a deck of these words for so many steps, with a checkpoint at each
/// second step and at the end. Fails the test where bytes or memory are not what was planned. Returns what
/// refused the deck, "" where it was trained.
std::string train(const Words& words, std::int64_t steps, const std::string& data, const std::string& output);

}  // namespace ztrain::random_decks
