#include "telemetry/verdict.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace ztrain::telemetry {

void Verdict::add(const PhaseSeconds& step) {
  if (++steps_ == 1 || !step.forward || !step.exposed_communication) return;
  const double messages = step.exposed_messages.value_or(0);
  computing_ += *step.forward + step.backward.value_or(0) + step.optimizer.value_or(0);
  messages_ += messages;
  collectives_ += *step.exposed_communication - messages;
  tiers_ += step.exposed_drives.value_or(0);
  if (host_drives_) {
    collectives_ += step.gather.value_or(0) + step.reduce.value_or(0);
    tiers_ += step.fetch.value_or(0) + step.evict.value_or(0);
  }
  data_ += step.data;
  saving_ += step.save;
  all_ += step.total + step.save;
}

std::string Verdict::text() const {
  if (all_ <= 0) return "";
  std::vector<std::pair<double, const char*>> parts{{computing_, "computing"},
                                                    {collectives_, "collectives"},
                                                    {messages_, "messages between pipeline stages"},
                                                    {tiers_, "copies to and from other memory"},
                                                    {data_, "reading data"},
                                                    {saving_, "saving"}};
  double rest = all_;
  for (const auto& [seconds, what] : parts) rest -= seconds;
  parts.emplace_back(std::max(0.0, rest), "the host");
  std::ranges::stable_sort(parts, [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text;
  for (const auto& [seconds, what] : parts) {
    const double share = 100 * seconds / all_;
    if (text.empty())
      text = fmt::format("bound by {}: {:.0f}% of {:.3g} s", what, share, all_);
    else if (share >= 0.5)
      text += fmt::format("{} {} {:.0f}%", text.find(';') == std::string::npos ? ";" : ",", what, share);
  }
  return text;
}

}  // namespace ztrain::telemetry
