#include "base/table.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"

namespace ztrain {

Table::Table(std::vector<std::string> header) {
  REQUIRE(!header.empty(), "a table needs a column");
  rows_.push_back(std::move(header));
  rule();
}

void Table::row(std::vector<std::string> cells) {
  REQUIRE(!cells.empty() && cells.size() <= rows_.front().size(),
          "a row of {} cells in a table of {} columns", cells.size(), rows_.front().size());
  cells.resize(rows_.front().size());
  rows_.push_back(std::move(cells));
}

void Table::rule() {
  rows_.emplace_back();
}

std::string Table::text(int indent) const {
  std::vector<std::size_t> width(rows_.front().size(), 0);
  for (const auto& cells : rows_)
    for (std::size_t c = 0; c < cells.size(); ++c) width[c] = std::max(width[c], cells[c].size());
  std::size_t total = 2 * (width.size() - 1);
  for (const std::size_t w : width) total += w;
  const std::string margin(static_cast<std::size_t>(indent), ' ');
  std::string out;
  for (const auto& cells : rows_) {
    std::string line = cells.empty() ? std::string(total, '-') : fmt::format("{:<{}}", cells[0], width[0]);
    for (std::size_t c = 1; c < cells.size(); ++c) line += fmt::format("  {:>{}}", cells[c], width[c]);
    line.erase(line.find_last_not_of(' ') + 1);
    out += margin + line + '\n';
  }
  return out;
}

}  // namespace ztrain
