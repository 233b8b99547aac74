#pragma once
// A small model and its job, for tests that compile and prove Programs without running them.

#include <string>

#include "base/error.hpp"
#include "config/strategy.hpp"
#include "model/family.hpp"
#include "program/jobs/compile.hpp"

namespace ztrain::test {

inline config::Model small_dims(int layers, bool tied) {
  config::Model m;
  m.hidden_size = 40;
  m.intermediate_size = 100;
  m.num_hidden_layers = layers;
  m.num_attention_heads = 5;
  m.num_key_value_heads = 5;
  m.head_dim = 8;
  m.vocab_size = 257;
  m.rms_norm_eps = 1e-5;
  m.rope_theta = 1e4;
  m.rope_scaling = "none";
  m.tie_word_embeddings = tied;
  return m;
}

/// 8 heads of queries and 4 of keys.
inline config::Model dims_by_heads() {
  config::Model dims = small_dims(2, false);
  dims.num_attention_heads = 8, dims.num_key_value_heads = 4;
  return dims;
}

/// The same with 8 experts in each of 2 layers.
inline config::Model dims_with_experts() {
  config::Model dims = dims_by_heads();
  dims.family = "qwen3_moe";
  dims.num_experts = 8, dims.num_experts_per_tok = 2, dims.moe_intermediate_size = 24;
  return dims;
}

inline model::Graph small_model(int layers = 2, bool tied = false) {
  return model::decoder(small_dims(layers, tied), {32, DType::bf16, model::Objective::loss});
}

inline program::JobSpec spec_on(int replicate, int shard, const config::Strategy& strategy, int micros = 2) {
  program::JobSpec spec;
  spec.mesh[Axis::replicate] = replicate;
  spec.mesh[Axis::shard] = shard;
  spec.strategy = strategy;
  spec.precision = {DType::bf16, DType::f32, DType::f32, DType::f32, DType::f32};
  spec.micro_batches = micros;
  return spec;
}

/// The message with which a broken program is refused, or "" when it is accepted.
template <class F>
std::string refusal(F&& check) {
  try {
    check();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace ztrain::test
