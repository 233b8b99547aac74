#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <optional>

#include "base/parallel.hpp"
#include "base/shape.hpp"
#include "layout/layout.hpp"
#include "program/jobs/compile.hpp"
#include "program/jobs/prove.hpp"

namespace ztrain::program {

std::vector<std::vector<int>> rank_classes(const model::Graph& graph, const JobSpec& spec) {
  const bool passes = !spec.graph_passes.empty() || !spec.program_passes.empty();
  // Equal parts over the tensor axis differ in attributes alone.
  const bool tensor = std::ranges::any_of(spec.tensor.parameters, [](const model::ParameterCut& cut) {
    return !cut.slice.begins.empty() || !cut.taken.empty();
  });
  const bool codes = std::ranges::any_of(graph.parameters, &model::Parameter::coded);
  std::map<std::array<int, 6>, std::vector<int>> classes;
  for (int rank = 0; rank < spec.mesh.ranks(); ++rank) {
    const Coordinate at(spec.mesh, rank);
    const int part = spec.sharding.secondary_shards ? at.index_in(inner_axes(state_axes)) : 0;
    const int shard = codes ? at.index_in(state_axes) : 0;
    const int owner = spec.snapshots == Snapshots::of_savers && owns(at) ? 1 : 0;
    classes[{passes ? rank : 0, at[Axis::pipeline], part, shard, tensor ? at[Axis::tensor] : 0, owner}]
        .push_back(rank);
  }
  std::vector<std::vector<int>> list;
  for (auto& [facts, ranks] : classes) list.push_back(std::move(ranks));
  return list;
}

void verify_job(const model::Graph& graph, const JobSpec& spec, const Job& rank_0, const Tell& tell) {
  const std::vector<std::vector<int>> classes = rank_classes(graph, spec);
  const JobSpec known = with_stages(graph, spec);
  std::vector<std::optional<Job>> others(classes.size());
  std::atomic<int> begun = 0;
  in_parallel(static_cast<int>(classes.size()), [&](int c) {
    if (tell) tell(fmt::format("class {} of {}", ++begun, classes.size()));
    const int rank = classes[at(c)].front();
    if (rank != rank_0.load().rank) others[at(c)] = compile(graph, known, rank);
  });
  std::vector<std::vector<const Program*>> programs;  // by class
  for (const std::optional<Job>& other : others) programs.push_back((other ? *other : rank_0).programs.all());
  if (tell) tell("all ranks");
  prove(spec, [&] { verify_together(programs, classes); });
}

void verify_job(const model::Graph& graph, const JobSpec& spec) {
  verify_job(graph, spec, compile(graph, spec, 0));
}

}  // namespace ztrain::program
