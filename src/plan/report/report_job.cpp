// The report's lines on the whole job: how long it takes, and when it is to save.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.hpp"
#include "config/validate/validate.hpp"
#include "plan/job_time.hpp"
#include "plan/report/report_parts.hpp"
#include "plan/save_interval.hpp"

namespace ztrain::plan {

std::string line(const char* what, const std::string& value) {
  constexpr std::size_t width = 100 - 19;
  if (value.size() <= width) return fmt::format("  {:<16} {}\n", what, value);
  const std::size_t cut = value.rfind(", ", width - 1);
  if (cut == std::string::npos) return fmt::format("  {:<16} {}\n", what, value);
  return fmt::format("  {:<16} {}\n", what, value.substr(0, cut + 1)) + line("", value.substr(cut + 2));
}

namespace {

/// "1,234", "3.4" or "under 0.1".
std::string hours_text(double hours) {
  if (hours < 0.1) return "under 0.1";
  return hours < 10 ? fmt::format("{:.1f}", hours) : grouped(std::ceil(hours));
}

}  // namespace

std::string run_line(const Cost& c) {
  if (!knows_its_machine(c)) return "";
  const auto lasts = [&](double steps) { return format_duration(steps * c.step.seconds); };
  if (c.deck.run.epochs > 0)
    return line(
        "run", fmt::format("{} for a billion tokens, without evaluations and saves; the tokens of run.epochs "
                           "= {} depend on the data, which a plan does not read, but `ztrain check` does",
                           lasts(1e9 / c.tokens_per_step()), c.deck.run.epochs));
  const JobTime t = job_time(c);
  const auto steps = static_cast<double>(config::total_steps(c.deck, 0));
  std::string text =
      line("run", fmt::format("{}, {} {}-hours: {} steps, {} tokens", format_duration(t.seconds()),
                              hours_text(t.seconds() * c.ranks / 3600), device_kind(c.machine.target),
                              grouped(steps), format_count(steps * c.tokens_per_step())));
  std::string parts;
  constexpr double seen = 1;  // second
  if (t.evaluations >= seen) parts += fmt::format(", evaluations {}", format_duration(t.evaluations));
  if (t.saves >= seen) parts += fmt::format(", saves {}", format_duration(t.saves));
  if (!parts.empty()) text += line("", fmt::format("steps {}{}", format_duration(t.steps), parts));
  if (t.energy > 0)
    text += line("energy", fmt::format("at most {:.3g} MWh, if each node draws {:.3g} kW", t.energy / 3.6e9,
                                       c.machine.rates.nodes.watts / 1e3));
  return text;
}

std::string interval_lines(const Cost& c) {
  if (!knows_its_time(c) || c.machine.target == Target::cpu) return "";
  const SaveInterval s = save_interval(c);
  return line("",
              fmt::format(
                  "proposed: --checkpoint.interval={:.0f}, every {}: saves and repeated steps then take {} "
                  "of the time,",
                  std::max(1.0, std::round(s.best / c.step.seconds)), format_duration(s.best),
                  percent(s.lost))) +
         line("", fmt::format("if a save takes {} ({} for each node) and a node fails once in {:.0f} days",
                              format_duration(s.save), size(c.machine.rates.nodes.write) + "/s",
                              c.machine.rates.nodes.between_failures / 86400));
}

}  // namespace ztrain::plan
