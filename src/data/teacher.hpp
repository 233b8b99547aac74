#pragma once
// The likelihoods of a teacher (files/likelihoods.hpp) beside the tokens that a run trains on. Rows tell the
// places of their targets in that file (MicroBatch::places).

#include <memory>
#include <span>
#include <string>

#include "config/deck.hpp"
#include "data/rows/row_sets.hpp"
#include "files/likelihoods.hpp"

namespace ztrain::data {

/// Describes a source as a file of likelihoods does, at place 0. Reads the offsets of documents.
LikelihoodSource likelihood_source(const Entry& entry, const config::Data& data);

/// Words and shares [tokens, top_k] of a micro-batch's tokens.
struct TaughtTokens {
  std::span<std::int32_t> words;
  std::span<float> shares;
};

class Teacher {
 public:
  /// Opens the file. Throws Error naming distillation.teacher and the file if it is none of likelihoods, has
  /// rows of another length, fewer words of a token than distillation.top_k, or another vocabulary.
  Teacher(const config::Deck& deck, std::int64_t vocab_size);

  /// Returns the place of an entry's first token. Throws Error likewise if the file has no such source.
  std::int64_t place_of(const Entry& entry) const;

  /// Writes the likeliest words of the tokens at these places, and their probabilities divided by their sum;
  /// zeros at the places -1. Throws Error naming the file for a token without likelihoods, and for words
  /// outside the vocabulary.
  void fill(std::span<const std::int64_t> places, const TaughtTokens& to) const;

  /// Returns text such as "teacher.h5 of big, 64 words of each token".
  std::string describe() const;

 private:
  void take(std::int64_t place, const std::int32_t* words, const float* logs, std::int32_t* to_words,
            float* to_shares) const;

  config::Distillation settings_;
  std::int64_t vocab_size_;
  config::Data data_;
  LikelihoodFile file_;
};

}  // namespace ztrain::data
