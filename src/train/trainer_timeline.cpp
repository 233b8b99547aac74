// What the stages of a pipeline did in one step, and when: timeline.json, which tools/plot_schedule.py draws.

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "checkpoint/rank_group.hpp"
#include "files/file.hpp"
#include "plan/report.hpp"
#include "runtime/session/clock_ahead.hpp"
#include "train/trainer.hpp"

namespace ztrain::train {
namespace {

using nlohmann::json;

/// Whether the rank speaks for its stage.
bool is_first(const job::Worker& worker) {
  const program::Program& train = worker.job().train();
  const Coordinate at(train.mesh, train.rank);
  return at.rank() % (train.mesh.ranks() / train.mesh[Axis::pipeline]) == 0;  // the outermost axis
}

}  // namespace

/// Collective: the step, and of it run.output/timeline.json, in the form in which `ztrain plan --json` tells
/// the planned one: of the first rank of every stage, seconds from where rank 0 began, all by its clock.
/// Throws AgreedError where work runs later than it is issued, or the file cannot be written.
void Trainer::step_with_timeline() {
  session_.agree("metrics.timeline_step", [&] {
    REQUIRE(!worker_.device().asynchronous(),
            "metrics.timeline_step = {}: what runs later than it is issued, as on GPUs, has no times yet: "
            "set it to 0",
            deck_.metrics.timeline_step);
  });
  const double ahead = runtime::clock_ahead(session_);
  session_.barrier();
  const double began = now();
  worker_.train().note_work(true);
  worker_.step();
  worker_.train().note_work(false);
  const double begin = parse_json(session_.from_rank_0(json_text(json(began)))).get<double>() + ahead;
  const checkpoint::Group world = checkpoint::Group::world();
  const auto texts = world.gather_text(
      is_first(worker_) ? json_text(json{{"rank", worker_.job().train().rank},
                                         {"work", plan::work_json(worker_.train().work(), begin)}})
                        : "");
  session_.agree("metrics.timeline_step", [&] {
    if (session_.rank() != 0) return;
    json ranks = json::array();
    for (const std::string& text : texts)
      if (!text.empty()) ranks.push_back(parse_json(text));
    const json whole{{"schedule", deck_.mesh.pipeline > 1 ? deck_.pipeline.schedule : "sequential"},
                     {"step", deck_.metrics.timeline_step},
                     {"ranks", std::move(ranks)}};
    write_text(std::filesystem::path(deck_.run.output) / timeline_name, json_text(whole), "run.output");
  });
}

}  // namespace ztrain::train
