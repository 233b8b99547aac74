#pragma once
// Tables of text.

#include <string>
#include <vector>

namespace ztrain {

/// Columns of text, aligned: the first to the left, the others to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header);
  /// Missing cells are empty; throws Error when there are more cells than columns.
  void row(std::vector<std::string> cells);
  /// A line across, before a sum.
  void rule();
  /// Lines, each indented by that many spaces and ended by a newline.
  std::string text(int indent = 0) const;

 private:
  std::vector<std::vector<std::string>> rows_;  ///< an empty row is a rule
};

}  // namespace ztrain
