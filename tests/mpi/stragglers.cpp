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

TEST(StragglersOfRanks, NothingIsSaidOfGraphsWhereAllIsTimed) {
  train::Stragglers stragglers = stragglers_every(1);
  train::StepClock clock;
  clock.total = 1;
  EXPECT_EQ(stragglers.after_step(1, engine::Timings{}, clock), "");
}

}  // namespace
}  // namespace ztrain::stragglers_of_ranks_test
