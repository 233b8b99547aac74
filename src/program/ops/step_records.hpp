#pragma once
// What the ops carry that passes add: those that exchange and step the state, parts of attention, and the
// head over a split vocabulary; conversion_records.hpp has those between placements. As in
// model/op_records.hpp; the structs of kernel_interface are uint8 [bytes].

#include <vector>

#include "layout/token_order.hpp"
#include "model/op_records.hpp"

namespace ztrain::program {

// Communication, on Op::comm: kind, axes, peer.

/// shard [S] -> full [N S]: slot r is the shard of the group's r-th member.
struct AllGather : NoConstants {
  static constexpr std::string_view op = "all_gather";
  enum In : std::size_t { shard };
  enum Out : std::size_t { full };
  static constexpr Count reads = 1, writes = 1;
};
/// full [N S] -> shard [s], workspace: elements [begin, begin + s) of each of the N slots are summed.
struct ReduceScatter {
  static constexpr std::string_view op = "reduce_scatter";
  enum In : std::size_t { full };
  enum Out : std::size_t { shard, workspace };
  static constexpr Count reads{1, 2}, writes = 2;
  bool accumulate = false;
  std::int64_t begin = 0;
  static constexpr auto fields() {
    return std::tuple{Given{accumulate_key, &ReduceScatter::accumulate},
                      Given{"begin", &ReduceScatter::begin}};
  }
};
/// x -> y, workspace.
struct AllReduce : NoConstants {
  static constexpr std::string_view op = "all_reduce";
  enum In : std::size_t { x };
  enum Out : std::size_t { y, workspace };
  static constexpr Count reads = 1, writes = 2;
};
/// x [N S] -> y [N S]: slot s of y is slot r of member s, of which this is member r.
struct AllToAll : OneToOne {
  static constexpr std::string_view op = "all_to_all";
};
/// x -> y: x of the member `peer` places before this one in the ring.
struct Shift : OneToOne {
  static constexpr std::string_view op = "shift";
};
/// The root (peer) reads x, the others write it.
struct Broadcast : OneToOne {
  static constexpr std::string_view op = "broadcast";
  static constexpr Count reads{0, 1}, writes{0, 1};
};
/// What both sides of a message between stages of a pipeline say of it.
struct Message {
  std::int64_t boundary = 0;    ///< between stage boundary - 1 and stage boundary; 0: of no pipeline
  std::int64_t split_over = 0;  ///< bits of the AxisSet over which ranks of a stage have parts of its tokens
  static constexpr auto fields() {
    return std::tuple{Unusual{"boundary", &Message::boundary}, Unusual{"split_over", &Message::split_over}};
  }
};
/// x, to the member at index peer of the group.
struct Send : Message {
  static constexpr std::string_view op = "send";
  enum In : std::size_t { x };
  static constexpr Count reads = 1, writes = 0;
};
/// -> y, from it.
struct Recv : Message {
  static constexpr std::string_view op = "recv";
  enum Out : std::size_t { y };
  static constexpr Count reads = 0, writes = 1;
};

// State.

/// x: ends the life of its bytes; runs nothing.
struct Release : NoConstants {
  static constexpr std::string_view op = "release";
  static constexpr Count reads = 1, writes = 0;
};
/// x -> y, element by element, to y's dtype.
struct Cast : OneToOne {
  static constexpr std::string_view op = "cast";
};
/// Consecutive elements of a flat range.
struct Elements {
  std::int64_t begin = 0, count = 0;
  bool operator==(const Elements&) const = default;
};
/// -> gradient, of which what nobody writes becomes 0.
struct ZeroGaps {
  static constexpr std::string_view op = "zero_gaps";
  enum Out : std::size_t { gradient };
  static constexpr Count reads = 0, writes = 1;
  std::vector<Elements> gaps;
  static constexpr auto fields() { return std::tuple{Given{"pieces", &ZeroGaps::gaps}}; }
};
/// gradient [S] -> norm ExactSum, workspace: of the pieces, which are what this rank speaks for.
struct SumSquares {
  static constexpr std::string_view op = "sum_squares";
  enum In : std::size_t { gradient };
  enum Out : std::size_t { norm, workspace };
  static constexpr Count reads = 1, writes = 2;
  std::vector<Elements> pieces;
  static constexpr auto fields() { return std::tuple{Given{"pieces", &SumSquares::pieces}}; }
};
/// losses fp64 [n, 2]..., norms ExactSum... -> partials StepPartial.
struct StepPartials {
  static constexpr std::string_view op = "step_partials";
  enum Out : std::size_t { partials };
  static constexpr Count reads{0, any_number}, writes = 1;
  std::int64_t losses = 0;   ///< how many inputs are losses
  bool counts_loss = false;  ///< one of the ranks that computed the same
  static constexpr auto fields() {
    return std::tuple{Given{"losses", &StepPartials::losses},
                      Given{"counts_loss", &StepPartials::counts_loss}};
  }
};
/// partials StepPartial [ranks], scalars -> scalars.
struct FinishStep : NoConstants {
  static constexpr std::string_view op = "finish_step";
  enum In : std::size_t { partials, scalars };
  enum Out : std::size_t { finished };
  static constexpr Count reads = 2, writes = 1;
};
/// The part of a parameter that a rank steps: kernels/optimizer/optimizer_step.hpp.
struct SteppedPiece {
  std::int64_t begin = 0, count = 0;
  std::int64_t group = 0;   ///< of lr_scales and weight_decays
  std::int64_t stream = 0;  ///< bits of a hash
  std::int64_t slice_begin = 0, run = 1, stride = 1, offset = 0;
  bool operator==(const SteppedPiece&) const = default;
};
/// gradient, scalars, then the outputs again, but for a parameter that is written whole -> parameter,
/// (master), states in the order of the rule's states().
struct OptimizerStep {
  static constexpr std::string_view op = "optimizer_step";
  enum In : std::size_t { gradient, scalars };
  enum Out : std::size_t { parameter };
  static constexpr Count reads{3, any_number}, writes{1, any_number};
  std::string rule;  ///< row of the optimizer table
  bool master = false;
  double beta1 = 0, beta2 = 0, eps = 0, momentum = 0;
  bool nesterov = false;
  bool stochastic = false;  ///< rounding of parameters that have no master
  /// The pieces of a parameter that has a master are written whatever they were: also where no step is taken.
  bool whole = false;
  std::int64_t seed = 0;
  std::vector<SteppedPiece> pieces;
  std::vector<double> lr_scales, weight_decays;  ///< by group
  static constexpr auto fields() {
    using S = OptimizerStep;
    return std::tuple{Given{"rule", &S::rule},
                      Given{"master", &S::master},
                      Given{"beta1", &S::beta1},
                      Given{"beta2", &S::beta2},
                      Given{"eps", &S::eps},
                      Given{"momentum", &S::momentum},
                      Given{"nesterov", &S::nesterov},
                      Given{"stochastic", &S::stochastic},
                      Unusual{"whole", &S::whole},
                      Given{"seed", &S::seed},
                      Given{"pieces", &S::pieces},
                      Given{"lr_scales", &S::lr_scales},
                      Given{"weight_decays", &S::weight_decays}};
  }
};

// Codes.

/// The part of a weight that a rank steps: elements [begin, begin + count) of the operands.
struct CodedPiece {
  std::int64_t begin = 0, count = 0;
  std::int64_t in_weight = 0;  ///< the first element's index in the weight
  std::int64_t row = 0;        ///< elements that share a scale
  /// fp8_largest: of the first of its rows; fp8_encode: the number of the input with its scales.
  std::int64_t slot = 0;
  bool operator==(const CodedPiece&) const = default;
};
/// param -> slots [S], workspace.
struct Fp8Largest {
  static constexpr std::string_view op = "fp8_largest";
  enum In : std::size_t { parameter };
  enum Out : std::size_t { slots, workspace };
  static constexpr Count reads = 1, writes = 2;
  std::vector<CodedPiece> pieces;
  static constexpr auto fields() { return std::tuple{Given{"pieces", &Fp8Largest::pieces}}; }
};
struct ScaledWeight {
  std::int64_t first_slot = 0;       ///< of the unit, in each shard's slots
  std::int64_t slots_per_shard = 0;  ///< over all units
  std::int64_t slot = 0;             ///< of the weight, from its unit's first
  std::int64_t begin = 0;            ///< of the weight in the unit's flat range
  std::int64_t row = 0;              ///< elements that share a scale
  std::int64_t shard = 0;            ///< elements per shard
  std::int64_t parts = 1;            ///< of the weight, whose slots lie behind one another in each shard
  std::int64_t magnitudes = 0;       ///< 1: the largest ones are given, of which no scale is made yet
  bool operator==(const ScaledWeight&) const = default;
};
/// slots -> scales..., one for each weight, or what slots of its parts are made of.
struct Fp8Scales {
  static constexpr std::string_view op = "fp8_scales";
  enum In : std::size_t { slots };
  static constexpr Count reads = 1, writes{1, any_number};
  std::vector<ScaledWeight> weights;
  static constexpr auto fields() { return std::tuple{Given{"weights", &Fp8Scales::weights}}; }
};
/// param, scales... -> codes. Without scales where the shard is padding.
struct Fp8Encode {
  static constexpr std::string_view op = "fp8_encode";
  enum In : std::size_t { parameter };
  enum Out : std::size_t { codes };
  static constexpr Count reads{1, any_number}, writes = 1;
  std::vector<CodedPiece> pieces;
  static constexpr auto fields() { return std::tuple{Given{"pieces", &Fp8Encode::pieces}}; }
};
/// x [T, k], (columns [k]) -> largest magnitudes [1 or T], (workspace where it is one).
struct Fp8Magnitudes : Quantization {
  static constexpr std::string_view op = "fp8_magnitudes";
  enum In : std::size_t { x, columns };
  enum Out : std::size_t { largest, workspace };
  static constexpr Count reads{1, 2}, writes{1, 2};
};
/// codes [T, k] -> codes [k, T], (ones [k]).
struct Fp8Transpose : NoConstants {
  static constexpr std::string_view op = "fp8_transpose";
  enum In : std::size_t { codes };
  enum Out : std::size_t { transposed, ones };
  static constexpr Count reads = 1, writes{1, 2};
};
/// dy [T, n] codes, dy_scales, weight^T [k, n] codes, weight_scales -> dx [T, k], workspace.
struct LinearFp8GradInput {
  static constexpr std::string_view op = "linear_fp8_grad_input";
  enum In : std::size_t { dy, dy_scales, weight, weight_scales };
  enum Out : std::size_t { dx, workspace };
  static constexpr Count reads{4, 5}, writes = 2;
  bool accumulate = false, rowwise = false;
  static constexpr auto fields() {
    return std::tuple{Given{accumulate_key, &LinearFp8GradInput::accumulate},
                      Given{"rowwise", &LinearFp8GradInput::rowwise}};
  }
};
/// dy^T [n, T] codes, dy_scale, x^T [k, T] codes, x_scale -> dweight [n, k], workspace.
struct LinearFp8GradWeight : LinearFp8GradInput {
  static constexpr std::string_view op = "linear_fp8_grad_weight";
  enum In : std::size_t { dy, dy_scales, x, x_scales };
  enum Out : std::size_t { dweight, workspace };
};

// Attention of a part of the queries, to keys that go round the ranks of an axis or are all there
// (program/ops/ring_attention.cpp).

/// A node: the operands of attention, of which the keys and values, too, are this rank's part; without axes
/// they are those of all tokens.
struct RingAttention : Attention {
  static constexpr std::string_view op = "ring_attention";
  static constexpr Count reads = 4, writes = 2;
  std::int64_t axes = 0;  ///< bits of an AxisSet
  static constexpr auto fields() {
    return std::tuple_cat(Attention::fields(), std::tuple{Given{"axes", &RingAttention::axes}});
  }
};
/// The queries of one of so many ranks of the ring, and the keys and values of one; of a ring of 1, the
/// queries of one rank and the keys and values of all.
struct RingPart : Attention {
  std::int64_t ranks = 0;
  std::vector<TokenRun> queries_at{}, keys_at{};  ///< the tokens that they are of
  bool accumulate = false;
  static constexpr auto fields() {
    return std::tuple_cat(
        Attention::fields(),
        std::tuple{Given{"ranks", &RingPart::ranks}, Given{"queries_at", &RingPart::queries_at},
                   Given{"keys_at", &RingPart::keys_at}, Given{"accumulate", &RingPart::accumulate}});
  }
};
/// q, k, v, document_start -> out [T, heads * head_dim], maximum and sum [T, heads]: AttentionSums of
/// kernels/attention/attention_part.hpp.
struct AttentionPart : RingPart {
  static constexpr std::string_view op = "attention_part";
  enum In : std::size_t { q, k, v, document_start };
  enum Out : std::size_t { out, maximum, sum };
  static constexpr Count reads{4, 7}, writes = 3;
};
/// out, maximum, sum -> o, lse.
struct AttentionMerge : NoConstants {
  static constexpr std::string_view op = "attention_merge";
  enum In : std::size_t { out, maximum, sum };
  enum Out : std::size_t { o, lse };
  static constexpr Count reads = 3, writes = 2;
};
/// q, k, v, o, lse, do, document_start -> dq, which it may add to, dk, dv, workspace.
struct AttentionPartGrad : RingPart {
  static constexpr std::string_view op = "attention_part_grad";
  enum In : std::size_t { q, k, v, o, lse, dout, document_start };
  enum Out : std::size_t { dq, dk, dv, workspace };
  static constexpr Count reads{7, 8}, writes = 4;
};

// The head.

/// h, weight, targets, token_weights, scalars -> loss fp64 [2], dh [T, d], workspace, (dweight [V, d]).
struct HeadLossGrad {
  static constexpr std::string_view op = "head_loss_grad";
  enum In : std::size_t { h, weight, targets, token_weights, scalars };
  enum Out : std::size_t { loss, dh, workspace, dweight };
  static constexpr Count reads{5, 6}, writes{3, 4};
  bool accumulate = false;
  static constexpr auto fields() { return std::tuple{Given{accumulate_key, &HeadLossGrad::accumulate}}; }
};
/// A node: the operands of head_loss, of which the weight is this rank's part of the vocabulary.
struct HeadLossSplit {
  static constexpr std::string_view op = "head_loss_split";
  static constexpr Count reads = 4, writes{1, 2};
  std::int64_t first_word = 0, axes = 0;
  std::int64_t most_words = 0;  ///< that a rank has
  static constexpr auto fields() {
    return std::tuple{Given{"first_word", &HeadLossSplit::first_word}, Given{"axes", &HeadLossSplit::axes},
                      Given{"most_words", &HeadLossSplit::most_words}};
  }
};
/// Tokens [begin, begin + rows) of operands of all tokens, and words from first_word on.
struct HeadChunk {
  std::int64_t begin = 0, rows = 0, first_word = 0;
  bool accumulate = false;
  static constexpr auto fields() {
    return std::tuple{Given{"begin", &HeadChunk::begin}, Given{"rows", &HeadChunk::rows},
                      Given{"first_word", &HeadChunk::first_word},
                      Unusual{accumulate_key, &HeadChunk::accumulate}};
  }
};
/// h, weight, targets -> logits [rows, stride], sums fp64 [rows, 3], workspace.
struct HeadLogits : HeadChunk {
  static constexpr std::string_view op = "head_logits";
  enum In : std::size_t { h, weight, targets };
  enum Out : std::size_t { logits, sums, workspace };
  static constexpr Count reads = 3, writes = 3;
};
/// sums fp64 [n rows, 3], targets, token_weights -> loss fp64 [2], nll fp64 [rows].
struct HeadSplitLoss : HeadChunk {
  static constexpr std::string_view op = "head_split_loss";
  enum In : std::size_t { sums, targets, token_weights };
  enum Out : std::size_t { loss, nll };
  static constexpr Count reads{3, 4}, writes = 2;
};
/// logits, sums, h, weight, targets, token_weights, scalars, (dh of the chunks before) -> dh [T, d],
/// workspace, logits, which are none any more, (dweight).
struct HeadLogitsGrad : HeadChunk {
  static constexpr std::string_view op = "head_logits_grad";
  enum In : std::size_t { logits, sums, h, weight, targets, token_weights, scalars };
  enum Out : std::size_t { dh, workspace, spent, dweight };
  static constexpr Count reads{7, 9}, writes{3, 4};
};

}  // namespace ztrain::program
