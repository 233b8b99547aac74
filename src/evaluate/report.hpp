#pragma once
// Writes the results of an evaluation for people and as JSON.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "data/rows/row_sets.hpp"
#include "evaluate/choices.hpp"
#include "job/evaluation.hpp"

namespace ztrain::evaluate {

/// Losses of files; sets are those of the losses, and files the names under which a user gave them.
struct FileLosses {
  job::Losses losses;
  std::vector<data::RowSet> sets;
  std::vector<std::string> files;
};

/// Log-probabilities of the choices of each item, in nats.
struct Scored {
  Items items;
  std::vector<std::vector<double>> log_probabilities;  ///< by item, by choice
  std::string file;
};

/// Returns the sums of each item's rows, whose losses are given.
Scored score(Items items, const std::vector<double>& losses, std::string file);

/// Returns a table with a line for each file and one for all: documents, tokens, loss and perplexity.
std::string text_of(const FileLosses& found);
/// Returns a table with a line for each measure: the accuracy and its standard error.
std::string text_of(const Scored& found);

/// Return members for the object that is printed. A number that is not known is null.
nlohmann::ordered_json json_of(const FileLosses& found);
nlohmann::ordered_json json_of(const Scored& found);

}  // namespace ztrain::evaluate
