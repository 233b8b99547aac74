// How tensors differ that were saved on other meshes, in other precisions, or as blocks. One rank.
#include "checkpoint/diff.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/checkpoint_model.hpp"

namespace ztrain::checkpoint_diff_test {
namespace {

using namespace test;
namespace fs = std::filesystem;

constexpr std::int64_t head = 30001;  // lm_head is read in several blocks

class CheckpointDiff : public testing::Test {
 protected:
  CheckpointDiff() : layout_(awkward_parameters(1, head), {3, {1}}), place_{&layout_, Coordinate({}, 0)} {}

  template <class Change>
  fs::path save(std::int64_t step, const StateKinds& kinds, Change change) {
    Shards shards = filled(place_, kinds);
    change(shards.states());
    checkpoint::save(temporary_.path(), step, place_, shards.states(), {{"step", step}});
    return temporary_.path() / ("step_" + std::to_string(step));
  }
  fs::path save(std::int64_t step, const StateKinds& kinds) {
    return save(step, kinds, [](auto&) {});
  }
  /// Of unit 2, whose last parameter is lm_head: the value of its last element.
  static float& last_of_head(std::vector<StateShard>& states, const Layout& layout) {
    const Piece piece = layout.pieces(2, 0, layout.unit(2).shard_elements).back();
    return reinterpret_cast<float*>(states[2].data)[piece.flat_begin + piece.count - 1];
  }

  TemporaryFolder temporary_;
  Layout layout_;
  Place place_;
};

TEST_F(CheckpointDiff, OneItemBeyondTheFirstBlockIsFound) {
  const fs::path a = save(1, plain_states(DType::f32));
  for (const float to : {std::numeric_limits<float>::quiet_NaN(), 1000.0f}) {
    float before = 0;
    const fs::path b = save(2, plain_states(DType::f32), [&](auto& states) {
      float& item = last_of_head(states, layout_);
      before = std::exchange(item, to);
    });
    const auto found = checkpoint::diff(a, b);
    ASSERT_EQ(found.tensors.size(), 1);
    EXPECT_EQ(found.same, 3 * 9 - 1);
    const auto& one = found.tensors.front();
    EXPECT_EQ(one.state + " " + one.name, "model lm_head.weight");
    EXPECT_EQ(one.items, head * 13);
    EXPECT_EQ(one.first, head * 13 - 1);
    EXPECT_EQ(one.differing, 1);
    const double apart = std::isnan(to) ? std::numeric_limits<double>::infinity() : 1000.0 - before;
    EXPECT_EQ(one.largest, apart);
    EXPECT_EQ(one.mean, apart / static_cast<double>(head * 13));
  }
}

TEST_F(CheckpointDiff, PrecisionsAreComparedByValue) {
  const auto found = checkpoint::diff(save(1, plain_states(DType::f32)), save(2, plain_states(DType::bf16)));
  EXPECT_TRUE(found.tensors.empty()) << "values that bf16 holds are the same in it";
  EXPECT_EQ(found.same, 3 * 9);
}

TEST_F(CheckpointDiff, StatesThatOneLacksAreTold) {
  const fs::path a = save(1, {{"model"}}), b = save(2, plain_states(DType::f32));
  const auto found = checkpoint::diff(a, b), back = checkpoint::diff(b, a);
  ASSERT_EQ(found.tensors.size(), 2 * 9);
  EXPECT_EQ(found.tensors.front().what, "the first has none");
  EXPECT_EQ(back.tensors.front().what, "the second has none");
  EXPECT_EQ(found.same, 9);
}

TEST_F(CheckpointDiff, BlocksAreComparedItemByItem) {
  const StateKinds kinds = quantised_states(DType::f32);
  const fs::path a = save(1, kinds);
  EXPECT_EQ(checkpoint::diff(a, save(2, kinds)).same, 5 * 9);
  const fs::path b = save(3, kinds, [&](auto& states) {
    for (StateShard& shard : states)
      if (shard.state == "optimizer/exp_avg.absmax" && shard.unit == 0)
        reinterpret_cast<float*>(shard.data)[1] += 2;
  });
  const auto found = checkpoint::diff(a, b);
  ASSERT_EQ(found.tensors.size(), 1);
  EXPECT_EQ(found.tensors.front().state, "optimizer/exp_avg.absmax");
  EXPECT_EQ(found.tensors.front().items, ceil_div(97 * 13, 256));
  EXPECT_EQ(found.tensors.front().first, 1);
  EXPECT_EQ(found.tensors.front().largest, 2);
}

}  // namespace
}  // namespace ztrain::checkpoint_diff_test
