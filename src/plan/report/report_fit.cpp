
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "base/text.hpp"
#include "plan/report/report_parts.hpp"

namespace ztrain::plan {
namespace {

std::string value_in(const std::vector<std::string>& overrides, const std::string& key) {
  for (const std::string& text : overrides)
    if (text.rfind(key + "=", 0) == 0) return text.substr(key.size() + 1);
  return "";
}

/// What of a setting has no column of its own, for a command line; "" where all has.
std::string besides(const std::vector<std::string>& overrides) {
  std::vector<std::string> others;
  std::ranges::copy_if(overrides, std::back_inserter(others), [](const std::string& text) {
    return !text.starts_with("sharding.strategy=") && !text.starts_with("batch.micro=") &&
           !text.starts_with("mesh.") && !text.starts_with("recompute.");
  });
  return command_line(others);
}

/// Each besides() once, in the order of the settings: the first is called a.
std::vector<std::string> different_besides(const std::vector<Setting>& settings) {
  std::vector<std::string> different;
  for (const Setting& x : settings)
    if (const std::string own = besides(x.overrides); !own.empty() && !std::ranges::count(different, own))
      different.push_back(own);
  return different;
}

/// Returns "full", or "full, 8 tiles".
std::string recompute_in(const std::vector<std::string>& overrides) {
  const std::string tiles = value_in(overrides, "recompute.tiles");
  return value_in(overrides, "recompute.mode") + (tiles.empty() ? "" : fmt::format(", {} tiles", tiles));
}

std::string settings_table(const std::vector<Setting>& settings) {
  const std::vector<std::string> different = different_besides(settings);
  std::vector<std::string> heads{"strategy", "mesh", "micro",   "recompute", "per rank",
                                 "tokens/s", "MFU",  "exposed", "numbers"};
  if (!different.empty()) heads.emplace_back("besides");
  Table table(heads);
  for (const Setting& x : settings) {
    std::vector<std::string> cells{
        value_in(x.overrides, "sharding.strategy"),
        fmt::format("{} x {} x {} x {} x {}", x.cost.mesh[Axis::pipeline], x.cost.mesh[Axis::replicate],
                    x.cost.mesh.size(Axis::shard | Axis::expert), x.cost.mesh.size(context_axes),
                    x.cost.mesh[Axis::tensor]),
        value_in(x.overrides, "batch.micro"),
        recompute_in(x.overrides),
        size(verdict_of(x.cost).device_needed),
        grouped(x.cost.tokens_per_second()),
        percent(x.cost.mfu()),
        percent(x.cost.step.exposed / x.cost.step.seconds),
        x.effect == Effect::none ? "same" : "rounding"};
    const auto which = std::ranges::find(different, besides(x.overrides));
    if (which != different.end())
      cells.push_back(fmt::format("{:c}", static_cast<int>('a' + (which - different.begin()))));
    table.row(cells);
  }
  std::string text = table.text(2);
  for (std::size_t i = 0; i < different.size(); ++i) {
    const auto first =
        std::ranges::find(settings, different[i], [](const Setting& x) { return besides(x.overrides); });
    text += fmt::format("  besides {:c}: {}{}\n", static_cast<int>('a' + i), different[i],
                        host_memory_text(first->cost));
  }
  return text;
}

}  // namespace

std::string host_memory_text(const Cost& c) {
  const std::int64_t held = c.largest(program::Tier::host).total(program::Tier::host);
  return held == 0 ? ""
                   : fmt::format(", {} of the host per rank, {} of a node", size(static_cast<double>(held)),
                                 size(verdict_of(c).node_needed));
}

std::string fixes_section(const Fixes& f) {
  const std::string refused = f.refused > 0 ? fmt::format(", {} more {} not go with the deck", f.refused,
                                                          f.refused == 1 ? "does" : "do")
                                            : "";
  std::string text = heading(fmt::format("What makes it fit ({} tried{}{})", count_text(f.tried, "change"),
                                         refused, early_end_of(f.ended)));
  for (const Fix& fix : f.best) {
    text += fmt::format("  {}\n      {} per rank{}, {} tokens/s, {}\n", command_line(fix.overrides),
                        size(verdict_of(fix.cost).device_needed), host_memory_text(fix.cost),
                        grouped(fix.cost.tokens_per_second()), name_of(fix.effect));
    for (const Change& change : fix.changes)
      text +=
          fmt::format("      {}: {} ({})\n", change.overrides.front(), change.reason, name_of(change.effect));
  }
  if (f.best.empty()) text += "  no change of the deck that is known to save memory makes it fit\n";
  if (!f.least_ranks)
    return text +
           "  no number of ranks was found on which the deck fits as it is: more of them hold smaller parts "
           "of the states,\n  but all of a micro-batch's activations\n";
  const std::string batch = command_line(f.least_ranks->overrides);
  return text + fmt::format("  {} the deck fits on {}\n", batch.empty() ? "As it is" : "With " + batch,
                            count_text(f.least_ranks->ranks, "rank"));
}

std::string search_section(const Search& s, int ranks) {
  std::string text =
      heading(fmt::format("Fastest of those that fit on {} ({} tried{})", count_text(ranks, "rank"),
                          count_text(s.tried, "setting"), early_end_of(s.ended)));
  text += "  mesh: pipeline x replicate x shard x context x tensor\n";
  if (s.best.empty())
    text += "  none fits\n";
  else
    text += settings_table(s.best) +
            fmt::format("  the first, with all its keys (--json has those of the others):\n  {}\n",
                        command_line(s.best.front().overrides));
  if (!s.least_ranks) return text + "  no number of ranks was found on which the model fits\n";
  const std::string with = command_line(s.least_overrides());
  return text + fmt::format("  the model fits on {} at least, with\n  {}\n",
                            count_text(s.least_ranks->ranks, "rank"),
                            with.empty() ? "the deck as it is" : with);
}

}  // namespace ztrain::plan
