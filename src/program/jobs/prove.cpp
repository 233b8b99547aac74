#include "program/jobs/prove.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/shape.hpp"

namespace ztrain::program {
namespace {

/// A part of the deck that most jobs run without.
struct Choice {
  const char* keys;
  bool (*is_made)(const JobSpec&);
};

constexpr Choice choices[] = {
    {"offload.*", [](const JobSpec& s) { return s.offload.any(); }},
    {"pipeline.schedule",
     [](const JobSpec& s) { return s.mesh[Axis::pipeline] > 1 && s.schedule.name != "1f1b"; }},
    {"optimizer.during_backward", [](const JobSpec& s) { return s.optimizer.options.during_backward; }},
    {"tensor.overlap", [](const JobSpec& s) { return s.overlap_tensor; }},
    {"sharding.unit", [](const JobSpec& s) { return s.units.granularity != UnitGranularity::block; }},
    {"sharding.persistence_threshold", [](const JobSpec& s) { return s.units.persistence_threshold > 0; }},
    {"sharding.reshard_after_forward", [](const JobSpec& s) { return s.sharding.secondary_shards; }},
    {"recompute.tiles", [](const JobSpec& s) { return s.recompute.tiles > 1; }},
    {"recompute.mode", [](const JobSpec& s) { return s.recompute.every > 0 || !s.recompute.tags.empty(); }},
    {"context.method",
     [](const JobSpec& s) {
       return s.mesh.size(context_axes) > 1 && s.context != model::ContextMethod::gather;
     }},
    {"mesh.pipeline", [](const JobSpec& s) { return s.mesh[Axis::pipeline] > 1; }},
    {"mesh.tensor", [](const JobSpec& s) { return s.mesh[Axis::tensor] > 1; }},
    {"mesh.context", [](const JobSpec& s) { return s.mesh.size(context_axes) > 1; }},
    {"sharding.strategy", [](const JobSpec& s) { return s.mesh.size(state_axes) > 1; }}};

}  // namespace

void prove(const JobSpec& spec, const std::function<void()>& proof) try { proof(); } catch (const Error& e) {
  std::vector<std::string> keys;
  for (const Choice& choice : choices)
    if (choice.is_made(spec)) keys.emplace_back(choice.keys);
  constexpr std::size_t most = 3;
  if (keys.size() > most) keys.resize(most);
  const std::string way_out =
      keys.empty() ? "" : fmt::format("; meanwhile change {}", fmt::join(keys, ", or "));
  const std::string said = e.what();
  if (said.find("a defect of ztrain") != said.npos) fail("{}{}", said, way_out);
  fail("{} (a defect of ztrain, not of the deck: the proof of the step refuses it; please report it{})", said,
       way_out);
}

}  // namespace ztrain::program
