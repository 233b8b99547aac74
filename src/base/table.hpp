#pragma once
// Tables of text.

#include <string>
#include <vector>

namespace ztrain {

/// Text in aligned columns: the first to the left, the others to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header);
  /// Adds a row. Missing cells are empty. Throws Error if there are more cells than columns.
  void row(std::vector<std::string> cells);
  /// Adds a horizontal line, as before a sum.
  void rule();
  /// Returns lines, each indented by this many spaces and ended by a newline.
  std::string text(int indent = 0) const;

 private:
  std::vector<std::vector<std::string>> rows_;  ///< an empty row is a horizontal line
};

}  // namespace ztrain
