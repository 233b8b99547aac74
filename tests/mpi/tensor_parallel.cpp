// The whole decoder split over `tensor` by its table of parameters alone, in fp64: the loss and the gradient
// of each parameter are those of the whole model.

#include <gtest/gtest.h>

#include "kernels/launch/backend.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/parameter_gradients.hpp"

namespace ztrain::tensor_parallel_test {
namespace {

using test::session;
using test::StepResult;
using test::TinyModel;

struct Variant {
  const char* name;
  void (*set)(TinyModel&);
};

constexpr Variant variants[] = {
    {"even", [](TinyModel&) {}},
    {"three_heads_of_keys",
     [](TinyModel& m) { m.dims.num_attention_heads = 6, m.dims.num_key_value_heads = 3; }},
    {"one_head_of_keys", [](TinyModel& m) { m.dims.num_key_value_heads = 1; }},
    {"tied_and_odd",
     [](TinyModel& m) {
       m.dims.tie_word_embeddings = true;
       m.dims.intermediate_size = 53;
     }},
    {"biases",
     [](TinyModel& m) {
       m.dims.attention_bias = m.dims.attention_output_bias = true;
       m.dims.num_attention_heads = 6, m.dims.num_key_value_heads = 3;
     }},
    {"heads_normalised", [](TinyModel& m) { m.dims.qk_norm = true; }},
    {"one_head_of_keys_normalised",
     [](TinyModel& m) { m.dims.qk_norm = true, m.dims.num_key_value_heads = 1; }},
    {"adapters_beside_norms_of_heads",
     [](TinyModel& m) {
       m.dims.qk_norm = true;
       m.lora = {3, 6, 0, {"q_proj", "k_proj"}};
       m.adapter_std = 0.3;
     }},
    {"dropout",
     [](TinyModel& m) {
       m.lora = {3, 6, 0.25, {"q_proj", "up_proj", "o_proj", "down_proj"}}, m.adapter_std = 0.3;
     }},
    {"window", [](TinyModel& m) { m.dims.sliding_window = 3, m.dims.full_attention_layers = 1; }},
    {"joined",
     [](TinyModel& m) {
       m.dims.hidden_size = 64, m.dims.intermediate_size = 64, m.dims.head_dim = 8;
       m.dims.num_key_value_heads = 4;
     }},
    {"joined_unevenly",
     [](TinyModel& m) {
       m.dims.hidden_size = 64, m.dims.intermediate_size = 80, m.dims.head_dim = 8;
       m.dims.num_attention_heads = 6, m.dims.num_key_value_heads = 3;
     }},
    {"adapters",
     [](TinyModel& m) {
       m.dims.num_attention_heads = 6, m.dims.num_key_value_heads = 3, m.dims.intermediate_size = 53;
       m.lora = {3, 6, 0, {"q_proj", "k_proj", "o_proj", "down_proj", "up_proj"}};
       m.dims.trainable = {"model.layers.1.input_layernorm.weight", "lm_head.weight"};
       m.adapter_std = 0.3;
     }},
};

class TensorParallel : public testing::TestWithParam<Variant> {
 protected:
  static void SetUpTestSuite() { kernels::initialize_backend(); }
};

MeshShape mesh_of(int shard, int tensor) {
  MeshShape mesh;
  mesh[Axis::shard] = shard;
  mesh[Axis::tensor] = tensor;
  return mesh;
}

TEST_P(TensorParallel, GivesTheGradientsOfTheWholeModel) {
  TinyModel m;
  GetParam().set(m);
  const program::Precision f64 = test::precision_of(DType::f64);
  const int ranks = session().size();
  const StepResult whole =
      test::step_result(session(), m, test::spec_for(m, mesh_of(ranks, 1), "FULL_SHARD", f64));
  struct Way {
    const char* strategy;
    bool sequence;
    int recompute;
    bool overlap = false;
  };
  std::vector<Way> ways{{"FULL_SHARD", true, 1}, {"NO_SHARD", false, 0}};
  const std::string name = GetParam().name;
  if (name == "even") ways.insert(ways.end(), {{"zero1", true, 0}, {"FULL_SHARD", true, 1, true}});
  if (name == "biases" || name == "joined" || name == "adapters") ways.push_back({"zero2", true, 0, true});
  for (int tensor = 2; tensor <= ranks; tensor *= 2)
    for (const Way& way : ways) {
      SCOPED_TRACE(testing::Message() << tensor << " " << way.strategy << " " << way.sequence);
      auto spec = test::spec_for(m, mesh_of(ranks / tensor, tensor), way.strategy, f64);
      spec.tensor = model::decoder_tensor_plan(m.dims, tensor);
      spec.tensor.sequence_parallel = way.sequence;
      spec.recompute.every = way.recompute;
      spec.overlap_tensor = way.overlap;
      test::expect_same(whole, test::step_result(session(), m, spec));
      if (HasFatalFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(Models, TensorParallel, testing::ValuesIn(variants),
                         [](const auto& v) { return std::string(v.param.name); });

}  // namespace
}  // namespace ztrain::tensor_parallel_test
