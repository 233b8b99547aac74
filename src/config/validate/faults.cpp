#include "config/validate/faults.hpp"

#include <algorithm>
#include <limits>

#include "config/fields/fields.hpp"

namespace ztrain::config {

void Faults::add(std::string message, std::int64_t line) {
  all_.push_back({std::move(message), line > 0 ? line : std::numeric_limits<std::int64_t>::max()});
}

bool Faults::may_follow(std::string_view message) const {
  const auto told = [&](const std::string& key) {
    return std::ranges::any_of(all_,
                               [&](const Fault& f) { return f.message.find(key) != std::string::npos; });
  };
  return std::ranges::any_of(fields(), [&](const Field& field) {
    return message.find(field.key) != std::string_view::npos &&
           (std::ranges::find(distrusted_, field.section()) != distrusted_.end() || told(field.key));
  });
}

void Faults::raise() const {
  if (all_.empty()) return;
  if (all_.size() == 1) throw Error(all_[0].message);
  std::vector<Fault> sorted = all_;
  std::ranges::stable_sort(sorted, {}, &Fault::line);
  std::string text = fmt::format("the deck has {} errors:", sorted.size());
  for (const Fault& fault : sorted) text += "\n  " + fault.message;
  throw Error(text);
}

}  // namespace ztrain::config
