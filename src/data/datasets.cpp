#include "data/datasets.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"

namespace ztrain::data {
namespace {

TokenRange whole(const std::vector<std::string>& patterns, const std::string& format,
                 const std::string& key) {
  std::shared_ptr<const TokenSource> source = open_tokens(patterns, format, key);
  const std::int64_t size = source->size();
  return {std::move(source), 0, size, key};
}

/// Cuts the held-out end off the training range.
void hold_out(const config::Data& data, Datasets& sets) {
  const std::int64_t window = data.sequence + 1, size = sets.train.end;
  const auto wanted = std::llround(data.validation_fraction * static_cast<double>(size));
  const std::int64_t held = std::max<std::int64_t>(wanted, window);
  REQUIRE(size - held >= window,
          "data.train has {} tokens; data.validation_fraction ({}) holds out {} of them, and the rest is "
          "fewer than one "
          "window of data.sequence + 1 = {}: give more data, data.validation, or a shorter data.sequence",
          size, data.validation_fraction, held, window);
  sets.train.end = size - held;
  sets.validation = sets.train;
  sets.validation.begin = size - held;
  sets.validation.end = size;
}

std::int64_t vocabulary(const config::Deck& deck, const Datasets& sets) {
  if (deck.model.vocab_size > 0) return deck.model.vocab_size;
  const std::int64_t known = sets.train.source->known_vocab();
  REQUIRE(known > 0,
          "model.vocab_size is 0, and the files of data.train do not say it (text and llm.c's files do): "
          "give it");
  return known;
}

}  // namespace

Datasets open_datasets(const config::Deck& deck) {
  const config::Data& data = deck.data;
  Datasets sets;
  sets.train = whole(data.train, data.format, "data.train");
  if (!data.validation.empty()) {
    sets.validation = whole(data.validation, data.format, "data.validation");
    REQUIRE(sets.validation.windows(data.sequence) > 0,
            "data.validation has {} tokens, fewer than one window of data.sequence + 1 = {}",
            sets.validation.end, data.sequence + 1);
  } else if (data.validation_fraction > 0) {
    hold_out(data, sets);
  }
  REQUIRE(sets.train.windows(data.sequence) > 0,
          "data.train has {} tokens, fewer than one window of data.sequence + 1 = {}", sets.train.end,
          data.sequence + 1);
  sets.vocab_size = vocabulary(deck, sets);
  sets.identity = hash_text(fmt::format("{} {}", sets.train.source->identity(), sets.train.end));
  if (!data.validation.empty()) {
    sets.identity = hash_text(fmt::format("{}", sets.validation.source->identity()), sets.identity);
  }
  return sets;
}

}  // namespace ztrain::data
