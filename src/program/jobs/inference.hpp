#pragma once
// The Programs of generation: load, prefill (the prompt, a chunk of tokens at a time) and decode (one token),
// over the same weights and the same cache of keys and values. Pure, as compile.hpp.

#include <functional>

#include "program/jobs/compile.hpp"

namespace ztrain::program {

struct InferenceOptions {
  std::int64_t capacity = 0;  ///< tokens that the cache holds
  std::int64_t chunk = 128;   ///< tokens of a prefill
  bool every_row = false;     ///< prefill gives the logits of all its tokens, not of one
};

/// What a Program on new tokens of a sequence is fed with, and gives. Inputs are int32; all are persistent.
struct InferenceTensors {
  std::int64_t rows = 0;             ///< new tokens at once
  TensorId tokens = no_tensor;       ///< [rows]
  TensorId positions = no_tensor;    ///< [rows]
  TensorId cache_begin = no_tensor;  ///< [1]: tokens in the cache so far
  TensorId index = no_tensor;        ///< [1]: of the token whose logits are wanted; none where all are given
  TensorId logits = no_tensor;       ///< [1 or rows, vocabulary]
};

/// Parameters are placed as the spec says, and a cache is of a rank's own heads: of all, where no tensor axis
/// cuts them. The head has to be whole: JobSpec::tensor without it is inference_plan. Tokens that follow the
/// last one of a chunk may be anything within the vocabulary: what they leave in the cache lies behind the
/// sequence and is overwritten before it is read.
struct Inference {
  Layout layout;
  JobTensors tensors;
  ProgramSet programs{};
  InferenceTensors prefill{}, decode{};

  const Program& load() const { return programs.at(load_name); }
};

/// The graph of a model's logits (model::Objective::logits) on so many tokens.
using LogitsGraph = std::function<model::Graph(std::int64_t tokens)>;

/// Compiles for one rank: links, plans and verifies every Program of it. Throws Error when the model cannot
/// be given a cache, or when a pass broke a Program.
Inference compile_inference(const LogitsGraph& graph, const JobSpec& spec, const InferenceOptions& options,
                            int rank);

}  // namespace ztrain::program
