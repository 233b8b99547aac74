// A step of many pieces at once, as GPUs take it, gives the bits of one piece after the other.

#include <gtest/gtest.h>

#include "kernels/optimizer/optimizer_launch.hpp"
#include "optim/rules.hpp"
#include "tests/support/host_threads.hpp"
#include "tests/support/optimizer_job.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::kernels::kernels_optimizer_quanta_test {
namespace {

using namespace ztrain::test;

/// Pieces of odd sizes with gaps between them, some slices of their parameter.
std::vector<OptimizerPiece> many_pieces() {
  std::vector<OptimizerPiece> pieces;
  std::int64_t begin = 0;
  const std::int64_t counts[] = {1, 256, 700, 7, 8, 1023, 511, 257, 264, 2048, 3};
  for (std::uint64_t i = 0; i < std::size(counts); ++i) {
    OptimizerPiece piece{begin, counts[i], 0.5 + 0.1 * static_cast<double>(i), i % 2 == 0 ? 0.1 : 0.0,
                         11 + i};
    if (i % 3 == 1) piece.slice_begin = 512;
    if (i % 4 == 2) piece = {begin, counts[i], 1, 0.1, 11 + i, 256, 48, 96, 48};
    pieces.push_back(piece);
    begin += round_up(counts[i], 256) + (i % 2 == 0 ? 256 : 0);
  }
  return pieces;
}

std::int64_t extent(const std::vector<OptimizerPiece>& pieces) {
  return round_up(pieces.back().begin + pieces.back().count, 256);
}

/// The quanta of a step by warps of 32 threads, `per_warp` each.
template <class Rule, class T, class States>
void step_quanta(const OptimizerCase& c, OptimizerArraysOf& a, const std::vector<OptimizerPiece>& pieces,
                 const StepScalars& scalars, std::int64_t per_warp, bool on_words) {
  using Data = StepData<Rule, T, States>;
  const OptimizerArrays view = a.view(c);
  const Data data(view, c.settings, {c.stochastic, 3});
  const auto first = first_blocks(pieces);
  const StepQuanta<Rule, Data> step{
      data, {pieces.data(), first.data(), static_cast<std::int64_t>(pieces.size())}, on_words};
  const auto tables = std::make_unique<TablesOf<States>>();
  run_threads(warp_lanes, [&](const HostThreads& threads) {
    for (std::int64_t begin = 0; begin < first.back(); begin += per_warp)
      step.run(threads, *tables, scalars, begin, std::min(begin + per_warp, first.back()));
  });
}

template <class Rule, class T, class States>
void expect_same_bits(const OptimizerCase& c) {
  SCOPED_TRACE(testing::Message() << c);
  const TestExec exec;
  const auto pieces = many_pieces();
  auto apart = OptimizerArraysOf::start(c, 0, extent(pieces));
  auto at_once = apart;
  const auto step = make_step(c, apart, pieces);
  for (int t = 0; t < 3; ++t) {
    apart.draw_gradients(c, 0, t);
    at_once.draw_gradients(c, 0, t);
    StepScalars scalars = scalars_of(c.settings, t);
    if (t == 2) scalars.found_inf = 1;
    step->run(*exec, &scalars);
    step_quanta<Rule, T, States>(c, at_once, pieces, scalars, t == 0 ? 1 : 4, t == 0);
    ASSERT_TRUE(apart == at_once) << "step " << t;
  }
}

const optim::Settings adam{0.9, 0.95, 1e-8, 0, false}, momentum{0.9, 0.95, 1e-8, 0.8, true};
using F32 = OptimizerTypesOf<float, float, float>;
using Mixed = OptimizerTypesOf<bf16, float, bf16>;
using Narrow = OptimizerTypesOf<bf16, bf16, bf16>;
using F64 = OptimizerTypesOf<double, double, double>;
constexpr DType f32 = DType::f32, b16 = DType::bf16, f64 = DType::f64;

TEST(OptimizerQuanta, OfElementsGiveTheBitsOfPieces) {
  using namespace optim;
  expect_same_bits<AdamW, F32, ElementStates<float, 2>>({"adamw", adam, {f32, f32, f32, f32}});
  expect_same_bits<AdamW, Mixed, ElementStates<bf16, 2>>({"adamw", adam, {b16, f32, b16, b16}});
  expect_same_bits<Adam, F64, ElementStates<double, 2>>({"adam", adam, {f64, f64, f64, f64}});
  expect_same_bits<Lion, Mixed, ElementStates<float, 1>>({"lion", adam, {b16, f32, b16, f32}});
  expect_same_bits<Sgd, F32, ElementStates<float, 0>>({"sgd", adam, {f32, f32, f32, f32}});
  expect_same_bits<Sgd, Narrow, ElementStates<bf16, 1>>({"sgd", momentum, {b16, b16, b16, b16}});
}

TEST(OptimizerQuanta, OfRandomRoundingGiveTheBitsOfPieces) {
  using namespace optim;
  expect_same_bits<AdamW, Narrow, ElementStates<float, 2>>({"adamw", adam, {b16, b16, b16, f32}, true});
  expect_same_bits<Sgd, Narrow, ElementStates<bf16, 0>>({"sgd", adam, {b16, b16, b16, b16}, true});
}

TEST(OptimizerQuanta, OfCodesGiveTheBitsOfPieces) {
  using namespace optim;
  using States = CodedStates<AdamW8bit::Codecs>;
  expect_same_bits<AdamW8bit, F32, States>({"adamw_8bit", adam, {f32, f32, f32, f32}});
  expect_same_bits<AdamW8bit, Mixed, States>({"adamw_8bit", adam, {b16, f32, b16, f32}});
  expect_same_bits<AdamW8bit, Narrow, States>({"adamw_8bit", adam, {b16, b16, b16, f32}, true});
}

TEST(OptimizerQuanta, FindTheirPiece) {
  const auto pieces = many_pieces();
  const auto first = first_blocks(pieces);
  const PieceTable table{pieces.data(), first.data(), static_cast<std::int64_t>(pieces.size())};
  std::int64_t index = 0;
  for (std::int64_t piece = 0; piece < std::ssize(pieces); ++piece)
    for (std::int64_t k = 0; k < ceil_div(pieces[static_cast<std::size_t>(piece)].count, quantum); ++k)
      EXPECT_EQ(table.piece_of(index++), piece);
  EXPECT_EQ(index, first.back());
}

TEST(OptimizerQuanta, DrawWhatBlocksDraw) {
  const RandomStream stream = RandomStream::of_step(42, 7, 3);
  std::uint32_t bits[draw_group];
  for (const std::int64_t group : {0, 1, 1 << 24}) {
    draw(stream, group, bits);
    for (std::int64_t i = 0; i < draw_group; ++i)
      ASSERT_EQ(draw_one(stream, group * draw_group + i), bits[i]);
  }
}

}  // namespace
}  // namespace ztrain::kernels::kernels_optimizer_quanta_test
