#pragma once
// Ops with operands, for the proof of their ways by numbers (tests/mpi/ways.cpp): each dim that a way cuts
// is a multiple of 12.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernel_interface/step_scalars.hpp"
#include "kernels/activation/record.hpp"
#include "kernels/attention/record.hpp"
#include "kernels/attention/record_ring.hpp"
#include "kernels/distillation/record.hpp"
#include "kernels/dora/record.hpp"
#include "kernels/dropout/record.hpp"
#include "kernels/elementwise/record.hpp"
#include "kernels/embedding/record.hpp"
#include "kernels/experts/record.hpp"
#include "kernels/fp8/record.hpp"
#include "kernels/grouped/record.hpp"
#include "kernels/head/record.hpp"
#include "kernels/heads/record.hpp"
#include "kernels/linear/record.hpp"
#include "kernels/load/record.hpp"
#include "kernels/norm/record.hpp"
#include "kernels/preference/record.hpp"
#include "kernels/reward/record.hpp"
#include "kernels/rope/record.hpp"
#include "kernels/sinks/record.hpp"
#include "program/ir/placement.hpp"
#include "program/ir/program.hpp"

namespace ztrain::test {

/// numbers: any. words: below 12. small: what codes of 8 bits hold. documents: where each token's begins.
/// slots: the rows of each token, among those of the tokens before and behind it. offsets: of three groups of
/// 12 rows.
enum class Fill : std::uint8_t {
  numbers,
  positive,
  words,
  small,
  documents,
  slots,
  offsets,
  scalars,
  workspace
};

struct Operand {
  Shape shape;
  DType dtype = DType::f64;
  Fill fill = Fill::numbers;
  int same_as = -1;      ///< of an output: the input whose bytes it has
  int joined = 1;        ///< so many matrices side by side, whose columns are cut alike
  bool by_head = false;  ///< one for each head of each token: of some heads where columns are cut
};

/// Of a rank: twelfths [begin, end) of what is cut.
struct Twelfths {
  std::int64_t begin = 0, end = 12;
  std::int64_t of(std::int64_t size) const { return (end - begin) * size / 12; }
};

struct WayCase {
  std::string op;
  Attributes attributes;
  std::vector<Operand> in, out;
  /// Makes the constants tell of a part; null: as the op's row does of nodes, if it does.
  std::function<void(Attributes&, const program::Way&, const Twelfths&)> fit{};
};

template <class Record>
WayCase way_case(const Record& record, std::vector<Operand> in, std::vector<Operand> out,
                 std::function<void(Record&, const program::Way&, const Twelfths&)> fit = nullptr) {
  WayCase c{std::string(Record::op), attributes_of(record), std::move(in), std::move(out)};
  if (fit)
    c.fit = [fit](Attributes& a, const program::Way& way, const Twelfths& part) {
      edit<Record>(a, [&](Record& r) { fit(r, way, part); });
    };
  return c;
}

namespace way_cases {

using program::Way;
constexpr std::int64_t T = 12, words = 12 * 32, heads = 12, wide = 48;

inline Operand matrix(std::int64_t rows, std::int64_t cols, DType dtype = DType::f64,
                      Fill fill = Fill::numbers) {
  return {{rows, cols}, dtype, fill};
}
inline Operand vector(std::int64_t n, DType dtype = DType::f64, Fill fill = Fill::numbers) {
  return {{n}, dtype, fill};
}
inline Operand joined(std::int64_t rows, std::int64_t cols, int count) {
  Operand o = matrix(rows, count * cols);
  o.joined = count;
  return o;
}
inline Operand of_each_head() {
  Operand o = vector(T * heads);
  o.by_head = true;
  return o;
}
inline Operand tokens() {
  return vector(T, DType::i32, Fill::words);
}
inline Operand documents() {
  return vector(T, DType::i32, Fill::documents);
}
inline Operand weights() {
  return vector(T, DType::f32, Fill::positive);
}
inline Operand scalars() {
  return vector(sizeof(StepScalars), DType::u8, Fill::scalars);
}
inline Operand workspace() {
  return vector(4 << 20, DType::u8, Fill::workspace);
}

inline std::vector<WayCase> of_rows() {
  const auto grad = [](EmbeddingGrad& e, const Way& way, const Twelfths& part) {
    if (way.outputs[0] == program::by_rows) e.first_row = part.begin, e.rows = 12;
  };
  return {
      way_case(Embedding{}, {tokens(), matrix(12, 24)}, {matrix(T, 24)}),
      way_case<EmbeddingGrad>({}, {tokens(), matrix(T, 24)}, {matrix(12, 24)}, grad),
      way_case(SelectRow{}, {matrix(12, 24), vector(1, DType::i32, Fill::words)}, {matrix(1, 24)}),
      way_case(RmsNorm{1e-5}, {matrix(T, 24), vector(24)}, {matrix(T, 24), vector(T)}),
      way_case(RmsNorm{1e-5, true}, {matrix(T, 48), vector(4)}, {matrix(T, 48), of_each_head()}),
      way_case(AddRmsNorm{1e-5}, {matrix(T, 24), matrix(T, 24), vector(24)},
               {matrix(T, 24), matrix(T, 24), vector(T)}),
      way_case(RmsNormGrad{}, {matrix(T, 24), vector(24), vector(T), matrix(T, 24)},
               {matrix(T, 24), vector(24), workspace()}),
      way_case(RmsNormGrad{false, false, true},
               {matrix(T, 24), vector(24), vector(T), matrix(T, 24), matrix(T, 24)},
               {matrix(T, 24), vector(24), workspace()}),
      way_case(RmsNormGrad{false, true}, {matrix(T, 48), vector(4), of_each_head(), matrix(T, 48)},
               {matrix(T, 48), vector(4), workspace()}),
      way_case(RmsNorm{1e-5, false, true}, {matrix(T, 24), vector(24)}, {matrix(T, 24), vector(T)}),
      way_case(LayerNorm{1e-5}, {matrix(T, 24), vector(24), vector(24)},
               {matrix(T, 24), vector(T), vector(T)}),
      way_case(LayerNormGrad{}, {matrix(T, 24), vector(24), vector(T), vector(T), matrix(T, 24)},
               {matrix(T, 24), vector(24), workspace()}),
      way_case(LayerNormGrad{false, true},
               {matrix(T, 24), vector(24), vector(T), vector(T), matrix(T, 24), matrix(T, 24)},
               {matrix(T, 24), vector(24), workspace()}),
      way_case(RowSquares{}, {matrix(T, 24)}, {vector(T)}),
      way_case(RowSquaresGrad{}, {matrix(T, 24), vector(T)}, {matrix(T, 24)}),
      way_case(RmsScale{1e-5, 24}, {matrix(T, 24), vector(24), vector(T, DType::f64, Fill::positive)},
               {matrix(T, 24)}),
      way_case(RmsScaleGrad{1e-5, 24},
               {matrix(T, 24), vector(24), vector(T, DType::f64, Fill::positive), matrix(T, 24)},
               {matrix(T, 24), vector(T), vector(24), workspace()}),
  };
}

inline std::vector<WayCase> of_products() {
  const Operand squares = vector(36, DType::f64, Fill::positive);
  return {
      way_case(Linear{}, {matrix(T, 24), matrix(36, 24), vector(36)}, {matrix(T, 36)}),
      way_case(Linear{}, {matrix(T, 24), matrix(36, 24)}, {matrix(T, 36)}),
      way_case(LinearGradInput{}, {matrix(T, 36), matrix(36, 24)}, {matrix(T, 24)}),
      way_case(LinearGradWeight{}, {matrix(T, 36), matrix(T, 24)}, {matrix(36, 24)}),
      way_case(LinearGradBias{}, {matrix(T, 36)}, {vector(36)}),
      way_case(DoraSquares{{0.3}}, {matrix(36, 24), matrix(5, 24), matrix(36, 5)}, {vector(36)}),
      way_case(DoraScale{}, {matrix(T, 36), vector(36), squares, vector(36)}, {matrix(T, 36)}),
      way_case(DoraScale{}, {matrix(T, 36), vector(36), squares}, {matrix(T, 36)}),
      way_case(DoraGradMagnitude{}, {matrix(T, 36), matrix(T, 36), squares}, {vector(36)}),
  };
}

inline std::vector<WayCase> of_groups() {
  const Operand x = matrix(T, 24), y = matrix(T, 36), offsets = vector(4, DType::i32, Fill::offsets);
  const Operand weight{{3, 36, 24}}, bias = matrix(3, 36);
  return {
      way_case(GroupedLinear{}, {x, offsets, weight, bias}, {y}),
      way_case(GroupedLinearGradInput{}, {y, offsets, weight}, {x}),
      way_case(GroupedLinearGradWeight{}, {y, offsets, x}, {weight}),
      way_case(GroupedLinearGradBias{}, {y, offsets}, {bias}),
  };
}

inline std::vector<WayCase> of_elements() {
  const auto mask = [](Dropout& d, const Way& way, const Twelfths& part) {
    if (way.inputs[0] == program::by_rows) d.first_token = part.begin * T / 12;
    if (way.inputs[0] == program::by_columns) d.columns = 24, d.first_column = part.begin * 2;
  };
  return {
      way_case(GatedActivation{}, {matrix(T, 24), matrix(T, 24)}, {matrix(T, 24)}),
      way_case(GatedActivationGrad{}, {matrix(T, 24), matrix(T, 24), matrix(T, 24)},
               {matrix(T, 24), matrix(T, 24)}),
      way_case(GatedActivation{}, {joined(T, 24, 2)}, {matrix(T, 24)}),
      way_case(GatedActivationGrad{}, {joined(T, 24, 2), matrix(T, 24)}, {joined(T, 24, 2)}),
      way_case(Activation{"gelu_tanh"}, {matrix(T, 24)}, {matrix(T, 24)}),
      way_case(ActivationGrad{{"gelu_tanh"}}, {matrix(T, 24), matrix(T, 24)}, {matrix(T, 24)}),
      way_case(Xielu{}, {matrix(T, 24), vector(1), vector(1)}, {matrix(T, 24)}),
      way_case(XieluGrad{}, {matrix(T, 24), vector(1), vector(1), matrix(T, 24)},
               {matrix(T, 24), vector(1), vector(1), workspace()}),
      way_case(Add{}, {matrix(T, 24), matrix(T, 24)}, {matrix(T, 24)}),
      way_case(Scale{-3}, {matrix(T, 24)}, {matrix(T, 24)}),
      way_case(SoftCap{0.5}, {matrix(T, 24)}, {matrix(T, 24)}),
      way_case(Copy{}, {matrix(T, 24)}, {matrix(T, 24)}),
      way_case(program::Cast{}, {matrix(T, 24)}, {matrix(T, 24)}),
      way_case<Dropout>({0.5, 7}, {matrix(T, 24), scalars()}, {matrix(T, 24)}, mask),
      way_case(RopeTable{1e4, "default"}, {vector(T, DType::i32, Fill::words)}, {matrix(T, 4)}),
      way_case(Rope{}, {matrix(T, wide), matrix(T, 4)}, {matrix(T, wide)}),
      way_case(Rope{.head_dim = 8, .from = 3}, {matrix(T, 96), matrix(T, 4)}, {matrix(T, 96)}),
      way_case(HeadParts{heads, {{0, 1, 0, 0, 3}}}, {matrix(T, wide)}, {matrix(T, 60)}),
      way_case(HeadParts{heads, {{0, 0, 0, 0, 3}, {0, 3, 1, 0, 1}, {1, 0, 0, 3, 2}}, true},
               {matrix(T, wide), matrix(T, 24)}, {matrix(T, 60), matrix(T, 36)}),
      way_case(HeadParts{heads, {{0, 0, 0, 0, 3}, {1, 0, 0, 3, 1}, {0, 3, 1, 0, 2}}, false, true},
               {matrix(T, 60), matrix(T, 36)}, {matrix(T, wide), matrix(T, 24)}),
  };
}

/// Heads of a part, where they are cut.
template <class Record>
void cut_heads(Record& a, const Way& way, const Twelfths& part) {
  if (way.inputs[0] != program::by_columns) return;
  a.heads = part.of(heads);
  a.kv_heads = part.of(heads);
}

inline std::vector<WayCase> of_attention() {
  using namespace program;
  const Operand x = matrix(T, wide), by_head = matrix(T, heads);
  const Operand qkv = joined(T, wide, 3);
  const Attention whole{heads, heads};
  Attention of_one = whole;
  of_one.joined = true;
  const auto part_fit = [](auto& a, const Way& way, const Twelfths& part) {
    cut_heads(a, way, part);
    if (way.inputs[0] != by_rows) return;
    const bool dealt = way.inputs[1] == by_rows;  // sequences of its own
    a.queries_at = {{dealt ? 0 : part.begin, part.end - part.begin}};
    a.keys_at = {{0, dealt ? part.end - part.begin : T}};
  };
  AttentionPart all;
  static_cast<Attention&>(all) = whole;
  all.ranks = 1;
  all.queries_at = all.keys_at = {{0, T}};
  AttentionPartGrad gradient;
  static_cast<RingPart&>(gradient) = all;
  const Operand positive = matrix(T, heads, DType::f64, Fill::positive);
  const auto first_sink = [](auto& a, const Way& way, const Twelfths& part) {
    const bool all_sinks = std::ranges::find(way.inputs, by_rows) == way.inputs.end();
    if (all_sinks && way.inputs[0] == by_columns) a.first = part.begin;
  };
  Operand o_too = x, lse_too = by_head;
  o_too.same_as = 0, lse_too.same_as = 1;
  return {
      way_case<Attention>(whole, {x, x, x, documents()}, {x, by_head}, cut_heads<Attention>),
      way_case<AttentionGrad>({whole}, {x, x, x, x, by_head, x, documents()}, {x, x, x, workspace()},
                              cut_heads<AttentionGrad>),
      way_case<Attention>(of_one, {qkv, documents()}, {x, by_head}, cut_heads<Attention>),
      way_case<AttentionGrad>({of_one}, {qkv, x, by_head, x, documents()}, {qkv, workspace()},
                              cut_heads<AttentionGrad>),
      way_case<AttentionPart>(all, {x, x, x, documents()}, {x, by_head, by_head}, part_fit),
      way_case(AttentionMerge{}, {x, by_head, positive}, {x, by_head}),
      way_case<AttentionPartGrad>(gradient, {x, x, x, x, by_head, x, documents()}, {x, x, x, workspace()},
                                  part_fit),
      way_case<AttentionSinks>({}, {x, by_head, vector(heads)}, {o_too, lse_too}, first_sink),
      way_case<AttentionSinksGrad>({}, {x, x, by_head, vector(heads)}, {vector(heads), workspace()},
                                   first_sink),
  };
}

inline std::vector<WayCase> of_heads() {
  using namespace program;
  const Operand h = matrix(T, 24), weight = matrix(words, 24),
                sums = matrix(T, 3, DType::f64, Fill::positive);
  const auto chunk = [](auto& c, const Way& way, const Twelfths& part) {
    if (way.inputs[0] == by_rows) c.rows = part.end - part.begin;
    const bool cut = way.outputs[0] == by_columns || way.inputs[0] == by_columns;
    if (cut) c.first_word = part.begin * words / 12;
  };
  const HeadChunk all{{2, 0.1, 0.01}, 0, T, 0, words, false};
  const Operand score = matrix(1, 24);
  const auto rows = [](RewardTokensGrad& r, const Way& way, const Twelfths& part) {
    if (way.inputs[RewardTokensGrad::token_weights] == program::replicated) r.first_token = part.begin;
  };
  return {
      way_case(HeadLoss{{2, 0.1, 0.01}}, {h, weight, tokens(), weights()}, {vector(2)}),
      way_case(HeadLossGrad{{2}}, {h, weight, tokens(), weights(), scalars()},
               {vector(2), h, workspace(), weight}),
      way_case<HeadLogits>({all}, {h, weight, tokens()}, {matrix(T, words), matrix(T, 3)}, chunk),
      way_case<HeadSplitLoss>({all}, {sums, tokens(), weights()}, {vector(2), vector(T)}, chunk),
      way_case(HeadTokens{{2}}, {h, weight, tokens(), weights()}, {vector(T)}),
      way_case(HeadCoefficients{}, {vector(T), weights()}, {vector(T, DType::f32)}),
      way_case<HeadSplitTokens>({all}, {sums, tokens(), weights()}, {vector(T)}, chunk),
      way_case(SequenceSums{}, {vector(T), weights(), documents(), vector(T)}, {matrix(T, 3)}),
      way_case(SequenceSumsGrad{}, {matrix(T, 3), documents()}, {vector(T)}),
      way_case(RewardTokens{}, {matrix(T, 24), score, weights()}, {vector(T)}),
      way_case<RewardTokensGrad>({}, {matrix(T, 24), score, weights(), vector(T), scalars()},
                                 {matrix(T, 24), score}, rows),
      way_case<HeadLogitsGrad>(
          {all}, {matrix(T, words), sums, h, weight, tokens(), weights(), scalars()},
          {h, workspace(), {{T, words}, DType::f64, Fill::numbers, /*same_as=*/0}, weight}, chunk),
  };
}

inline std::vector<WayCase> of_teachers() {
  using namespace program;
  constexpr std::int64_t k = 3;
  const Operand h = matrix(T, 24), weight = matrix(words, 24), logits = matrix(T, words),
                sums = matrix(T, 3, DType::f64, Fill::positive),
                of_teacher = matrix(T, k, DType::i32, Fill::words),
                shares = matrix(T, k, DType::f32, Fill::positive),
                told = matrix(T, k, DType::i32, Fill::words), logs = matrix(T, k, DType::f32);
  const auto chunk = [](auto& c, const Way& way, const Twelfths& part) {
    if (way.inputs[0] == by_rows) c.rows = part.end - part.begin;
    if (way.inputs[0] != by_columns) return;
    c.first_word = part.begin * words / 12;
    if constexpr (requires { c.own_words; }) c.own_words = part.of(words);
  };
  const HeadChunk all{{}, 0, T, 0, 0, false};
  return {
      way_case<TeacherSums>({{all, words}}, {logits, of_teacher, shares}, {vector(T)}, chunk),
      way_case<DistillTokens>({all, 0.3}, {sums, vector(T), tokens(), weights(), shares},
                              {vector(2), vector(2), matrix(T, 3)}, chunk),
      way_case<DistillLogitsGrad>(
          {all, 0.3}, {logits, sums, h, weight, tokens(), weights(), scalars(), of_teacher, shares},
          {h, workspace(), {{T, words}, DType::f64, Fill::numbers, /*same_as=*/0}, weight}, chunk),
      way_case<LikeliestWords>({{all, words}}, {logits, sums}, {told, logs}, chunk),
      way_case<JoinLikeliest>({all}, {told, logs}, {told, logs}, chunk),
  };
}

inline std::vector<WayCase> of_experts() {
  using enum DType;
  constexpr std::int64_t experts = 12, k = 2, wide_rows = T * k;
  const Operand x = matrix(T, 24), rows = matrix(wide_rows, 24), logits = matrix(T, experts),
                slots = matrix(T, k, i32, Fill::slots), chosen = matrix(T, k, i32, Fill::words),
                weights_of_rows = matrix(T, k), gate = matrix(T, 1), sums = vector(2 * experts + 3);
  RouteGrad gradient;
  gradient.top_k = k;
  gradient.normalise = true;
  const Route routes{{.top_k = k, .score = "sigmoid"}};
  return {
      way_case(RouterLogits{}, {x, matrix(experts, 24), vector(experts)}, {logits}),
      way_case(RouterLogits{}, {matrix(T, 24, bf16), matrix(experts, 24, bf16)}, {matrix(T, experts, f32)}),
      way_case(routes, {logits, vector(experts)}, {weights_of_rows, chosen}),
      way_case(gradient, {weights_of_rows, logits, chosen}, {logits}),
      way_case(Permute{}, {x, slots}, {rows}),
      way_case(PermuteGrad{}, {rows, slots}, {x}),
      way_case(Combine{}, {rows, slots, weights_of_rows}, {x}),
      way_case(CombineGrad{}, {x, rows, slots, weights_of_rows}, {rows, weights_of_rows}),
      way_case(GateRows{}, {x, gate}, {x}),
      way_case(GateRowsGrad{}, {x, x, gate}, {x, gate}),
      way_case(RouterSums{}, {logits, chosen, weights()}, {sums}),
      way_case(RouterSumsGrad{}, {sums, logits}, {logits}),
      way_case(program::ExpertCounts{}, {matrix(24, 19), matrix(24, 19)}, {matrix(2, 8)}),
  };
}

inline std::vector<WayCase> of_codes() {
  using namespace program;
  using enum DType;
  const auto codes = [](std::int64_t rows, std::int64_t cols) {
    return matrix(rows, cols, f8e4m3, Fill::small);
  };
  const auto scales = [](std::int64_t n) { return vector(n, f32, Fill::positive); };
  constexpr std::int64_t side = 192;  // products and transposes take multiples of 16
  const Operand x = matrix(side, side, bf16), found = vector(3, f32, Fill::positive);
  const Quantization rows{true, 0, 0}, tensor{false, 0, 3};
  const Operand y = matrix(side, side, f32);
  std::vector<WayCase> cases{
      way_case(Fp8Quantize{rows}, {x}, {codes(side, side), scales(side)}),
      way_case(Fp8Quantize{tensor}, {x, found}, {codes(side, side), scales(1)}),
      way_case(Fp8QuantizeBoth{tensor}, {x, found}, {codes(side, side), scales(1), codes(side, side)}),
      way_case(Fp8Transpose{}, {codes(side, side)}, {codes(side, side), scales(side)}),
      way_case(LinearFp8GradWeight{}, {codes(side, side), scales(1), codes(side, side), scales(1)},
               {matrix(side, side, f32), workspace()}),
  };
  for (const bool by_row : {false, true}) {
    const std::int64_t m = by_row ? side : 1, n = by_row ? side : 1;
    LinearFp8 forward;
    forward.rowwise = by_row;
    cases.push_back(way_case(forward, {codes(side, side), scales(m), codes(side, side), scales(n)}, {y}));
    cases.push_back(way_case(
        forward,
        {codes(side, side), scales(m), codes(side, side), scales(n), vector(side, bf16, Fill::small)}, {y}));
    cases.push_back(way_case(LinearFp8GradInput{false, by_row},
                             {codes(side, side), scales(m), codes(side, side), scales(n)}, {y}));
  }
  return cases;
}

}  // namespace way_cases
}  // namespace ztrain::test
