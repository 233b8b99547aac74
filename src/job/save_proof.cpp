#include "job/save_proof.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/parallel.hpp"
#include "base/shape.hpp"
#include "base/text.hpp"
#include "checkpoint/rank_group.hpp"
#include "config/validate/validate.hpp"
#include "files/posix_file.hpp"
#include "job/weights.hpp"
#include "kernel_interface/target.hpp"
#include "plan/setup.hpp"
#include "program/jobs/job_base.hpp"

namespace ztrain::job {
namespace {

using checkpoint::part_axes;
using checkpoint::SavePart;

constexpr const char* fault_of_ztrain =
    "this is a defect of ztrain, please report it; checkpoint.interval = -1 trains without checkpoints";

std::uint64_t hash_of(const SavePart& part) {
  return hash_text(fmt::format("{}", fmt::join(checkpoint::lines_of(part), "\n")));
}

/// The first line that two parts do not share.
std::string difference(const std::vector<std::string>& planned, const std::vector<std::string>& own) {
  const auto [p, o] = std::ranges::mismatch(planned, own);
  const auto text = [](auto line, const auto& lines) { return line == lines.end() ? "nothing" : *line; };
  return fmt::format("\"{}\" where \"{}\" is planned", text(o, own), text(p, planned));
}

std::vector<std::string> lines_in(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
  }
  return lines;
}

/// The places over part_axes whose ranks have a part of their own, by place: the rank that stands for it.
std::vector<int> ranks_of_parts(const model::Graph& graph, const program::JobSpec& spec) {
  std::vector<int> first(at(spec.mesh.size(part_axes)), -1);
  for (int rank = 0; rank < spec.mesh.ranks(); ++rank)
    if (int& of_place = first[at(Coordinate(spec.mesh, rank).index_in(part_axes))]; of_place < 0)
      of_place = rank;
  for (const std::vector<int>& alike : program::rank_classes(graph, spec)) {
    int stands = -1;
    for (int& rank : first) {
      if (!std::ranges::binary_search(alike, rank)) continue;
      if (stands < 0) stands = rank;
      rank = stands;
    }
  }
  return first;
}

}  // namespace

checkpoint::SavePart save_part(const program::Job& job) {
  return {job.layout, state_forms(job.load(), job.tensors)};
}

SaveParts::SaveParts(const model::Graph& graph, const program::JobSpec& given) {
  const program::JobSpec spec = with_stages(graph, given);
  const std::vector<int> ranks = ranks_of_parts(graph, spec);
  std::vector<int> compiled;
  for (const int rank : ranks) {
    const auto known = std::ranges::find(compiled, rank);
    of_place_.push_back(at(known - compiled.begin()));
    if (known == compiled.end()) compiled.push_back(rank);
  }
  std::vector<std::optional<SavePart>> parts(compiled.size());
  in_parallel(static_cast<int>(compiled.size()), [&](int i) {
    const program::Base base = program::make_base(graph, spec, compiled[at(i)]);
    parts[at(i)] = SavePart{base.cut.layout, state_forms(base.program, base.tensors)};
  });
  for (std::optional<SavePart>& part : parts) distinct_.push_back(std::move(*part));
}

std::vector<const SavePart*> SaveParts::by_place() const {
  std::vector<const SavePart*> parts;
  for (const std::size_t part : of_place_) parts.push_back(&distinct_[part]);
  return parts;
}

checkpoint::SavePlan plan_saves(const config::Deck& deck, const MeshShape& mesh,
                                const std::vector<const SavePart*>& parts,
                                const std::vector<std::int64_t>& nodes) {
  try {
    if (deck.checkpoint.memory_copies > 0) plan_save(mesh, parts, nodes, 0);
    return plan_save(mesh, parts, nodes, static_cast<int>(deck.checkpoint.files));
  } catch (const Error& e) {
    fail("no checkpoint of this job could be written: {}; {}", e.what(), fault_of_ztrain);
  }
}

void prove_saves(const runtime::Session& session, telemetry::Console& console, const config::Deck& deck,
                 const MeshShape& mesh, const SavePart& own, const MakeParts& make) {
  if (deck.checkpoint.interval < 0) return;
  const telemetry::Phase phase(console, "planning the checkpoints");
  const std::vector<std::uint64_t> all = runtime::of_all(session, hash_of(own));
  std::optional<SaveParts> parts;
  std::int64_t differs = -1;  // the first rank whose part is not the planned one
  session.agree("planning the checkpoints", [&] {
    if (session.rank() != 0) return;
    parts.emplace(make());
    const std::vector<const SavePart*> by_place = parts->by_place();
    std::map<const SavePart*, std::uint64_t> planned;
    for (const SavePart& part : parts->distinct()) planned[&part] = hash_of(part);
    for (std::size_t rank = 0; rank < all.size() && differs < 0; ++rank) {
      const Coordinate place(mesh, static_cast<int>(rank));
      if (all[rank] != planned.at(by_place[at(place.index_in(part_axes))]))
        differs = static_cast<std::int64_t>(rank);
    }
    std::vector<std::int64_t> nodes;
    for (int rank = 0; rank < session.size(); ++rank) nodes.push_back(session.node_of(rank));
    if (differs >= 0) return;
    for (const auto& file : plan_saves(deck, mesh, by_place, nodes).files)
      require_file_size(std::filesystem::path(config::checkpoint_folder(deck)) / file.name,
                        checkpoint::largest_size(file.bytes, file.pieces), checkpoint::more_files);
  });
  const auto world = checkpoint::Group::world();
  differs = world.all_gather(differs).front();
  if (differs < 0) return;
  const auto who = static_cast<int>(differs);
  const std::string text =
      world.broadcast(fmt::format("{}", fmt::join(checkpoint::lines_of(own), "\n")), who);
  session.agree("planning the checkpoints", [&] {
    if (session.rank() != 0) return;
    const SavePart& planned = *parts->by_place()[at(Coordinate(mesh, who).index_in(part_axes))];
    fail("no checkpoint of this job could be written: rank {} has {}; {}", who,
         difference(checkpoint::lines_of(planned), lines_in(text)), fault_of_ztrain);
  });
}

void prove_saves(const runtime::Session& session, telemetry::Console& console, const config::Deck& deck,
                 const program::Job& own) {
  prove_saves(session, console, deck, own.load().mesh, save_part(own),
              [&] { return SaveParts(plan::training_graph(deck), plan::job_spec(deck, build_target())); });
}

}  // namespace ztrain::job
