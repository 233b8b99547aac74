#include "data/teacher.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.hpp"
#include "base/hash.hpp"

namespace ztrain::data {
namespace {

constexpr const char* teacher_key = "distillation.teacher";

/// Returns the last of consecutive places from places[begin] on, plus one.
std::size_t end_of_run(std::span<const std::int64_t> places, std::size_t begin) {
  std::size_t end = begin + 1;
  while (end < places.size() && places[end] == places[end - 1] + 1) ++end;
  return end;
}

}  // namespace

LikelihoodSource likelihood_source(const Entry& entry, const config::Data& data) {
  const TokenSource& tokens = *entry.tokens;
  const bool documents = in_documents(entry, data);
  std::uint64_t offsets = 0;
  if (documents) {
    const std::vector<std::int64_t> begins = tokens.document_offsets();
    offsets = hash_bytes(begins.data(), begins.size() * sizeof(std::int64_t));
  }
  return {files_of(tokens),
          hex(hash_text(fmt::format("{} {} {}", tokens.identity(), tokens.end_identity(), offsets))),
          documents ? "documents" : "windows", 0, tokens.size()};
}

Teacher::Teacher(const config::Deck& deck, std::int64_t vocab_size)
    : settings_(deck.distillation),
      vocab_size_(vocab_size),
      data_(deck.data),
      file_(deck.distillation.teacher, teacher_key) {
  const LikelihoodHeader& h = file_.header();
  const std::string& path = file_.path();
  REQUIRE(
      h.sequence == data_.sequence,
      "{}: '{}' was made with rows of {} tokens, and data.sequence is {}: a token would have other tokens "
      "before it. Make the file anew with --sequence {}",
      teacher_key, path, h.sequence, data_.sequence, data_.sequence);
  REQUIRE(h.vocab_size == vocab_size,
          "{}: '{}' is of a teacher with a vocabulary of {}, and model.vocab_size is {}: its words are not "
          "those of the student",
          teacher_key, path, h.vocab_size, vocab_size);
  REQUIRE(h.words >= settings_.top_k,
          "distillation.top_k ({}): '{}' has {} words of each token; nearest legal: {}", settings_.top_k,
          path, h.words, h.words);
}

std::int64_t Teacher::place_of(const Entry& entry) const {
  const LikelihoodSource wanted = likelihood_source(entry, data_);
  const std::vector<LikelihoodSource>& sources = file_.header().sources;
  const auto is = [&](const LikelihoodSource& s) {
    return s.identity == wanted.identity && s.tokens == wanted.tokens && s.rows == wanted.rows;
  };
  const auto found = std::ranges::find_if(sources, is);
  if (found != sources.end()) return found->begin;
  std::vector<std::string> names;
  for (const LikelihoodSource& s : sources)
    names.push_back(fmt::format("{} ({} tokens in {})", s.name, s.tokens, s.rows));
  fail(
      "{}: '{}' has likelihoods of other data than {}, which is {} ({} tokens in {}): it has those of {}. "
      "Make it anew, with an entry of --data for each source of data.train",
      teacher_key, file_.path(), entry.key, wanted.name, wanted.tokens, wanted.rows, fmt::join(names, ", "));
}

void Teacher::take(std::int64_t place, const std::int32_t* words, const float* logs, std::int32_t* to_words,
                   float* to_shares) const {
  const std::string& path = file_.path();
  double sum = 0;
  for (std::int64_t w = 0; w < settings_.top_k; ++w) {
    const bool known = words[w] >= 0 && words[w] < vocab_size_ && logs[w] <= 0;
    REQUIRE(known, "{}: '{}' is damaged: at token {} it has the word {} with the log-likelihood {}",
            teacher_key, path, place, words[w], logs[w]);
    sum += std::exp(static_cast<double>(logs[w]));
  }
  // Each word of a token that the teacher was not asked for has the probability 1.
  constexpr double rounding = 1e-3;
  REQUIRE(sum > 0 && sum < 1 + rounding,
          "{}: '{}' has no likelihoods of token {}, which data.train trains: its loss_mask, or --tokens, was "
          "another when the file was made",
          teacher_key, path, place);
  for (std::int64_t w = 0; w < settings_.top_k; ++w) {
    to_words[w] = words[w];
    to_shares[w] = static_cast<float>(std::exp(static_cast<double>(logs[w])) / sum);
  }
}

void Teacher::fill(std::span<const std::int64_t> places, const TaughtTokens& to) const {
  const auto k = static_cast<std::size_t>(settings_.top_k);
  const auto held = static_cast<std::size_t>(file_.header().words);
  ASSERT(to.words.size() == places.size() * k && to.shares.size() == to.words.size(),
         "{} words of teachers for {} tokens", to.words.size(), places.size());
  std::ranges::fill(to.words, 0);
  std::ranges::fill(to.shares, 0.0F);
  std::vector<std::int32_t> words;
  std::vector<float> logs;
  for (std::size_t begin = 0, end = 0; begin < places.size(); begin = end) {
    end = begin + 1;
    if (places[begin] < 0) continue;
    end = end_of_run(places, begin);
    words.resize((end - begin) * held);
    logs.resize(words.size());
    file_.read(places[begin], static_cast<std::int64_t>(end - begin), words.data(), logs.data());
    for (std::size_t i = begin; i < end; ++i)
      take(places[i], &words[(i - begin) * held], &logs[(i - begin) * held], &to.words[i * k],
           &to.shares[i * k]);
  }
}

std::string Teacher::describe() const {
  return fmt::format("{} of {}, {} words of each token", file_.path(), file_.header().teacher,
                     settings_.top_k);
}

}  // namespace ztrain::data
