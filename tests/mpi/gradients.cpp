// Whole-model gradients: finite differences in fp64, and the lower precisions against fp64.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/launch/exec.hpp"
#include "kernels/linear/record.hpp"
#include "tests/support/device_values.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/node_index.hpp"
#include "tests/support/tiny_job.hpp"

namespace ztrain::gradients_test {
namespace {

using test::session;
using test::TinyModel;

/// Adam's first moment after one step from zero is (1 - beta1) times the gradient of the mean loss.
constexpr double beta1 = 0.5;

struct Variant {
  const char* name;
  void (*set)(TinyModel&);
};

void tied(TinyModel& tiny) {
  config::Model& m = tiny.dims;
  m.tie_word_embeddings = true;
  m.num_key_value_heads = 1;
  m.rope_scaling = "llama3";
  m.rope_factor = 8;
  m.rope_low_freq_factor = 1;
  m.rope_high_freq_factor = 4;
  m.rope_original_max_position = 16;
}

/// A window shorter than the second document of each row, after a layer without.
void window(TinyModel& tiny) {
  config::Model& m = tiny.dims;
  m.sliding_window = 3;
  m.full_attention_layers = 1;
}

void norms_and_biases(TinyModel& tiny) {
  config::Model& m = tiny.dims;
  m.qk_norm = m.attention_bias = m.attention_output_bias = true;
  m.num_key_value_heads = 2;
}

/// Attention with sinks and a clamped gate, some layers with a window.
void sinks(TinyModel& tiny) {
  config::Model& m = tiny.dims;
  m.family = "gpt_oss";
  m.attention_bias = m.attention_output_bias = m.mlp_bias = true;
  m.sliding_window = 3;
  m.layer_types = {"sliding_attention", "full_attention"};
}

/// Sizes for which products of one input are joined; weights alone, then biases too.
void joined(TinyModel& tiny) {
  config::Model& m = tiny.dims;
  m.hidden_size = 32;
  m.intermediate_size = 48;
  m.head_dim = 8;
}
void joined_biases(TinyModel& tiny) {
  config::Model& m = tiny.dims;
  m.hidden_size = 8;
  m.intermediate_size = 32;
  m.num_key_value_heads = 4;
  m.head_dim = 64;
  m.attention_bias = true;
}

/// Beside frozen layers, one without adapters below one with; a norm is trained, and the head.
void adapters(TinyModel& m) {
  m.lora = {3, 6, 0, {"model.layers.0.self_attn.k_proj", "model.layers.1.*"}};
  m.dims.trainable = {"model.layers.1.input_layernorm.weight", "lm_head.weight"};
  m.adapter_std = 0.3;
}

/// Nothing but attention's keys of the upper layer.
void keys_alone(TinyModel& m) {
  m.dims.trainable = {"model.layers.1.self_attn.k_proj.weight"};
}

constexpr Variant variants[] = {
    {"plain", [](TinyModel& m) { m.dims.num_key_value_heads = 4; }},
    {"grouped", [](TinyModel& m) { m.dims.attention_bias = true; }},
    {"tied", tied},
    {"window", window},
    {"heads_normalised", [](TinyModel& m) { m.dims.qk_norm = true; }},
    {"norms_and_biases", norms_and_biases},
    {"sinks", sinks},
    {"joined", joined},
    {"joined_biases", joined_biases},
    {"adapters", adapters},
    {"keys_alone", keys_alone},
    {"smoothed_labels",
     [](TinyModel& m) {
       m.label_smoothing = 0.2;
       m.head_z_loss = 0.05;
     }},
    {"a_teacher",
     [](TinyModel& m) {
       m.teacher = {4, 0.7};
     }},
    {"pairs", [](TinyModel& m) { m.pair_loss = "sigmoid"; }},
    {"rewards", [](TinyModel& m) { m.pair_loss = "reward"; }},
    {"labels",
     [](TinyModel& m) {
       m.pair_loss = "apo_zero_unpaired";  // kto's divergence has no gradient, but a difference
       m.micro = 4;
     }},
    {"pairs_with_capped_logits",
     [](TinyModel& m) {
       m.pair_loss = "orpo";
       m.dims.final_logit_softcapping = 2;
     }},
};

TinyModel model_of(const Variant& v) {
  TinyModel m;
  m.micro = 2;
  m.global = 4;
  m.sequence = 11;
  m.dims.vocab_size = 29;
  m.dims.initializer_range = 0.3;
  v.set(m);
  return m;
}

using GraphPass = void (*)(model::Graph&, const Coordinate&);

/// A model on one rank, with two documents in each row, and its gradient.
class Probe {
 public:
  Probe(const TinyModel& model, DType type, program::Recompute recompute, bool mixed = false,
        double loss_scale = 1, GraphPass pass = nullptr)
      : model_(model),
        spec_(spec(model, type, recompute, mixed, pass)),
        worker_(session(), model.graph(type), spec_) {
    worker_.initialize(5);
    load_batch();
    test::set_scalars(worker_.scalars(), 0);
    worker_.scalars().learning_rate = 0;
    worker_.scalars().max_norm = 0;
    worker_.scalars().loss_scale = loss_scale;
    worker_.step();
  }

  const Layout& layout() const { return worker_.job().layout; }
  const std::vector<program::Op>& ops() const { return worker_.job().train().ops; }
  double loss() const { return worker_.scalars().loss; }
  double norm() const { return worker_.scalars().gradient_norm; }

  /// Gradient of the mean loss at element i of parameter p; of a frozen one, 0.
  double gradient(int p, std::int64_t i) const {
    if (state(p).optimizer.empty()) return 0;  // frozen
    const auto& tensor = state(p).optimizer[0].whole;
    const auto at = layout().segment_of(p).begin + i;
    const double m = type(tensor) == DType::f64 ? test::read_element<double>(worker_, tensor, at)
                                                : test::read_element<float>(worker_, tensor, at);
    return m / (1 - beta1);
  }

  /// Mean loss of the step's batch with element i of parameter p moved. fp64 only.
  double loss_moved(int p, std::int64_t i, double by) {
    const program::TensorId master = state(p).master.whole;
    const std::int64_t at = layout().segment_of(p).begin + i;
    const double old = test::read_element<double>(worker_, master, at);
    test::write_element(worker_, master, at, old + by);
    double loss = 0, weight = 0;
    for (int m = 0; m < spec_.micro_batches; ++m) {
      load_batch(m);
      worker_.evaluate_batch();
      loss += worker_.partials()[0].loss_sum;
      weight += worker_.partials()[0].weight_sum;
    }
    test::write_element(worker_, master, at, old);
    load_batch();
    return loss / weight;
  }

 private:
  static program::JobSpec spec(const TinyModel& model, DType type, program::Recompute recompute, bool mixed,
                               GraphPass pass) {
    program::Precision precision = test::precision_of(type);
    if (mixed) precision = {type, DType::f32, DType::f32, DType::f32, DType::f32};
    program::JobSpec s = test::spec_for(model, {}, "NO_SHARD", precision);
    s.optimizer.options.beta1 = beta1;
    s.recompute = recompute;
    if (pass) s.graph_passes.emplace_back(pass);
    return s;
  }

  /// Micro-batch 0 of the evaluation takes the step's micro-batch `first`.
  void load_batch(int first = 0) {
    test::fill(worker_, model_, spec_.micro_batches, first * model_.micro);
    for (int m = 0; m < spec_.micro_batches; ++m) {
      const job::InputAddresses in = worker_.inputs(m);
      for (std::int64_t i = 0; i < model_.micro * model_.sequence; ++i)
        if (i % model_.sequence >= 4) in.document_start[i] += 4;
    }
  }

  const program::UnitState& state(int p) const {
    return worker_.job()
        .tensors.units[static_cast<std::size_t>(layout().parameters()[static_cast<std::size_t>(p)].unit)];
  }
  DType type(program::TensorId t) const { return worker_.job().train().tensor(t).dtype; }

  TinyModel model_;
  program::JobSpec spec_;
  job::Worker worker_;
};

class Gradients : public testing::TestWithParam<Variant> {
 protected:
  static void SetUpTestSuite() { kernels::initialize_backend(); }
};

/// times: of the tolerance. Token weights, which losses on pairs make of their derivatives, are fp32.
void expect_finite_differences(Probe& probe, double times = 1) {
  const auto& parameters = probe.layout().parameters();
  for (int p = 0; p < static_cast<int>(parameters.size()); ++p) {
    if (!parameters[static_cast<std::size_t>(p)].trainable) continue;
    const std::int64_t count = elements(parameters[static_cast<std::size_t>(p)].shape);
    for (std::int64_t k = 0; k < 5; ++k) {
      const std::int64_t i = (k * 7919 + p) % count;
      const double h = 1e-4;
      // Fourth order: the error is about h^4.
      const double numeric = (8 * (probe.loss_moved(p, i, h) - probe.loss_moved(p, i, -h)) -
                              (probe.loss_moved(p, i, 2 * h) - probe.loss_moved(p, i, -2 * h))) /
                             (12 * h);
      EXPECT_NEAR(probe.gradient(p, i), numeric, times * (1e-9 + 1e-7 * std::abs(numeric)))
          << parameters[static_cast<std::size_t>(p)].name << "[" << i << "]";
    }
  }
}

TEST_P(Gradients, AreFiniteDifferences) {
  const TinyModel model = model_of(GetParam());
  Probe probe(model, DType::f64, program::Recompute{});
  expect_finite_differences(probe, model.pair_loss.empty() ? 1 : 20);
}

/// The gate reads the residual stream itself. In backward the stream's gradient is then at first that of the
/// sum behind the layer, which the product's gradient may not be added to in place.
void gate_past_the_norm(model::Graph& graph, const Coordinate&) {
  const std::string layer = "model.layers.0.";
  const model::ValueId stream =
      graph.nodes[test::node_index(graph, layer + "post_attention_layernorm")].inputs[0];
  graph.nodes[test::node_index(graph, layer + "mlp.gate_proj")].inputs[0] = stream;
}

TEST(SharedGradients, AreCopiedBeforeTheyAreAddedTo) {
  kernels::initialize_backend();
  Probe probe(model_of(variants[0]), DType::f64, program::Recompute{}, false, 1, gate_past_the_norm);
  EXPECT_TRUE(std::ranges::any_of(probe.ops(), [](const program::Op& op) {
    return op.type == "copy" && op.action.kind == program::ActionKind::backward;
  }));
  expect_finite_differences(probe);
}

TEST(SharedGradients, OfALayerThatIsUsedTwiceAreFiniteDifferences) {
  kernels::initialize_backend();
  Probe probe(model_of(variants[0]), DType::f64, program::Recompute{}, false, 1, test::use_projection_twice);
  expect_finite_differences(probe);
}

TEST(ChangedGraphs, HaveFiniteDifferencesAsGradients) {
  kernels::initialize_backend();
  const double plain = Probe(model_of(variants[0]), DType::f64, program::Recompute{}).loss();
  for (const GraphPass pass : {test::scale_and_cap, test::mix_activations}) {
    Probe probe(model_of(variants[0]), DType::f64, program::Recompute{}, false, 1, pass);
    EXPECT_GT(std::abs(probe.loss() - plain), 1e-3);
    expect_finite_differences(probe);
  }
}

/// Only layers of one piece are joined.
void keep_apart(model::Graph& graph, const Coordinate&) {
  for (model::Node& node : graph.nodes)
    if (node.op == Linear::op) node.piece = node.name;
}

int joined_products(const Probe& probe) {
  return static_cast<int>(std::ranges::count_if(
      probe.ops(), [](const program::Op& op) { return op.attributes.integer("parts", 1) > 1; }));
}

TEST(JoinedProducts, AreThoseOfTheLayers) {
  kernels::initialize_backend();
  for (const auto set : {joined, joined_biases}) {
    const TinyModel model = model_of({"", set});
    const Probe one(model, DType::f64, program::Recompute{});
    const Probe apart(model, DType::f64, program::Recompute{}, false, 1, keep_apart);
    EXPECT_GT(joined_products(one), 0);
    EXPECT_EQ(joined_products(apart), 0);
    EXPECT_NEAR(one.loss(), apart.loss(), 1e-13);
    for (int p = 0; p < static_cast<int>(one.layout().parameters().size()); ++p)
      for (std::int64_t i = 0; i < one.layout().segment_of(p).count; ++i)
        ASSERT_NEAR(one.gradient(p, i), apart.gradient(p, i), 1e-13);
  }
}

TEST_P(Gradients, RecomputeChangesNoBit) {
  const Probe kept(model_of(GetParam()), DType::f64, program::Recompute{});
  const Probe again(model_of(GetParam()), DType::f64, program::Recompute{1, {}});
  EXPECT_EQ(kept.loss(), again.loss());
  EXPECT_EQ(kept.norm(), again.norm());
}

TEST_P(Gradients, LossScaleChangesNoBit) {
  const Probe plain(model_of(GetParam()), DType::f64, program::Recompute{});
  const Probe scaled(model_of(GetParam()), DType::f64, program::Recompute{}, false, 1024);
  EXPECT_EQ(plain.loss(), scaled.loss());
  EXPECT_EQ(plain.norm(), scaled.norm());
  EXPECT_GT(plain.norm(), 0);
  for (int p = 0; p < static_cast<int>(plain.layout().parameters().size()); ++p)
    for (std::int64_t i = 0; i < plain.layout().segment_of(p).count; ++i)
      ASSERT_EQ(scaled.gradient(p, i), plain.gradient(p, i));
}

TEST_P(Gradients, OfLowerPrecisionsAreNearFp64) {
  TinyModel model = model_of(GetParam());
  // Large weights amplify the rounding of one layer in the next.
  model.dims.initializer_range = 0.1;
  model.adapter_std = std::min(model.adapter_std, 0.05);
  const Probe exact(model, DType::f64, program::Recompute{});
  const Probe single(model, DType::f32, program::Recompute{});
  const Probe mixed(model, DType::bf16, program::Recompute{}, true);
  const Probe half(model, DType::f16, program::Recompute{}, true, 1024);
  for (const auto& [probe, tolerance] :
       {std::pair{&single, 2e-5}, std::pair{&mixed, 2e-2}, std::pair{&half, 3e-3}}) {
    EXPECT_NEAR(probe->loss(), exact.loss(), tolerance * exact.loss());
    double difference = 0, size = 0;
    for (int p = 0; p < static_cast<int>(exact.layout().parameters().size()); ++p)
      for (std::int64_t i = 0; i < exact.layout().segment_of(p).count; ++i) {
        difference += std::pow(probe->gradient(p, i) - exact.gradient(p, i), 2);
        size += std::pow(exact.gradient(p, i), 2);
      }
    EXPECT_LE(std::sqrt(difference / size), tolerance);
    EXPECT_NEAR(probe->norm(), std::sqrt(size), tolerance * std::sqrt(size));
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, Gradients, testing::ValuesIn(variants),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace ztrain::gradients_test
