#include "evaluate/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/text.hpp"

namespace ztrain::evaluate {
namespace {

using nlohmann::ordered_json;

/// A way to take the likeliest choice: the log-probability is divided by a length. Names are those of
/// lm-evaluation-harness, which has no acc_tokens.
struct Measure {
  const char* name;
  const char* meaning;
  double (*length)(const Choice&);  ///< 0: not known
};
constexpr std::array measures{Measure{"acc", "the likeliest choice", [](const Choice&) { return 1.0; }},
                              Measure{"acc_norm", "the likeliest per character",
                                      [](const Choice& c) { return static_cast<double>(c.characters); }},
                              Measure{"acc_bytes", "the likeliest per byte",
                                      [](const Choice& c) { return static_cast<double>(c.bytes); }},
                              Measure{"acc_tokens", "the likeliest per token",
                                      [](const Choice& c) { return static_cast<double>(c.tokens.size()); }}};

/// Returns the first of the likeliest choices of an item; nothing if a length is not known.
std::optional<std::size_t> chosen(const Scored& found, std::size_t item, const Measure& measure) {
  std::size_t best = 0;
  double most = -std::numeric_limits<double>::infinity();
  const std::vector<Choice>& choices = (*found.items)[item].choices;
  for (std::size_t c = 0; c < choices.size(); ++c) {
    const double length = measure.length(choices[c]);
    if (length == 0) return std::nullopt;
    if (const double mean = found.log_probabilities[item][c] / length; mean > most) most = mean, best = c;
  }
  return best;
}

struct Accuracy {
  double share = 0, error = 0;  ///< its standard error, of the mean of n draws; NaN for one
};

/// Returns nothing if a length is not known.
std::optional<Accuracy> accuracy(const Scored& found, const Measure& measure) {
  double right = 0;
  for (std::size_t i = 0; i < found.items->size(); ++i) {
    const std::optional<std::size_t> choice = chosen(found, i, measure);
    if (!choice) return std::nullopt;
    right += *choice == (*found.items)[i].answer ? 1 : 0;
  }
  const double n = static_cast<double>(found.items->size()), share = right / n;
  return Accuracy{
      share, n > 1 ? std::sqrt(share * (1 - share) / (n - 1)) : std::numeric_limits<double>::quiet_NaN()};
}

/// Documents of a set that are evaluated; nothing for windows. Parts of a document that was split are one.
std::optional<std::int64_t> documents_of(const data::RowSet& set) {
  const data::DocumentCounts& n = set.documents;
  const std::int64_t there = n.documents - n.untrained - n.dropped;
  if (n.documents == 0) return std::nullopt;
  return std::min(there, set.rows->counts().documents);
}

std::string count_or_dash(std::optional<std::int64_t> count) {
  return count ? fmt::to_string(*count) : "-";
}

std::optional<std::int64_t> documents_of(const std::vector<data::RowSet>& sets) {
  std::optional<std::int64_t> all = 0;
  for (const data::RowSet& set : sets) {
    const auto own = documents_of(set);
    all = all && own ? std::optional(*all + *own) : std::nullopt;
  }
  return all;
}

std::vector<std::string> cells(const std::string& name, std::optional<std::int64_t> documents, double tokens,
                               double loss) {
  return {name, count_or_dash(documents), fmt::format("{:.0f}", tokens), fmt::format("{:.6f}", loss),
          fmt::format("{:.6g}", std::exp(loss))};
}

/// A row of pairs: their number, means of losses and rewards, and the share that is in order.
std::vector<std::string> pair_cells(const std::string& name, const PreferenceSums& p, double loss) {
  std::vector<std::string> row{name, fmt::format("{:.0f}", p.pairs)};
  for (const double number : {loss, p.chosen_reward, p.rejected_reward, p.margin(), p.accurate})
    row.push_back(fmt::format("{:.6f}", number));
  return row;
}

std::string text_of_pairs(const FileLosses& found) {
  Table table({"file", "pairs", "loss", "chosen", "rejected", "margin", "accuracy"});
  const auto& sets = found.losses.sets;
  for (std::size_t i = 0; i < sets.size(); ++i)
    table.row(pair_cells(found.files[i], sets[i].pairs.value_or(PreferenceSums{}), sets[i].loss));
  if (sets.size() > 1) {
    table.rule();
    table.row(pair_cells("all", *found.losses.pairs, found.losses.all));
  }
  return table.text();
}

/// Members as a run's metrics have them.
ordered_json pair_members(const PreferenceSums& p, double loss) {
  return {{"loss", loss},
          {"pairs", static_cast<std::int64_t>(p.pairs)},
          {"rewards_chosen", p.chosen_reward},
          {"rewards_rejected", p.rejected_reward},
          {"rewards_margins", p.margin()},
          {"rewards_accuracies", p.accurate}};
}

ordered_json members(std::optional<std::int64_t> documents, double tokens, double loss) {
  return {{"loss", loss},
          {"perplexity", std::exp(loss)},
          {"tokens", static_cast<std::int64_t>(tokens)},
          {"documents", documents ? ordered_json(*documents) : ordered_json()}};
}

}  // namespace

Scored score(Items items, const std::vector<double>& losses, std::string file) {
  Scored found{std::move(items), {}, std::move(file)};
  auto loss = losses.begin();
  for (const Item& item : *found.items) {
    std::vector<double>& own = found.log_probabilities.emplace_back();
    for (std::size_t c = 0; c < item.choices.size(); ++c) own.push_back(-*loss++);
  }
  return found;
}

std::string text_of(const FileLosses& found) {
  if (found.losses.pairs) return text_of_pairs(found);
  Table table({"file", "documents", "tokens", "loss", "perplexity"});
  const auto& sets = found.losses.sets;
  for (std::size_t i = 0; i < sets.size(); ++i)
    table.row(cells(found.files[i], documents_of(found.sets[i]), sets[i].tokens, sets[i].loss));
  if (sets.size() > 1) {
    table.rule();
    table.row(cells("all", documents_of(found.sets), found.losses.tokens, found.losses.all));
  }
  return table.text();
}

std::string text_of(const Scored& found) {
  std::size_t choices = 0;
  for (const Item& item : *found.items) choices += item.choices.size();
  Table table({fmt::format("{}, {} choices", count_text(std::ssize(*found.items), "item"), choices),
               "accuracy", "standard error"});
  for (const Measure& measure : measures)
    if (const auto a = accuracy(found, measure))
      table.row({fmt::format("{}, {}", measure.name, measure.meaning), fmt::format("{:.4f}", a->share),
                 std::isnan(a->error) ? "-" : fmt::format("{:.4f}", a->error)});
  return table.text();
}

ordered_json json_of(const FileLosses& found) {
  ordered_json files = ordered_json::array();
  const auto& sets = found.losses.sets;
  for (std::size_t i = 0; i < sets.size(); ++i) {
    ordered_json file{{"file", found.files[i]}};
    file.update(sets[i].pairs ? pair_members(*sets[i].pairs, sets[i].loss)
                              : members(documents_of(found.sets[i]), sets[i].tokens, sets[i].loss));
    files.push_back(std::move(file));
  }
  ordered_json all = found.losses.pairs
                         ? pair_members(*found.losses.pairs, found.losses.all)
                         : members(documents_of(found.sets), found.losses.tokens, found.losses.all);
  all["files"] = std::move(files);
  return all;
}

ordered_json json_of(const Scored& found) {
  ordered_json all{{"choices", found.file}, {"n", found.items->size()}};
  for (const Measure& measure : measures)
    if (const auto a = accuracy(found, measure)) {
      all[measure.name] = a->share;
      all[fmt::format("{}_stderr", measure.name)] =
          std::isnan(a->error) ? ordered_json() : ordered_json(a->error);
    }
  ordered_json items = ordered_json::array();
  for (std::size_t i = 0; i < found.items->size(); ++i)
    items.push_back({{"line", (*found.items)[i].line},
                     {"answer", (*found.items)[i].answer},
                     {"chosen", *chosen(found, i, measures.front())},
                     {"log_probabilities", found.log_probabilities[i]}});
  all["items"] = std::move(items);
  return all;
}

}  // namespace ztrain::evaluate
