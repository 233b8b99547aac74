#pragma once
// What the check of placements knows of values that go round the ranks of an axis, and of sums over them:
// whose part of a split dim a rank holds, and of which ranks it has what it needs. As the table of placements
// it shares nothing with those who emit the ops (program/ops/ring_attention.cpp).

#include <map>
#include <set>
#include <string>
#include <utility>

#include "program/verify/placement_table.hpp"

namespace ztrain::program {

/// Its values have the letter 'K' until each rank has its own part, and, of a sum, what all ranks give to it.
class RingCheck {
 public:
  explicit RingCheck(const Program& program) : program_(program) {}

  /// The letter of what a shift gives of something split along dim 0, which may be on its way already.
  Spread shifted(const Op& op, Axis axis, Spread from);

  /// Of an op with such outputs: what is wrong with it, or "". Notes what comes out.
  std::string follow(const Op& op, Axis axis);

  /// The letter of an output of such an op.
  Spread letter_of(TensorId t, Axis axis) const;

 private:
  /// Every rank has the part of the rank `by` places before it; of a sum, what the ranks so many places
  /// behind that one give to it, or what came of the keys so many places before.
  struct Journey {
    int by = 0;
    std::set<int> of{};
  };
  Journey journey(TensorId t, Axis axis) const;
  Journey& note(TensorId t, Axis axis) { return journeys_[{program_.storage(t), axis}]; }

  std::vector<TokenRun> tokens_of(TensorId t, Axis axis) const;
  std::string follow_part(const Op& op, Axis axis);
  std::string follow_sum(const Op& op, Axis axis);

  const Program& program_;
  std::map<std::pair<TensorId, Axis>, Journey> journeys_;
};

}  // namespace ztrain::program
