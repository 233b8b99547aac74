#pragma once
// What the check of placements knows of communication that goes part by part beside products: whose rows are
// put where, and whether a sum has the rows of every rank once. As the table of placements it shares nothing
// with the pass that cuts the communication (program/passes/overlap.cpp).

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "program/verify/placement_table.hpp"

namespace ztrain::program {

class RowsCheck {
 public:
  explicit RowsCheck(const Program& program) : program_(program) {}

  /// What comes of an op over an axis, or why it is wrong.
  struct Result {
    Spread letter;
    std::string fault{};
  };

  /// Whether a shift moves a part of the rows of something, or to such a part.
  bool concerns(const Op& op) const;
  /// Rows of which each rank has its own arrive among those of all; or parts of a sum, at the rank whose rows
  /// they are.
  Result shifted(const Op& op, Axis axis, Spread from);

  /// Of own_rows or sum_of_ranks: what this rank's rows become with those of the others. Over an axis that it
  /// does not span they are what they were, and the others alike.
  Result joined(const Op& op, Axis axis, Spread own, Spread others) const;

  /// What is wrong with a product of a part of the rows, or "": they are to be the same of what it reads and
  /// of what it writes.
  std::string misfit(const Op& op) const;

 private:
  bool is_part(TensorId t) const { return program_.storage(t) != t; }
  /// Which of the parts of what it is cut from; -1: of other parts than one for each rank.
  int part_of(TensorId t, int parts) const;
  Result put(TensorId to, Axis axis, Spread from, int owner) const;
  Result sum(const Op& op, Axis axis, Spread from) const;
  int rank_before(Axis axis, int by) const;

  const Program& program_;
  /// Whose part of a sum lies at these bytes of a tensor.
  std::map<std::pair<TensorId, std::int64_t>, int> givers_;
};

}  // namespace ztrain::program
