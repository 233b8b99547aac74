#pragma once
// Where a schedule repeats: the step of many micro-batches as that of a few, in which some turns are taken
// more often. Found in the turns themselves, whatever schedule gives them. Pure.

#include <optional>
#include <vector>

#include "program/schedules/schedule.hpp"

namespace ztrain::program {

struct Middle {
  int few = 0;     ///< micro-batches of the step that is compiled
  int stride = 1;  ///< by so many micro-batches the turns of the body move on from one time to the next
  int times = 1;   ///< of the body, in the whole step
  /// So many times in a row before the body are like it: all that are under way when it begins, and more.
  int alike = 0;
  /// By rank, of its turns in the step of a few: those of the body.
  struct Body {
    int begin = 0, length = 0;
    int end() const { return begin + length; }
  };
  std::vector<Body> bodies;

  /// What is behind the body is of micro-batches so much later than in the step of a few.
  int shift() const { return (times - 1) * stride; }
};

/// None where the turns do not repeat, or not often enough that anything is left out. ahead: turns by which
/// receives are begun early. The body of every rank begins with a forward, and ends as many times before
/// where the rank's turns cease to repeat as that of any other.
std::optional<Middle> middle_of(const Schedule& schedule, int ranks, int micro_batches, int ahead);

}  // namespace ztrain::program
