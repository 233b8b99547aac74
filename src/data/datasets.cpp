#include "data/datasets.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/preference_loss.hpp"
#include "data/rows/joined_rows.hpp"

namespace ztrain::data {
namespace {

using Patterns = std::vector<std::string>;

/// Returns a name that is not among `taken`: the stem of the pattern, else the pattern, else the pattern and
/// a number.
std::string name_for(const std::string& pattern, const std::vector<Entry>& taken) {
  const auto is_taken = [&](const std::string& name) {
    return std::any_of(taken.begin(), taken.end(), [&](const Entry& e) { return e.name == name; });
  };
  std::string name = std::filesystem::path(pattern).stem().string();
  if (is_taken(name)) name = pattern;
  for (int i = 2; is_taken(name); ++i) name = fmt::format("{} ({})", pattern, i);
  return name;
}

/// Returns what the documents must be for the deck's loss.
std::string preference_of(const config::Deck& deck) {
  return deck.preference.is_on() ? std::string(find_pair_loss(deck.preference.loss_type).data()) : "";
}

std::vector<Entry> open_each(const config::Deck& deck, const Patterns& patterns, const std::string& key,
                             const Listener& next) {
  std::vector<Entry> entries;
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    const std::string own = patterns.size() > 1 ? fmt::format("{}[{}]", key, i) : key;
    next(own);
    entries.push_back({own, name_for(patterns[i], entries),
                       open_tokens({patterns[i]}, deck.data.format, own, reader_of(deck)),
                       preference_of(deck), is_reward_loss(deck.preference.loss_type)});
  }
  return entries;
}

std::vector<Entry> open_train(const config::Deck& deck, const Listener& next) {
  const config::Data& data = deck.data;
  if (!data.weights.empty()) return open_each(deck, data.train, "data.train", next);
  next("data.train");
  return {{"data.train", "held out", open_tokens(data.train, data.format, "data.train", reader_of(deck)),
           preference_of(deck), is_reward_loss(deck.preference.loss_type)}};
}

std::string name_of(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

/// Returns the files of a source of data.train, in their order.
Patterns files_of_source(const config::Data& data, std::size_t source, const std::string& key) {
  return expand_patterns(data.weights.empty() ? data.train : Patterns{data.train[source]}, key);
}

/// Opens the named files of a source. Folders do not count: of files of one name the first is taken first.
Entry open_part(const config::Deck& deck, const Entry& source, Patterns& files, const Patterns& names) {
  Patterns paths;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(files, name, name_of);
    REQUIRE(found != files.end(), "{}: the run has read '{}', which is not there any more", source.key, name);
    paths.push_back(*found);
    files.erase(found);
  }
  Entry part = source;
  part.tokens = open_tokens(paths, deck.data.format, source.key, reader_of(deck));
  return part;
}

/// Makes the rows of a source by the parts in which its files joined it; none: all at once. Adds the ends of
/// the files to `ends`.
SplitRows rows_of_source(const config::Deck& deck, const Entry& source, Patterns files,
                         const std::vector<Patterns>& parts, double fraction, std::uint64_t& ends) {
  SplitRows all;
  std::vector<std::shared_ptr<const RowSource>> rows;
  const auto add = [&](const Entry& entry, Patterns names) {
    const std::uint64_t own_ends = entry.tokens->end_identity();
    ends = hash_text(hex(own_ends), ends);
    SplitRows part = make_rows(entry, deck.data, rows.empty() ? fraction : 0, deck.model.vocab_size);
    RowSet& set = part.train;
    const std::uint64_t content =
        hash_text(fmt::format("{} {} {}", set.identity, own_ends, deck.data.sequence));
    rows.push_back(set.rows);
    std::vector<FilePart> joined = std::move(all.train.parts);
    joined.push_back({std::move(names), set.rows->rows(), content, 0});
    if (joined.size() == 1) {
      all = std::move(part);
    } else {
      all.train.documents += set.documents;
      all.train.identity = hash_text(hex(set.identity), all.train.identity);
    }
    all.train.parts = std::move(joined);
  };
  REQUIRE(parts.size() < 2 || source.preference.empty(),
          "{}: files cannot join a run with preference.loss_type = \"{}\": its reference knows the answers "
          "that it "
          "began with",
          source.key, deck.preference.loss_type);
  REQUIRE(parts.size() < 2 || !deck.distillation.is_on(),
          "{}: files cannot join a run with distillation.teacher = \"{}\": it knows the files that the run "
          "began with",
          source.key, deck.distillation.teacher);
  Patterns names(files);
  std::ranges::transform(files, names.begin(), name_of);
  if (parts.empty()) add(source, std::move(names));
  for (const Patterns& part : parts) add(open_part(deck, source, files, part), part);
  if (rows.size() > 1) all.train.rows = std::make_shared<const JoinedRows>(std::move(rows));
  return all;
}

Tokenizer tokenizer_of(const std::vector<Entry>& train, const std::vector<Entry>& validation) {
  Tokenizer all;
  for (const auto* entries : {&train, &validation})
    for (const Entry& entry : *entries) all = joined(all, entry.tokens->tokenizer(), entry.key);
  return all;
}

std::int64_t vocabulary(const config::Deck& deck, const std::vector<Entry>& train,
                        const Tokenizer& tokenizer) {
  const std::int64_t given = deck.model.vocab_size;
  REQUIRE(
      deck.model.from.empty() || tokenizer.vocab_size <= given,
      "'{}' was made with another tokenizer ({}{} ids) than the model of model.from has (model.vocab_size, "
      "{}): prepare it with the tokenizer of that model, or, if it is that tokenizer with new tokens, set "
      "model.add_tokens = {}",
      tokenizer.vocab_file, tokenizer.name.empty() ? "" : fmt::format("'{}', ", tokenizer.name),
      tokenizer.vocab_size, given, tokenizer.vocab_size - given + deck.model.add_tokens);
  REQUIRE(given == 0 || tokenizer.vocab_size <= given,
          "model.vocab_size ({}) is below the vocabulary of '{}' ({}); give that or more", given,
          tokenizer.vocab_file, tokenizer.vocab_size);
  if (given > 0) return given;
  std::int64_t known = tokenizer.vocab_size;
  for (const Entry& entry : train) {
    const std::int64_t own = entry.tokens->known_vocab();
    REQUIRE(own > 0,
            "model.vocab_size is 0, and the files of {} do not say it (text, llm.c's files and those of "
            "tools/prepare_data.py do): give it",
            entry.key);
    known = std::max(known, own);
  }
  return known;
}

/// Returns a warning if the file's integers are too narrow for the vocabulary: larger ids would have been cut
/// off without a trace. Bytes are left out, because they lack nothing but the separator between texts.
std::string warning_on_width(const Entry& entry, std::int64_t vocab_size) {
  const NarrowIds narrow = entry.tokens->narrow_ids();
  const std::int64_t own = entry.tokens->known_vocab();
  const bool holds_all = own > 0 && own <= narrow.limit;
  if (narrow.limit == 0 || vocab_size <= narrow.limit || vocab_size == text_vocab || holds_all) return "";
  return fmt::format(
      "warning: {}: '{}' holds ids below {} alone, by its type of integers, and model.vocab_size is {}: "
      "larger ids of its tokenizer, if there are any, were cut off; write wider integers",
      entry.key, narrow.file, narrow.limit, vocab_size);
}

/// Returns a warning if the tokens' vocabulary is far smaller than the model's.
std::string warning_on_vocabulary(const Entry& entry, std::int64_t vocab_size) {
  const Tokenizer& tokenizer = entry.tokens->tokenizer();
  if (tokenizer.vocab_size == 0 || tokenizer.vocab_size > vocab_size / 2) return "";
  return fmt::format(
      "warning: {}: '{}' was written with {} ids, and model.vocab_size is {}: to a model of another "
      "tokenizer its ids are other words",
      entry.key, tokenizer.vocab_file, tokenizer.vocab_size, vocab_size);
}

/// Returns a warning if more than a tenth of the tokens are in no row, because documents are too long.
std::string warning_on_length(const Entry& entry, const config::Data& data, const DocumentCounts& counts) {
  constexpr std::int64_t many = 10;
  const std::int64_t all = entry.tokens->size();
  if (counts.cut_off <= all / many) return "";
  return fmt::format(
      "warning: {}: {}: {} of {} tokens are not used: documents longer than data.sequence ({}) are {}; "
      "data.long_documents = \"split\" keeps all",
      entry.key, files_of(*entry.tokens), counts.cut_off, all, data.sequence,
      counts.dropped > 0 ? "dropped" : "truncated");
}

void warn(Datasets& sets, std::string warning) {
  if (!warning.empty()) sets.warnings.push_back(std::move(warning));
}

void warn_of_vocabulary(Datasets& sets, const std::vector<Entry>& entries) {
  for (const Entry& entry : entries) {
    warn(sets, warning_on_width(entry, sets.vocab_size));
    warn(sets, warning_on_vocabulary(entry, sets.vocab_size));
  }
}

}  // namespace

Reader reader_of(const config::Deck& deck) {
  return {deck.model.vocab_size, deck.model.origin, deck.data.stage};
}

std::int64_t vocabulary_of(const config::Deck& deck) {
  const std::vector<Entry> train = open_train(deck, hear_nothing);
  const auto validation = open_each(deck, deck.data.validation, "data.validation", hear_nothing);
  return vocabulary(deck, train, tokenizer_of(train, validation));
}

Datasets open_datasets(const config::Deck& deck, const Listener& next, const FileLists& parts) {
  const double start = now();
  const config::Data& data = deck.data;
  std::vector<Entry> train = open_train(deck, next), validation;
  validation = open_each(deck, data.validation, "data.validation", next);
  Datasets sets;
  sets.tokenizer = tokenizer_of(train, validation);
  sets.vocab_size = vocabulary(deck, train, sets.tokenizer);
  const std::vector<std::int32_t>& ends = sets.tokenizer.ends;
  REQUIRE(ends.empty() || ends.back() < sets.vocab_size,
          "model.vocab_size ({}) is not above token {}, which ends the texts of the data (eos_id): give more",
          sets.vocab_size, ends.back());
  for (const auto* entries : {&train, &validation}) warn_of_vocabulary(sets, *entries);
  if (deck.distillation.is_on()) {
    next("distillation.teacher");
    sets.teacher = std::make_shared<const Teacher>(deck, sets.vocab_size);
    for (Entry& entry : train) entry.first_place = sets.teacher->place_of(entry);
  }
  config::Deck known = deck;
  known.model.vocab_size = sets.vocab_size;
  const double fraction = validation.empty() ? data.validation_fraction : 0;
  for (std::size_t s = 0; s < train.size(); ++s) {
    const Entry& entry = train[s];
    next("rows of " + entry.key);
    SplitRows split =
        rows_of_source(known, entry, files_of_source(data, s, entry.key),
                       parts.empty() ? std::vector<Patterns>{} : parts.at(s), fraction, sets.ends);
    warn(sets, warning_on_length(entry, data, split.train.documents));
    sets.train.push_back(std::move(split.train));
    if (split.held_out.rows) sets.validation.push_back(std::move(split.held_out));
  }
  for (const Entry& entry : validation) {
    next("rows of " + entry.key);
    sets.validation.push_back(make_validation_rows(entry, data, sets.vocab_size));
  }
  sets.seconds = now() - start;
  return sets;
}

Datasets open_to_evaluate(const config::Deck& deck, const std::vector<std::string>& files,
                          const std::string& key, std::int64_t tokens, const Listener& next) {
  std::vector<Entry> entries = open_each(deck, files, key, next);
  Datasets sets;
  std::int64_t place = 0;
  for (Entry& entry : entries) {
    require_documents(entry);
    sets.places.push_back(likelihood_source(entry, deck.data));
    sets.places.back().begin = entry.first_place = place;
    place += entry.tokens->size();
  }
  sets.tokenizer = tokenizer_of({}, entries);
  sets.vocab_size = vocabulary(deck, {}, sets.tokenizer);
  warn_of_vocabulary(sets, entries);
  for (const Entry& entry : entries) {
    next("rows of " + entry.key);
    sets.validation.push_back(make_rows_to_evaluate(entry, deck.data, tokens, sets.vocab_size));
    warn(sets, warning_on_length(entry, deck.data, sets.validation.back().documents));
  }
  return sets;
}

Sampler make_sampler(const config::Deck& deck, const Datasets& sets, const Course& course) {
  std::vector<std::shared_ptr<const RowSource>> sources;
  for (const RowSet& set : sets.train) sources.push_back(set.rows);
  return {std::move(sources), deck.data.weights, deck.run.seed, course};
}

Identity identity_of(const Datasets& sets) {
  Identity identity;
  for (const RowSet& set : sets.train) identity.train = hash_text(hex(set.identity), identity.train);
  for (const RowSet& set : sets.validation) {
    identity.validation.emplace_back(set.name, set.identity);
    identity.validation_rows.push_back(set.rows->rows());
  }
  identity.ends = sets.ends;
  identity.tokenizer = sets.tokenizer.hash;
  identity.chat_template = sets.tokenizer.chat_template_hash;
  return identity;
}

std::uint64_t hash_of(const Identity& identity) {
  std::string text = hex(identity.train) + hex(identity.ends) + identity.tokenizer + identity.chat_template;
  for (const auto& [name, value] : identity.validation) text += name + hex(value);
  return hash_text(text);
}

}  // namespace ztrain::data
