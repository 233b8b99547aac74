#include "train/timeline.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "checkpoint/rank_group.hpp"
#include "files/file.hpp"

namespace ztrain::train {
namespace {

using nlohmann::json;

json work_of(const job::Worker& worker, const std::vector<engine::Work>& work, double from) {
  json list = json::array();
  for (const engine::Work& w : work)
    list.push_back({{"does", program::name_of(w.action.kind)},
                    {"micro_batch", w.action.micro},
                    {"block", w.action.part},
                    {"begin", w.begin - from},
                    {"end", w.end - from}});
  return {{"rank", worker.job().train().rank}, {"work", std::move(list)}};
}

/// Whether the rank speaks for its stage.
bool is_first(const job::Worker& worker) {
  const program::Program& train = worker.job().train();
  const Coordinate at(train.mesh, train.rank);
  return at.rank() % (train.mesh.ranks() / train.mesh[Axis::pipeline]) == 0;  // the outermost axis
}

}  // namespace

void step_with_timeline(const runtime::Session& session, job::Worker& worker, const config::Deck& deck) {
  session.agree("metrics.timeline_step", [&] {
    REQUIRE(
        !worker.device().asynchronous(),
        "metrics.timeline_step = {}: what runs later than it is issued, as on GPUs, has no times yet: set "
        "it to 0",
        deck.metrics.timeline_step);
  });
  session.barrier();
  const double begin = now();
  worker.train().note_work(true);
  worker.step();
  worker.train().note_work(false);
  const checkpoint::Group world = checkpoint::Group::world();
  const auto texts =
      world.gather_text(is_first(worker) ? json_text(work_of(worker, worker.train().work(), begin)) : "");
  session.agree("metrics.timeline_step", [&] {
    if (session.rank() != 0) return;
    json ranks = json::array();
    for (const std::string& text : texts)
      if (!text.empty()) ranks.push_back(parse_json(text));
    const json whole{{"schedule", deck.mesh.pipeline > 1 ? deck.pipeline.schedule : "sequential"},
                     {"step", deck.metrics.timeline_step},
                     {"ranks", std::move(ranks)}};
    write_text(std::filesystem::path(deck.run.output) / "timeline.json", json_text(whole), "run.output");
  });
}

}  // namespace ztrain::train
