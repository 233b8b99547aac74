// Writes what the stages of a pipeline did in one step, and when, to timeline.json, which
// tools/plot_schedule.py draws.

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "checkpoint/rank_group.hpp"
#include "files/file.hpp"
#include "plan/report.hpp"
#include "runtime/session/clock_ahead.hpp"
#include "train/output_folder.hpp"
#include "train/report.hpp"

namespace ztrain::train {
namespace {

using nlohmann::json;

/// Returns whether the rank speaks for its stage.
bool is_first(const job::Worker& worker) {
  const program::Program& train = worker.job().train();
  const Coordinate at(train.mesh, train.rank);
  return at.rank() % (train.mesh.ranks() / train.mesh[Axis::pipeline]) ==
         0;  // pipeline is the outermost axis
}

}  // namespace

void step_with_timeline(const runtime::Session& session, const config::Deck& deck, job::Worker& worker) {
  session.agree("metrics.timeline_step", [&] {
    REQUIRE(!worker.device().asynchronous(),
            "metrics.timeline_step = {}: what runs later than it is issued, as on GPUs, has no times yet: "
            "set it to 0",
            deck.metrics.timeline_step);
  });
  const double ahead = runtime::clock_ahead(session);
  session.barrier();
  const double began = now();
  worker.train().note_work(true);
  worker.step();
  worker.train().note_work(false);
  const double begin = parse_json(session.from_rank_0(json_text(json(began)))).get<double>() + ahead;
  const checkpoint::Group world = checkpoint::Group::world();
  const auto texts = world.gather_text(
      is_first(worker) ? json_text(json{{"rank", worker.job().train().rank},
                                        {"work", plan::work_json(worker.train().work(), begin)}})
                       : "");
  session.agree("metrics.timeline_step", [&] {
    if (session.rank() != 0) return;
    json ranks = json::array();
    for (const std::string& text : texts)
      if (!text.empty()) ranks.push_back(parse_json(text));
    const json whole{{"schedule", deck.mesh.pipeline > 1 ? deck.pipeline.schedule : "sequential"},
                     {"step", deck.metrics.timeline_step},
                     {"ranks", std::move(ranks)}};
    write_text(std::filesystem::path(deck.run.output) / timeline_name, json_text(whole), "run.output");
  });
}

}  // namespace ztrain::train
