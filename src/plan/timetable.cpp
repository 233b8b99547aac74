#include "plan/timetable.hpp"

#include <iterator>

namespace ztrain::plan {

Timetable::Slot Timetable::earliest(double from, double length) const {
  Slot slot{from, -1};
  auto next = busy_.upper_bound(from);
  if (next != busy_.begin())
    if (const Busy& before = std::prev(next)->second; before.end > from) slot = {before.end, before.last};
  for (; next != busy_.end() && next->first < slot.start + length; ++next)
    slot = {next->second.end, next->second.last};
  return slot;
}

void Timetable::take(double start, double length, program::OpId op) {
  auto here = busy_.insert_or_assign(start, Busy{start + length, op}).first;
  if (here != busy_.begin())
    if (const auto before = std::prev(here); before->second.end >= start) {
      before->second = here->second;
      busy_.erase(here);
      here = before;
    }
  if (const auto next = std::next(here); next != busy_.end() && next->first <= here->second.end) {
    here->second = next->second;
    busy_.erase(next);
  }
}

}  // namespace ztrain::plan
