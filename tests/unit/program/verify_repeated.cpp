// The proof of ranks whose bodies stand for more, beside that of the same steps written out, on ranks that
// are drawn: messages of one time of the body may be of another time on the other rank.

#include <gtest/gtest.h>

#include <random>

#include "program/ir/order.hpp"
#include "program/loops/repeat.hpp"
#include "tests/support/joint_ranks.hpp"

namespace ztrain::test::verify_repeated_test {
namespace {

constexpr int warm_up = 1, stride = 1;

struct Item {
  int peer = -1;  ///< -1: an op that computes
  bool sends = false;
  std::vector<int> waits{};  ///< for the ops so many places before it
};

class Drawing {
 public:
  explicit Drawing(unsigned seed) : random_(seed) {}
  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

  void shuffle(std::vector<Item>& items) {
    for (std::size_t i = items.size(); i > 1; --i)
      std::swap(items[i - 1], items[static_cast<std::size_t>(below(static_cast<int>(i)))]);
  }
  void draw_waits(std::vector<Item>& items, int furthest) {
    for (Item& item : items)
      if (below(3) == 0) item.waits.push_back(1 + below(furthest));
  }

 private:
  std::mt19937 random_;
};

/// Of a rank, apart from how often its body is issued.
struct Stage {
  std::vector<Item> before, period, behind;
  int periods = 0;
};

/// A message to and from each neighbour in each period, and some before the first; behind the last as many as
/// make all ranks' as many.
Stage draw_stage(Drawing& drawing, int rank, int ranks, int periods, int most_ahead) {
  Stage stage;
  stage.periods = periods;
  for (const int peer : {rank - 1, rank + 1}) {
    if (peer < 0 || peer >= ranks) continue;
    for (const bool sends : {false, true}) {
      const int ahead = drawing.below(most_ahead);
      stage.before.insert(stage.before.end(), static_cast<std::size_t>(ahead), {peer, sends});
      stage.period.push_back({peer, sends});
      stage.behind.insert(stage.behind.end(), static_cast<std::size_t>(most_ahead - ahead), {peer, sends});
    }
  }
  stage.period.push_back({});
  const auto length = static_cast<int>(stage.period.size());
  for (std::vector<Item>* items : {&stage.before, &stage.period, &stage.behind}) {
    drawing.shuffle(*items);
    drawing.draw_waits(*items, length);
  }
  return stage;
}

/// times: of the body, which is the period behind those that are like it.
Program program_of(const Stage& stage, int rank, int ranks, int times) {
  Builder b("train step", rank);
  b.program.mesh[Axis::pipeline] = ranks;
  const TensorId data = b.persistent("data", 4);
  std::map<std::pair<int, bool>, int> count;
  int later = 0;  // micro-batches by which what is behind the body has moved on
  const auto add = [&](const std::vector<Item>& items) {
    for (const Item& item : items) {
      OpId id = no_op;
      if (item.peer < 0)
        id = b.op("work", Stream::compute, {}, {});
      else if (item.sends)
        id = b.communicate(CommKind::send, Axis::pipeline,
                           item.peer > rank ? Stream::to_next : Stream::to_previous, {data}, {}, item.peer);
      else
        id = b.communicate(CommKind::recv, Axis::pipeline,
                           item.peer > rank ? Stream::from_next : Stream::from_previous, {}, {data},
                           item.peer);
      if (item.peer >= 0) b.program.op(id).action.micro = count[{item.peer, item.sends}]++ + later;
      for (const int back : item.waits)
        if (back <= id) b.program.op(id).after.push_back(id - back);
    }
  };
  add(stage.before);
  Repeat repeat{.times = times, .stride = stride, .warm_up = warm_up};
  for (int p = 0; p < stage.periods; ++p) {
    if (p == warm_up) repeat.begin = static_cast<OpId>(b.program.ops.size());
    if (p == warm_up + 1) repeat.end = static_cast<OpId>(b.program.ops.size()), later = (times - 1) * stride;
    add(stage.period);
  }
  add(stage.behind);
  if (times > 1) b.program.repeat = repeat;
  return b.program;
}

std::string verdict_of(const std::vector<Program>& programs) {
  std::vector<const Program*> all;
  std::vector<std::vector<int>> classes;
  for (const Program& p : programs) {
    all.push_back(&p);
    classes.push_back({p.rank});
  }
  return joint_verdict(all, classes);
}

TEST(VerifyRepeated, IsTheProofOfTheStepWrittenOut) {
  Drawing drawing(5);
  int sound = 0, only_when_repeated = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    const int ranks = 2 + drawing.below(2), times = 2 + drawing.below(7), most_ahead = 2 << trial % 4;
    std::vector<Program> once, repeated, written;
    for (int rank = 0; rank < ranks; ++rank) {
      const Stage stage = draw_stage(drawing, rank, ranks, warm_up + 2, most_ahead);
      once.push_back(program_of(stage, rank, ranks, 1));
      repeated.push_back(program_of(stage, rank, ranks, times));
      written.push_back(unrolled(repeated.back()));
    }
    const bool sound_in_full = verdict_of(written) == "accepted";
    ASSERT_EQ(verdict_of(repeated) == "accepted", sound_in_full) << "trial " << trial;
    sound += sound_in_full ? 1 : 0;
    only_when_repeated += !sound_in_full && verdict_of(once) == "accepted" ? 1 : 0;
  }
  EXPECT_GT(sound, 300);
  EXPECT_GT(only_when_repeated, 1) << "circles that are not in the list";
}

}  // namespace
}  // namespace ztrain::test::verify_repeated_test
