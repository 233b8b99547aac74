#pragma once
// When a link is busy, and with what.

#include <map>

#include "program/ir/program.hpp"

namespace ztrain::plan {

class Timetable {
 public:
  struct Slot {
    double start = 0;          ///< seconds
    program::OpId after = -1;  ///< the op whose end it begins with; -1: it begins when it was asked for
  };
  /// The first at or after `from` in which the link is free for `length` seconds.
  Slot earliest(double from, double length) const;

  /// Of a slot that is free. length > 0.
  void take(double start, double length, program::OpId op);

 private:
  struct Busy {
    double end;
    program::OpId last;  ///< the op that ends it
  };
  std::map<double, Busy> busy_;  ///< by start; intervals that touch are one
};

}  // namespace ztrain::plan
