#include "checkpoint/diff.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/parse.hpp"
#include "base/json.hpp"
#include "checkpoint/rank_group.hpp"
#include "job/require_checkpoint.hpp"
#include "runtime/session/session.hpp"
#include "telemetry/console.hpp"

namespace ztrain::app {
namespace {

using checkpoint::TensorDifference;
using nlohmann::json;

/// Returns a row of the output. JSON has no infinity, so an infinite value is null.
json json_of(const TensorDifference& t) {
  json row{{"order", t.order}, {"state", t.state}, {"name", t.name}};
  if (!t.what.empty()) row["what"] = t.what;
  if (t.what.empty())
    row.update({{"items", t.items},
                {"differing", t.differing},
                {"first", t.first},
                {"largest", t.largest},
                {"mean", t.mean}});
  return row;
}

/// Returns the rows of all ranks, in the order of the tensors, at rank 0.
json gather(const checkpoint::Differences& own, std::int64_t& same) {
  const auto world = checkpoint::Group::world();
  json rows = json::array();
  for (const TensorDifference& t : own.tensors) rows.push_back(json_of(t));
  same = 0;
  for (const std::int64_t of_rank : world.all_gather(own.same)) same += of_rank;
  std::vector<json> all;
  for (const std::string& text : world.gather_text(json_text(rows)))
    for (const json& row : parse_json(text)) all.push_back(row);
  std::ranges::sort(all, {}, [](const json& row) { return row.at("order").get<std::int64_t>(); });
  for (json& row : all) row.erase("order");
  return all;
}

std::string number(const json& value) {
  return value.is_null() ? "infinite" : fmt::format("{:.3g}", value.get<double>());
}

std::string text_of(const json& rows, std::int64_t same) {
  std::string text;
  for (const json& row : rows) {
    text += fmt::format("{} {}: ", row.at("state").get<std::string>(), row.at("name").get<std::string>());
    if (row.contains("what")) {
      text += row.at("what").get<std::string>() + "\n";
      continue;
    }
    text += fmt::format("largest difference {}, mean {}; {} of {} items differ, the first is number {}\n",
                        number(row.at("largest")), number(row.at("mean")),
                        row.at("differing").get<std::int64_t>(), row.at("items").get<std::int64_t>(),
                        row.at("first").get<std::int64_t>());
  }
  return text + (rows.empty() ? fmt::format("all {} tensors are the same\n", same)
                              : fmt::format("{} tensors differ, {} are the same\n", rows.size(), same));
}

}  // namespace

int diff(const Invocation& call) {
  Parser parser(
      "How the tensors of two checkpoints differ, whatever ranks wrote them. The exit status is 1 where any "
      "does. Under MPI the ranks share the work",
      "ztrain diff");
  std::string a, b;
  bool as_json = false;
  parser.option("first", a, "a folder step_N").required().local_path();
  parser.option("second", b, "another").required().local_path();
  parser.flag("--json", as_json, "print the same as JSON");
  if (const auto code = parser.parse(call)) return *code;
  telemetry::Phase phase(call.console, "comparing checkpoints");
  const auto own = call.session.agree("comparing checkpoints", [&] {
    job::require_checkpoint(a);
    job::require_checkpoint(b);
    const auto at = [&](std::int64_t done, std::int64_t items) {
      phase.at(fmt::format("item {} of {} of a tensor", done, items));
    };
    return checkpoint::diff(a, b,
                            {.part = call.session.rank(), .parts = call.session.size(), .progress = at});
  });
  std::int64_t same = 0;
  const json rows = gather(own, same);
  const json whole{{"first", a}, {"second", b}, {"same", same}, {"differing", rows}};
  call.console.print(as_json ? json_text(whole, 2) + "\n" : text_of(rows, same));
  return call.session.from_rank_0(rows.empty() ? "" : "they differ").empty() ? 0 : 1;
}

}  // namespace ztrain::app
