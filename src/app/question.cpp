#include "app/question.hpp"

#include "base/error.hpp"
#include "config/text/load.hpp"
#include "data/datasets.hpp"

namespace ztrain::app {

plan::Question question_for(const std::string& deck, const std::vector<std::string>& overrides) {
  plan::Question question{.deck = deck, .overrides = overrides};
  if (plan::deck_of(question).model.vocab_size > 0) return question;
  try {
    question.vocabulary = data::vocabulary_of(config::load_deck(deck, overrides));
  } catch (const Error& error) {
    fail("{}\nThe model's vocabulary is that of the data: give them, or model.vocab_size", error.what());
  }
  return question;
}

}  // namespace ztrain::app
