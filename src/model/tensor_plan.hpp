#pragma once
// How a family's parameters are cut over the `tensor` axis: a table beside the family, not in it. What
// becomes of activations, and what has to be communicated, follows from it (program/passes/place.hpp).

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/shape.hpp"
#include "config/deck.hpp"
#include "model/graph.hpp"

namespace ztrain::model {

struct ParameterCut {
  std::string pattern;  ///< glob of names
  TensorSlice slice;
  /// Of a parameter that every rank holds whole: the rows that each computes with, which may overlap.
  std::vector<Rows> taken{};
};

struct TensorPlan {
  std::vector<ParameterCut> parameters;  ///< the first that matches counts; others are whole on every rank
  /// The residual stream, norms with it, is split by tokens between the layers that are cut (Korthikanti et
  /// al., "Reducing activation recomputation in large transformer models", 2022); otherwise it is whole.
  bool sequence_parallel = true;

  /// Null where the parameter is whole.
  const ParameterCut* find(const std::string& parameter) const;
};

/// How tokens that are split over the `context` axis attend to each other: keys and values of all are
/// gathered, or go round the ranks, or each rank takes some heads of all tokens.
enum class ContextMethod : std::uint8_t { gather, heads, ring };

/// Of the decoder (model/decoder.cpp) over so many ranks: attention by heads, the feed-forward by columns and
/// then rows, embedding and head by words (Shoeybi et al., "Megatron-LM", 2019). Parts are whole heads and
/// need not be equal: no rank has more of anything than the first. Where heads of keys are fewer than ranks,
/// neighbours compute with the same one.
TensorPlan decoder_tensor_plan(const config::Model& dims, int ranks);

/// Each needs a part of all that is cut.
std::int64_t most_tensor_ranks(const config::Model& dims);

/// The same without the head, whose logits every rank needs whole, and with tokens that are not cut.
TensorPlan inference_plan(TensorPlan plan, const config::Model& dims);

}  // namespace ztrain::model
