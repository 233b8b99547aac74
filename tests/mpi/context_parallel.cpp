// The whole decoder with the tokens of a micro-batch split over `context`, in fp64: the loss, the norm and
// the gradient of each parameter are those of ranks that have whole sequences.

#include <gtest/gtest.h>

#include "kernels/launch/backend.hpp"
#include "program/passes/place.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/parameter_gradients.hpp"

namespace ztrain::context_parallel_test {
namespace {

using test::session;
using test::StepResult;
using test::TinyModel;

struct Variant {
  const char* name;
  void (*set)(TinyModel&);
};

constexpr Variant variants[] = {
    {"plain", [](TinyModel&) {}},
    {"documents",
     [](TinyModel& m) {
       m.document_ends = {1, 2, 5, 12};
     }},
    {"documents_in_rows_that_do_not_divide",
     [](TinyModel& m) {
       m.sequence = 11, m.micro = 2, m.global = 8;
       m.document_ends = {3, 10};
     }},
    {"padding_beyond_a_part",
     [](TinyModel& m) { m.sequence = 5, m.dims.sliding_window = 2, m.dims.full_attention_layers = 1; }},
    {"window",
     [](TinyModel& m) {
       m.dims.sliding_window = 3, m.dims.full_attention_layers = 1;
       m.document_ends = {6};
     }},
    {"one_head_of_keys", [](TinyModel& m) { m.dims.num_key_value_heads = 1; }},
    {"three_heads_of_keys",
     [](TinyModel& m) { m.dims.num_attention_heads = 6, m.dims.num_key_value_heads = 3; }},
    {"tied", [](TinyModel& m) { m.dims.tie_word_embeddings = true; }},
    {"biases_and_norms_of_heads",
     [](TinyModel& m) {
       m.dims.attention_bias = m.dims.attention_output_bias = true;
       m.dims.qk_norm = true;
     }},
    {"dropout",
     [](TinyModel& m) {
       m.lora = {3, 6, 0.25, {"q_proj", "up_proj"}}, m.adapter_std = 0.3;
     }},
    {"adapters",
     [](TinyModel& m) {
       m.lora = {3, 6, 0, {"q_proj", "k_proj", "o_proj", "down_proj", "up_proj"}};
       m.dims.trainable = {"model.layers.1.input_layernorm.weight", "lm_head.weight"};
       m.adapter_std = 0.3;
     }},
    {"of_weights_that_are_joined",
     [](TinyModel& m) {
       m.dims.hidden_size = 64, m.dims.intermediate_size = 64, m.dims.head_dim = 8;
       m.dims.num_key_value_heads = 4;
     }},
};

class ContextParallel : public testing::TestWithParam<Variant> {
 protected:
  static void SetUpTestSuite() { kernels::initialize_backend(); }
};

MeshShape mesh_of(Axis data, int data_ranks, int context, int tensor = 1) {
  MeshShape mesh;
  mesh[data] = data_ranks;
  mesh[Axis::context] = context;
  mesh[Axis::tensor] = tensor;
  return mesh;
}

struct Way {
  MeshShape mesh;
  const char* strategy;
  int recompute = 0;
  model::ContextMethod method = model::ContextMethod::gather;
};

std::vector<Way> ways(const config::Model& dims, int ranks) {
  std::vector<Way> all;
  for (int context = 2; context <= ranks; context *= 2) {
    all.push_back({mesh_of(Axis::shard, ranks / context, context), "FULL_SHARD", 1});
    all.push_back({mesh_of(Axis::replicate, ranks / context, context), context == 2 ? "NO_SHARD" : "zero2"});
    if (context < ranks) all.push_back({mesh_of(Axis::shard, 1, context, ranks / context), "zero1"});
    for (int tensor = 1; tensor <= ranks / context; tensor *= 2)
      all.push_back({mesh_of(Axis::shard, ranks / context / tensor, context, tensor),
                     tensor == 1 ? "zero2" : "FULL_SHARD", tensor == 1, model::ContextMethod::ring});
    for (int tensor = 1; tensor <= ranks / context; tensor *= 2) {
      if (dims.num_attention_heads % (context * tensor) != 0 ||
          dims.num_key_value_heads % (context * tensor) != 0)
        continue;
      const int left = ranks / context / tensor;
      all.push_back({mesh_of(Axis::shard, left, context, tensor), "FULL_SHARD", tensor == 1,
                     model::ContextMethod::heads});
      if (left == 1) continue;
      MeshShape around = mesh_of(Axis::shard, 1, context, tensor);
      around[Axis::ring] = left;
      all.push_back({around, "zero2", 0, model::ContextMethod::heads});
    }
  }
  return all;
}

TEST_P(ContextParallel, GivesTheGradientsOfTheWholeModel) {
  TinyModel m;
  GetParam().set(m);
  const program::Precision f64 = test::precision_of(DType::f64);
  const int ranks = session().size();
  const StepResult whole =
      test::step_result(session(), m, test::spec_for(m, mesh_of(Axis::shard, ranks, 1), "FULL_SHARD", f64));
  for (const Way& way : ways(m.dims, ranks)) {
    SCOPED_TRACE(testing::Message() << way.mesh.describe() << " " << way.strategy
                                    << (way.method == model::ContextMethod::ring ? " in a ring" : ""));
    const int tensor = way.mesh[Axis::tensor];
    m.token_order = program::token_order(way.mesh, way.method);
    auto spec = test::spec_for(m, way.mesh, way.strategy, f64);
    if (tensor > 1) spec.tensor = model::decoder_tensor_plan(m.dims, tensor);
    // Parts of a part need not be equal where norms are whole.
    spec.tensor.sequence_parallel =
        m.token_order.padded(m.micro * m.sequence) / way.mesh.size(context_axes) % tensor == 0;
    spec.recompute.every = way.recompute;
    spec.context = way.method;
    test::expect_same(whole, test::step_result(session(), m, spec));
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ContextParallel, testing::ValuesIn(variants),
                         [](const auto& v) { return std::string(v.param.name); });

}  // namespace
}  // namespace ztrain::context_parallel_test
