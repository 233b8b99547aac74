#include "job/step_twice.hpp"

#include <cstring>

#include "job/held_pieces.hpp"

namespace ztrain::job {

StepDifference step_twice(Worker& worker, const std::function<void()>& restore,
                          const std::function<void(StepScalars&)>& set_scalars) {
  engine::OpHashes ops(worker.train().program(), worker.memory());
  const auto step = [&] {
    worker.scalars() = {};
    set_scalars(worker.scalars());
    if (!worker.device().asynchronous()) worker.memory().clear_transient();
    worker.step(ops);
  };
  step();
  const std::vector<HeldPiece> first = held_pieces(worker);
  const StepScalars scalars = worker.scalars();
  restore();
  ops.begin_second();
  worker.train().clear_timings();
  step();
  const std::vector<HeldPiece> second = held_pieces(worker);
  StepDifference difference{{}, ops.found()};
  for (std::size_t i = 0; i < first.size(); ++i)
    if (first[i].hash != second[i].hash) difference.results.push_back(first[i].name);
  if (std::memcmp(&scalars, &worker.scalars(), sizeof scalars) != 0)
    difference.results.emplace_back("loss and norm");
  return difference;
}

}  // namespace ztrain::job
