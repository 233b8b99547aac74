// What a run says of slow ranks where not all of their work is timed.

#include "train/stragglers.hpp"

#include <gtest/gtest.h>

#include "tests/support/mpi_main.hpp"

namespace ztrain::stragglers_of_ranks_test {
namespace {

using test::session;

train::Stragglers stragglers_every(int steps) {
  config::Deck deck;
  deck.watchdog.stragglers = steps;
  MeshShape mesh;
  mesh[Axis::shard] = session().size();
  return {deck, session(), mesh};
}

TEST(StragglersOfRanks, ReadingIsComparedWhereGraphsAreNotTimed) {
  train::Stragglers stragglers = stragglers_every(2);
  engine::Timings timings;
  timings.by_kind = false;
  // Of what was not captured.
  timings.seconds[at(program::ActionKind::forward)] = session().rank() == 1 ? 0.5 : 0.1;
  train::StepClock clock;
  clock.total = 1;
  clock.data = session().rank() == 2 ? 0.5 : 0.1;
  std::string said;
  for (int step = 1; step <= 4; ++step) {
    const std::string text = stragglers.after_step(step, timings, clock);
    EXPECT_TRUE(text.empty() || step % 2 == 0) << text;
    said += text;
  }
  if (session().rank() != 0) return;
  const std::size_t graphs = said.find("what CUDA graphs replay is not timed");
  EXPECT_EQ(graphs, said.rfind("what CUDA graphs replay is not timed")) << said;
  EXPECT_NE(graphs, std::string::npos) << said;
  EXPECT_EQ(said.find("rank 1"), std::string::npos) << said;
  for (const char* steps : {"steps 1 to 2", "steps 3 to 4"})
    EXPECT_NE(said.find(std::string(steps) + ": slow ranks: reading data: rank 2"), std::string::npos)
        << said;
}

TEST(StragglersOfRanks, StagesAreNotComparedWithEachOther) {
  if (session().size() != 6) GTEST_SKIP() << "two stages of three ranks show it";
  config::Deck deck;
  deck.watchdog.stragglers = 1;
  MeshShape mesh;
  mesh[Axis::pipeline] = 2, mesh[Axis::shard] = 3;
  train::Stragglers stragglers(deck, session(), mesh);
  const auto after = [&](std::int64_t step, double own) {
    engine::Timings timings;
    timings.seconds[at(program::ActionKind::forward)] = own;
    train::StepClock clock;
    clock.total = 1;
    return stragglers.after_step(step, timings, clock);
  };
  const double of_stage = Coordinate(mesh, session().rank())[Axis::pipeline] == 0 ? 0.1 : 0.4;
  EXPECT_EQ(after(1, of_stage), "");
  const std::string said = after(2, session().rank() == 4 ? 0.8 : of_stage);
  EXPECT_NE(said.find("slow ranks: forward: rank 4 "), said.npos) << said;
}

TEST(StragglersOfRanks, NothingIsSaidOfGraphsWhereAllIsTimed) {
  train::Stragglers stragglers = stragglers_every(1);
  train::StepClock clock;
  clock.total = 1;
  EXPECT_EQ(stragglers.after_step(1, engine::Timings{}, clock), "");
}

}  // namespace
}  // namespace ztrain::stragglers_of_ranks_test
