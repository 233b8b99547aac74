#include <fmt/format.h>

#include <filesystem>
#include <numeric>
#include <set>

#include "base/text.hpp"
#include "data/datasets.hpp"
#include "data/mixture.hpp"
#include "data/tokens/token_source.hpp"

namespace ztrain::data {
namespace {

constexpr double worth_a_line = 2;  // seconds from which opening is worth a line

/// Returns text such as "; of 712 documents 12 truncated, 3 without a trained token left out".
std::string left_out(const DocumentCounts& n) {
  std::string text;
  const auto add = [&](std::int64_t count, const char* what) {
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? " " : ", ", count, what);
  };
  add(n.truncated, "truncated to data.sequence");
  add(n.split, "split");
  add(n.dropped, "longer than data.sequence dropped");
  add(n.untrained, "without a token to predict left out");
  return text.empty() ? "" : fmt::format("; of {}{}", count_text(n.documents, "document"), text);
}

/// Returns what takes long. Of plain tokens nothing but samples is read.
std::string work_of_opening(const Datasets& sets) {
  bool documents = false, masks = false;
  for (const auto* part : {&sets.train, &sets.validation})
    for (const RowSet& set : *part) {
      const RowCounts n = set.rows->counts();
      documents = documents || n.documents > 0;
      masks = masks || n.trained < n.tokens;
    }
  if (documents) return ": every rank reads document offsets and masks whole, and packs the documents";
  return masks ? ": every rank reads masks whole" : "";
}

}  // namespace

std::string describe(const RowSet& set) {
  const RowCounts n = set.rows->counts();
  const std::int64_t sequence = set.rows->sequence(), places = n.rows * sequence;
  const std::string trained =
      n.trained == n.tokens ? "" : fmt::format(", {} trained", format_count(static_cast<double>(n.trained)));
  if (n.documents == 0)
    return fmt::format("{} of {} tokens{}", count_text(n.rows, "window"), sequence, trained);
  return fmt::format(
      "packed documents: {} of {}, {}, {} tokens ({:.1f}% of the rows){}{}", count_text(n.rows, "row"),
      sequence, count_text(n.documents, "document"), format_count(static_cast<double>(n.tokens)),
      100.0 * static_cast<double>(n.tokens) / static_cast<double>(places), trained, left_out(set.documents));
}

std::vector<std::pair<std::string, std::string>> describe(const config::Deck& deck, const Datasets& sets) {
  std::vector<std::pair<std::string, std::string>> lines;
  const std::vector<std::int64_t> shares =
      deck.data.weights.empty() ? std::vector<std::int64_t>{1} : shares_of(deck.data.weights);
  const std::int64_t period = std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
  for (std::size_t i = 0; i < sets.train.size(); ++i) {
    const std::string share =
        shares.size() == 1 ? ""
                           : fmt::format("{}, {} of {} sequences: ", sets.train[i].name, shares[i], period);
    lines.emplace_back("data", share + describe(sets.train[i]));
  }
  for (const RowSet& set : sets.validation)
    lines.emplace_back("validation", fmt::format("{}: {}", set.name, describe(set)));
  if (sets.seconds > worth_a_line)
    lines.emplace_back("opening",
                       fmt::format("{:.1f} s for the data{}", sets.seconds, work_of_opening(sets)));
  return lines;
}

std::vector<std::string> warnings_on(const config::Deck& deck) {
  const config::Data& data = deck.data;
  const std::vector<std::string> train = expand_patterns(data.train, "data.train"),
                                 validation = expand_patterns(data.validation, "data.validation");
  std::vector<std::string> warnings;
  for (const auto* files : {&train, &validation})
    if (std::string note = data.format == "text" ? note_on_records(*files, reader_of(deck)) : "";
        !note.empty())
      warnings.push_back(std::move(note));
  std::set<std::filesystem::path> trained;
  std::error_code unknown;
  for (const std::string& file : train) trained.insert(std::filesystem::weakly_canonical(file, unknown));
  for (const std::string& file : validation)
    if (trained.contains(std::filesystem::weakly_canonical(file, unknown))) {
      warnings.push_back(fmt::format(
          "warning: '{}' is in data.validation and in data.train: its loss is that of what is "
          "trained on, and tells nothing of other texts; data.validation_fraction holds a part out",
          file));
      break;
    }
  return warnings;
}

}  // namespace ztrain::data
