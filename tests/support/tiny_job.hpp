#pragma once
// A small model trained in-process on made-up tokens, for tests that compare meshes, strategies and passes.
// Token t of sample s is a function of (s, t) alone, so every mesh sees the same global batch.

#include <algorithm>
#include <vector>

#include "base/philox.hpp"
#include "base/preference_loss.hpp"
#include "config/strategy.hpp"
#include "job/evaluation.hpp"
#include "job/worker.hpp"
#include "model/family.hpp"
#include "model/fp8.hpp"
#include "model/lora.hpp"
#include "model/quantize.hpp"
#include "model/trainable.hpp"
#include "optim/schedule.hpp"

namespace ztrain::test {

/// Sizes that divide by nothing: vocabulary 257, odd widths.
struct TinyModel {
  config::Model dims;
  std::int64_t sequence = 16;
  std::int64_t micro = 1;
  std::int64_t global = 4;
  double loss_scale = 1;
  config::Lora lora;
  std::string fp8 = "none";  ///< precision.fp8
  TokenOrder token_order{};  ///< of the ranks of mesh.context: program::token_order
  /// Where documents of each sequence end before its end.
  std::vector<std::int64_t> document_ends{};
  double adapter_std = 0;  ///< above 0: lora_B is drawn too, so that lora_A has a gradient
  /// Of the losses that balance experts, and of their routers.
  double balance_coefficient = 0, z_coefficient = 0;
  model::BalanceOver balance_over = model::BalanceOver::micro_batch;
  double bias_speed = 0;          ///< experts.bias_update_speed
  bool balanced_routing = false;  ///< debug.balanced_routing
  /// preference.loss_type: each sequence is a pair, its first half the chosen answer. "": the loss of tokens.
  std::string pair_loss;
  double label_smoothing = 0, head_z_loss = 0;
  model::DistillationRequest teacher{};

  TinyModel() {
    dims.hidden_size = 24;
    dims.intermediate_size = 52;
    dims.num_hidden_layers = 2;
    dims.num_attention_heads = 4;
    dims.num_key_value_heads = 2;
    dims.head_dim = 6;
    dims.vocab_size = 257;
    dims.rms_norm_eps = 1e-5;
    dims.rope_theta = 10000;
    dims.rope_scaling = "none";
    dims.scoring_func = "softmax", dims.topk_method = "greedy";
    dims.initializer_range = 0.05;
  }

  /// Where the document of token t of a sequence begins.
  std::int64_t document_of(std::int64_t t) const {
    std::int64_t start = 0;
    for (const std::int64_t end : document_ends)
      if (end <= t) start = end;
    return start;
  }

  model::Graph graph(DType compute) const {
    model::Request request{token_order.padded(micro * sequence), compute, model::Objective::loss};
    request.balanced_routing = balanced_routing;
    request.balance_coefficient = balance_coefficient;
    request.z_coefficient = z_coefficient;
    request.balance_over = balance_over;
    request.bias_speed = bias_speed;
    request.label_smoothing = label_smoothing;
    request.head_z_loss = head_z_loss;
    request.distillation = teacher;
    if (!pair_loss.empty())
      request.pairs = {micro * sequence_slots(sequence), {pair_loss, 0.3, 0, 0.5, 1, 1, 0.1}};
    model::Graph graph = model::decoder(dims, request);
    model::add_adapters(graph, lora, 17);
    model::mark_trainable(graph, dims);
    for (model::Parameter& p : graph.parameters)
      if (p.adapter && adapter_std > 0 && p.init != model::Init::row_norms)
        p.init = model::Init::normal, p.init_std = adapter_std;
    model::use_fp8(graph, fp8);
    model::quantize_weights(graph, lora);
    return graph;
  }
};

inline program::Precision precision_of(DType all) {
  return {all, all, all, all, all};
}

inline program::JobSpec spec_for(const TinyModel& model, const MeshShape& mesh, const char* strategy,
                                 program::Precision precision) {
  program::JobSpec spec;
  spec.mesh = mesh;
  spec.strategy = config::find_strategy(strategy);
  spec.precision = precision;
  spec.tokens = model.micro * model.sequence;
  spec.micro_batches = static_cast<int>(model.global / (model.micro * mesh.size(sequence_axes)));
  return spec;
}

/// The job of tests that compare devices: bf16 beside fp32, some of it recomputed, on a mesh of all ranks.
inline program::JobSpec spec_of_ranks(const TinyModel& model, const char* strategy, int ranks) {
  MeshShape mesh;
  if (config::find_strategy(strategy).within_node) mesh[Axis::replicate] = 2;
  mesh[Axis::shard] = ranks / mesh[Axis::replicate];
  program::JobSpec spec =
      spec_for(model, mesh, strategy, {DType::bf16, DType::f32, DType::f32, DType::f32, DType::f32});
  spec.recompute.every = 2;
  return spec;
}

inline std::int32_t token(std::int64_t sample, std::int64_t t, std::int64_t vocabulary) {
  return static_cast<std::int32_t>(
      philox(7, static_cast<std::uint64_t>(sample), static_cast<std::uint64_t>(t))[0] %
      static_cast<std::uint64_t>(vocabulary));
}

/// Whether the answer of a sample is undesirable, where answers have labels.
inline bool is_undesirable(std::int64_t sample) {
  return sample % 3 == 1;
}

/// Gives words to the tokens at these places, each with a larger share than the one before; every seventh
/// token has no teacher.
inline void teach(const TinyModel& model, const std::vector<std::int64_t>& places,
                  const job::InputAddresses& in) {
  const std::int64_t k = model.teacher.words;
  for (std::size_t t = 0; t < places.size(); ++t)
    for (std::int64_t w = 0; w < k; ++w) {
      const std::size_t at = t * static_cast<std::size_t>(k) + static_cast<std::size_t>(w);
      const bool taught = places[t] >= 0 && places[t] % 7 != 3;
      // 37 divides no vocabulary here, so that the words of a token differ.
      in.words[at] =
          taught ? static_cast<std::int32_t>((places[t] * 11 + w * 37) % model.dims.vocab_size) : 0;
      in.shares[at] = taught ? static_cast<float>(2 * (w + 1)) / static_cast<float>(k * (k + 1)) : 0.0F;
    }
}

/// Fills every micro-batch with the samples of this step; samples differ in their number of valid targets.
inline void fill(job::Worker& worker, const TinyModel& model, int micros, std::int64_t first_sample) {
  data::BatchPart part = job::part_of_batches(worker, model.micro * model.sequence);
  for (int m = 0; m < micros; ++m) {
    std::vector<std::int64_t> places(
        static_cast<std::size_t>(job::own_tokens(worker, model.micro * model.sequence)));
    const job::InputAddresses inputs = worker.inputs(m);
    data::MicroBatch to = job::batch_of(inputs);
    if (model.teacher.words > 0) to.places = places.data();
    part.fill(to, [&](const data::MicroBatch& in) {
      for (std::int64_t row = 0; row < model.micro; ++row)
        for (std::int64_t t = 0; t < model.sequence; ++t) {
          const std::int64_t sample =
              first_sample + (m * worker.data_ranks() + worker.data_index()) * model.micro + row;
          const std::int64_t i = row * model.sequence + t, start = model.document_of(t);
          in.tokens[i] = token(sample, t, model.dims.vocab_size);
          in.targets[i] = token(sample, t + 1, model.dims.vocab_size);
          in.weights[i] = (sample + t) % 5 == 4 || t < sample % 3 ? 0.0F : 1.0F;
          in.positions[i] = static_cast<std::int32_t>(t - start);
          in.document_start[i] = static_cast<std::int32_t>(row * model.sequence + start);
          if (in.places != nullptr) in.places[i] = in.weights[i] != 0 ? sample * model.sequence + t : -1;
          if (in.sequences == nullptr) continue;
          const std::int64_t half = model.sequence / 2, answer = t < half ? 0 : 1;
          if (is_reward_loss(model.pair_loss))
            in.weights[i] = t == half - 1 || t == model.sequence - 1 ? 1.0F : 0.0F;
          const bool undesirable = is_undesirable(sample) && find_pair_loss(model.pair_loss).labelled;
          in.sequences[i] = static_cast<std::int32_t>(row * sequence_slots(model.sequence) + answer +
                                                      (undesirable ? 2 : 0));
          in.reference[i] = t % half == 0 ? -12.5 - 0.75 * static_cast<double>((sample + answer) % 4) : 0;
        }
    });
    if (model.teacher.words > 0) teach(model, places, inputs);
  }
}

inline void set_scalars(StepScalars& s, int step) {
  s.learning_rate = 1e-2;
  s.bias_correction1 = optim::bias_correction(0.9, step + 1);
  s.bias_correction2 = optim::bias_correction(0.95, step + 1);
  s.max_norm = 1.0;
  s.optimizer_step = step;
}

/// Losses of `steps` steps. after_first: called once, when memory and libraries are warm.
template <class F>
std::vector<double> train_losses(job::Worker& worker, const TinyModel& model, int micros, int steps,
                                 F&& around) {
  worker.initialize(11);
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    fill(worker, model, micros, step * model.global);
    set_scalars(worker.scalars(), step);
    worker.scalars().loss_scale = model.loss_scale;
    around(step, [&] { worker.step(); });
    losses.push_back(worker.scalars().loss);
    losses.push_back(worker.scalars().gradient_norm);
  }
  return losses;
}

inline std::vector<double> losses_of(const runtime::Session& session, const TinyModel& model,
                                     const program::JobSpec& spec, int steps = 4, bool poison = false) {
  job::Worker worker(session, model.graph(spec.precision.parameters), spec, {.poison = poison});
  return train_losses(worker, model, spec.micro_batches, steps, [](int, auto run) { run(); });
}

}  // namespace ztrain::test
