// Mixtures of experts on meshes of every pair of axes: loss, norm and gradients are those of one rank in
// fp64, whatever the tokens choose; strategies and rooms for rows give the same bits; checkpoints are read on
// other meshes; biases that follow the load are the same bits. The run with one rank leaves gradients in
// files.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.hpp"
#include "config/architectures.hpp"
#include "job/weights.hpp"
#include "kernels/launch/exec.hpp"
#include "program/passes/place.hpp"
#include "tests/support/as_planned.hpp"
#include "tests/support/folder_of_ranks.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/parameter_gradients.hpp"

namespace ztrain::experts_test {
namespace {

using test::session;
using test::StepResult;
using test::TinyModel;

/// What the tokens choose. one_choice: routers of zeros, whose scores are equal, so all tokens go to the
/// first experts and the others are idle.
enum class Chosen : std::uint8_t { drawn, in_turn, one_choice };
constexpr std::pair<Chosen, const char*> choices[] = {
    {Chosen::drawn, "drawn"}, {Chosen::in_turn, "in_turn"}, {Chosen::one_choice, "one_choice"}};

constexpr Axis axes[] = {Axis::pipeline, Axis::replicate, Axis::shard,
                         Axis::expert,   Axis::context,   Axis::tensor};

/// Draws what begins at zero, or near it, so that it counts. Biases of the choice decide about experts.
void draw_biases(model::Graph& graph, const Coordinate&) {
  for (model::Parameter& p : graph.parameters)
    if (p.constant || p.name.ends_with(".bias") || p.name.ends_with(".sinks"))
      p.init = model::Init::normal, p.init_std = p.constant ? 0.3 : 0.5;
}

void zero_routers(model::Graph& graph, const Coordinate&) {
  for (model::Parameter& p : graph.parameters)
    if (p.name.ends_with(".mlp.gate.weight")) p.init = model::Init::zeros;
}

class Experts : public testing::Test {
 protected:
  static void SetUpTestSuite() { kernels::initialize_backend(); }

  Experts() {
    config::Model& m = model_.dims;
    m.family = "qwen2_moe";
    m.num_experts = 8, m.num_experts_per_tok = 2, m.moe_intermediate_size = 20;
    m.shared_expert_intermediate_size = 28;
    model_.sequence = 32;
    model_.global = 8;
    model_.balance_coefficient = 0.02, model_.z_coefficient = 0.01;
  }

  /// Biases everywhere, sinks, a clamped gate, and windows in the first layer.
  void use_gpt_oss() {
    config::Model& m = model_.dims;
    m.family = "gpt_oss";
    m.shared_expert_intermediate_size = 0;
    m.norm_topk_prob = m.attention_bias = m.attention_output_bias = m.mlp_bias = true;
    m.sliding_window = 9;
    m.layer_types = {"sliding_attention", "full_attention"};
  }

  /// Every mesh of the ranks over one axis or two.
  static std::vector<MeshShape> meshes() {
    std::vector<MeshShape> all;
    const int ranks = session().size();
    const auto add = [&](Axis a, int of_a, Axis b) {
      MeshShape mesh;
      mesh[a] = of_a;
      if (ranks > of_a) mesh[b] = ranks / of_a;
      // The model has two blocks, and two heads of keys.
      if (mesh[Axis::pipeline] <= 2 && mesh[Axis::tensor] <= 4) all.push_back(mesh);
    };
    for (const Axis a : axes) {
      add(a, ranks, a);
      for (const Axis b : axes)
        for (int of_a = 2; a < b && of_a < ranks; of_a *= 2) add(a, of_a, b);
    }
    return all;
  }

  program::JobSpec spec(const MeshShape& mesh, const char* strategy, DType type,
                        Chosen chosen = Chosen::drawn,
                        model::ContextMethod method = model::ContextMethod::gather) {
    model_.balanced_routing = chosen == Chosen::in_turn;
    model_.token_order = program::token_order(mesh, method, mesh[Axis::tensor]);
    program::JobSpec spec = test::spec_for(model_, mesh, strategy, test::precision_of(type));
    spec.context = method;
    spec.token_multiple = mesh[Axis::tensor];
    spec.tensor = model::decoder_tensor_plan(model_.dims, mesh[Axis::tensor]);
    if (mesh[Axis::pipeline] > 1) spec.schedule = program::find_schedule("1f1b");
    spec.graph_passes.emplace_back(draw_biases);
    if (chosen == Chosen::one_choice) spec.graph_passes.emplace_back(zero_routers);
    return spec;
  }

  TinyModel model_;
};

/// DeepSeek's: latent attention, groups of experts, a bias of the choice, and a dense layer first.
class LatentExperts : public Experts {
 protected:
  void use(const std::string& family) {
    config::Model& m = model_.dims;
    const bool third = family == "deepseek_v3";
    m.family = family;
    m.num_hidden_layers = 3, m.first_k_dense_replace = 1;
    m.num_key_value_heads = 4;
    m.q_lora_rank = third ? 10 : 0, m.kv_lora_rank = 8;
    m.qk_nope_head_dim = 5, m.qk_rope_head_dim = 4, m.v_head_dim = 7, m.head_dim = 9;
    m.shared_expert_intermediate_size = 0, m.n_shared_experts = 2;
    m.scoring_func = third ? "sigmoid" : "softmax";
    m.topk_method = third ? "noaux_tc" : "group_limited_greedy";
    m.n_group = 4, m.topk_group = 2, m.norm_topk_prob = third, m.routed_scaling_factor = 2.5;
  }
};

using Biases = std::map<std::string, std::vector<double>>;

/// Returns the biases of the choice that this rank computes with, in fp64.
Biases biases_of(const job::Worker& worker) {
  Biases found;
  const Layout& layout = worker.job().layout;
  for (const FlatUnit& unit : layout.units())
    for (const Segment& s : unit.segments) {
      const std::string& name = layout.parameters()[static_cast<std::size_t>(s.parameter)].name;
      const auto& state = worker.job().tensors.units[static_cast<std::size_t>(unit.unit)];
      if (name.ends_with(config::choice_bias))
        found[name] = test::read_elements<double>(worker, state.parameters.whole, s.begin, s.count);
    }
  return found;
}

void expect_same(const Biases& all, const Biases& of_rank) {
  for (const auto& [name, values] : of_rank) EXPECT_EQ(values, all.at(name)) << name;
}

std::filesystem::path file_of(const char* choice) {
  return std::filesystem::path(ZTRAIN_TEST_FOLDER) / fmt::format("experts_{}.cbor", choice);
}

void leave(const StepResult& whole, const char* choice) {
  std::ofstream file(file_of(choice), std::ios::binary);
  nlohmann::json::to_cbor(nlohmann::json{whole.loss, whole.norm, whole.gradients}, file);
}

StepResult left(const char* choice) {
  std::ifstream file(file_of(choice), std::ios::binary);
  if (!file) throw Error("run this test with one rank first");
  const nlohmann::json one = nlohmann::json::from_cbor(file);
  return {one[0].get<double>(), one[1].get<double>(),
          one[2].get<std::map<std::string, std::vector<double>>>()};
}

TEST_F(Experts, HaveTheGradientsOfOneRank) {
  for (const auto& [chosen, name] : choices) {
    if (session().size() == 1)
      leave(test::step_result(session(), model_, spec({}, "NO_SHARD", DType::f64, chosen)), name);
    const StepResult whole = left(name);
    for (const MeshShape& mesh : meshes()) {
      // Each rank gives its own tokens turns.
      if (chosen == Chosen::in_turn && mesh[Axis::context] * mesh[Axis::tensor] > 1) continue;
      SCOPED_TRACE(testing::Message() << mesh.describe() << " " << name);
      program::JobSpec cut = spec(mesh, "FULL_SHARD", DType::f64, chosen);
      cut.recompute.every = chosen == Chosen::drawn ? 2 : 0;
      test::expect_same(whole, test::step_result(session(), model_, cut));
    }
  }
}

/// Micro-batches that ranks have at once are balanced as one that has all of their sequences.
TEST_F(Experts, AreBalancedOverAllRanksAsOnOne) {
  model_.balance_over = model::BalanceOver::ranks;
  constexpr const char* name = "over_ranks";
  const auto one_micro_batch = [&](const MeshShape& mesh) {
    model_.micro = model_.global / mesh.size(sequence_axes);
    return spec(mesh, "FULL_SHARD", DType::f64);
  };
  if (session().size() == 1) leave(test::step_result(session(), model_, one_micro_batch({})), name);
  const StepResult whole = left(name);
  for (const MeshShape& mesh : meshes()) {
    if (mesh.size(sequence_axes) == 1 || mesh[Axis::pipeline] > 1) continue;
    SCOPED_TRACE(testing::Message() << mesh.describe());
    test::expect_same(whole, test::step_result(session(), model_, one_micro_batch(mesh)));
  }
}

/// Sinks join the softmax behind the last part of the keys, and each rank has those of its heads. Each layer
/// has a balance loss of its own.
TEST_F(Experts, OfGptOssHaveTheGradientsOfOneRank) {
  use_gpt_oss();
  model_.balance_over = model::BalanceOver::layer;
  constexpr const char* name = "gpt_oss";
  if (session().size() == 1)
    leave(test::step_result(session(), model_, spec({}, "NO_SHARD", DType::f64)), name);
  const StepResult whole = left(name);
  EXPECT_EQ(whole.gradients.count("model.layers.1.self_attn.sinks"), 1U);
  using enum model::ContextMethod;
  for (const MeshShape& mesh : meshes())
    for (const model::ContextMethod method : {gather, ring, heads}) {
      const int context = mesh[Axis::context];
      // The two heads of keys are dealt to the ranks of tensor, and then to those of context.
      if ((method != gather && (context == 1 || session().size() > 4)) ||
          (method == heads && context * mesh[Axis::tensor] > 2))
        continue;
      SCOPED_TRACE(testing::Message() << mesh.describe() << " method " << static_cast<int>(method));
      program::JobSpec cut = spec(mesh, "FULL_SHARD", DType::f64, Chosen::drawn, method);
      cut.recompute.every = 2;
      test::expect_same(whole, test::step_result(session(), model_, cut));
    }
}

/// Factors are cut as their experts are. Gate and up share theirs, and experts stay as they are.
TEST_F(Experts, AdaptersHaveTheGradientsOfOneRank) {
  if (session().size() > 4) GTEST_SKIP() << "four ranks have every pair of axes";
  model_.lora = {3, 6, 0, {"mlp.experts.*", "o_proj"}};
  model_.adapter_std = 0.3;
  constexpr const char* name = "adapters";
  if (session().size() == 1)
    leave(test::step_result(session(), model_, spec({}, "NO_SHARD", DType::f64)), name);
  const StepResult whole = left(name);
  EXPECT_EQ(whole.gradients.size(), 2U * (2 + 3 + 2)) << "of o_proj, of gate and up, and of down";
  for (const MeshShape& mesh : meshes()) {
    SCOPED_TRACE(testing::Message() << mesh.describe());
    program::JobSpec cut = spec(mesh, "FULL_SHARD", DType::f64);
    cut.recompute.every = 2;
    test::expect_same(whole, test::step_result(session(), model_, cut));
  }
}

TEST_F(LatentExperts, HaveTheGradientsOfOneRank) {
  using enum model::ContextMethod;
  for (const char* family : {"deepseek_v2", "deepseek_v3"}) {
    use(family);
    const auto cut = [&](const MeshShape& mesh, model::ContextMethod method = gather) {
      return spec(mesh, "FULL_SHARD", DType::f64, Chosen::drawn, method);
    };
    if (session().size() == 1) leave(test::step_result(session(), model_, cut({})), family);
    const StepResult whole = left(family);
    EXPECT_FALSE(whole.gradients.contains("model.layers.1.mlp.gate.e_score_correction_bias"));
    for (const MeshShape& mesh : meshes())
      for (const model::ContextMethod method : {gather, ring, heads}) {
        if (method != gather && (mesh[Axis::context] == 1 || session().size() > 4)) continue;
        if (method == heads && 4 % (mesh[Axis::context] * mesh[Axis::tensor]) != 0) continue;
        SCOPED_TRACE(testing::Message()
                     << family << " " << mesh.describe() << " " << static_cast<int>(method));
        test::expect_same(whole, test::step_result(session(), model_, cut(mesh, method)));
      }
  }
}

/// The bias of the choice is a parameter in 16 bits and wide where it is added, on every rank alike.
TEST_F(LatentExperts, AreProvenIn16Bits) {
  if (session().size() > 1) GTEST_SKIP() << "the test with one rank proves all ranks";
  use("deepseek_v3");
  MeshShape mesh;
  mesh[Axis::tensor] = 2;
  for (const bool sequence_parallel : {true, false}) {
    program::JobSpec cut = spec(mesh, "FULL_SHARD", DType::bf16);
    cut.tensor.sequence_parallel = sequence_parallel;
    EXPECT_NO_THROW(program::verify_job(model_.graph(DType::bf16), cut)) << sequence_parallel;
  }
}

/// What is sent, and what memory is touched, is what was planned. Experts are trained beside their adapters.
TEST_F(Experts, AreTheSameBitsUnderEachStrategy) {
  if (session().size() > 4) return;
  model_.balance_over = model::BalanceOver::ranks;
  model_.lora = {3, 6, 0, {"mlp.experts.*"}};
  model_.adapter_std = 0.3;
  model_.dims.trainable = {"*"};
  for (const MeshShape& mesh : meshes()) {
    if (mesh.size(state_axes) == 1) continue;
    std::vector<double> expected;
    for (const char* strategy : {"NO_SHARD", "zero1", "zero2", "SHARD_GRAD_OP", "FULL_SHARD"}) {
      const program::JobSpec cut = spec(mesh, strategy, DType::f32);
      job::Worker worker(session(), model_.graph(DType::f32), cut);
      const auto found = test::train_losses(worker, model_, cut.micro_batches, 2,
                                            [&](int, auto run) { test::expect_planned_bytes(worker, run); });
      if (expected.empty()) expected = found;
      EXPECT_EQ(found, expected) << strategy << " " << mesh.describe();
    }
  }
}

/// A step in which rows have no room changes nothing and is taken again.
TEST_F(Experts, AreTheSameBitsWhateverTheirRoom) {
  for (const MeshShape& mesh : meshes()) {
    if (mesh[Axis::expert] == 1 || session().size() > 4) continue;
    for (const Chosen chosen : {Chosen::drawn, Chosen::one_choice}) {
      std::vector<double> expected;
      for (const double capacity : {0.0, 0.5, 1.0, 8.0}) {
        program::JobSpec cut = spec(mesh, "FULL_SHARD", DType::f32, chosen);
        cut.expert_capacity = capacity;
        job::Worker worker(session(), model_.graph(DType::f32), cut);
        int reruns = 0;
        const auto found = test::train_losses(worker, model_, cut.micro_batches, 2, [&](int, auto run) {
          run();
          reruns += worker.reran() ? 1 : 0;
        });
        if (expected.empty()) expected = found;
        EXPECT_EQ(found, expected) << capacity << " " << mesh.describe();
        const bool none_fits = capacity == 0.5 || (capacity == 1 && chosen == Chosen::one_choice);
        EXPECT_TRUE((capacity == 1 && !none_fits) || reruns == (none_fits ? 2 : 0)) << mesh.describe();
      }
    }
  }
}

/// Loads are whole numbers, so each mesh moves the biases alike. A step that is skipped moves none.
TEST_F(LatentExperts, BiasesFollowTheLoadOnEachMesh) {
  if (session().size() > 4) return;
  use("deepseek_v3");
  model_.bias_speed = 0.05;
  const test::FolderOfRanks folder;
  const bool alone = session().size() == 1;
  Biases expected;
  if (!alone) {
    std::ifstream file(file_of("biases"), std::ios::binary);
    expected = nlohmann::json::from_cbor(file).get<Biases>();
  }
  bool saved = false;
  for (const MeshShape& mesh : meshes()) {
    SCOPED_TRACE(testing::Message() << mesh.describe());
    const program::JobSpec cut = spec(mesh, "FULL_SHARD", DType::f64);
    job::Worker worker(session(), model_.graph(DType::f64), cut);
    worker.initialize(5);
    const Biases before = biases_of(worker);
    for (int step = 0; step < 3; ++step) {
      test::fill(worker, model_, cut.micro_batches, step * model_.global);
      test::set_scalars(worker.scalars(), step);
      worker.scalars().loss_scale = step == 1 ? std::numeric_limits<double>::infinity() : 1;
      const Biases held = biases_of(worker);
      test::expect_planned_bytes(worker, [&] { worker.step(); });
      EXPECT_EQ(worker.scalars().found_inf, step == 1 ? 1 : 0);
      if (step == 1) {
        EXPECT_EQ(biases_of(worker), held);
      }
    }
    const Biases after = biases_of(worker);
    if (alone) {
      expected = after;
      std::ofstream file(file_of("biases"), std::ios::binary);
      nlohmann::json::to_cbor(nlohmann::json(after), file);
      EXPECT_EQ(after.size(), 2U);
      for (const auto& [name, values] : after) EXPECT_NE(values, before.at(name)) << name;
    }
    expect_same(expected, after);
    const checkpoint::Place place = job::place_of(worker.job().load(), worker.job().layout);
    if (!std::exchange(saved, true)) checkpoint::save(folder.path(), 1, place, worker.state(true), {}, {});
    worker.initialize(12);
    checkpoint::load(folder.path() / "step_1", place, worker.state(true));
    worker.derive_parameters();
    expect_same(expected, biases_of(worker));
  }
}

/// Each mesh goes on from the checkpoint of the first.
TEST_F(Experts, CheckpointsAreReadOnOtherMeshes) {
  const test::FolderOfRanks folder;
  const auto train = [&](job::Worker& worker, const program::JobSpec& spec) {
    test::fill(worker, model_, spec.micro_batches, 0);
    test::set_scalars(worker.scalars(), 0);
    worker.step();
    return worker.scalars().loss;
  };
  double expected = 0;
  for (const MeshShape& mesh : meshes()) {
    SCOPED_TRACE(testing::Message() << mesh.describe());
    const program::JobSpec cut = spec(mesh, "FULL_SHARD", DType::f64);
    job::Worker worker(session(), model_.graph(DType::f64), cut);
    worker.initialize(expected == 0 ? 11 : 12);
    const checkpoint::Place place = job::place_of(worker.job().load(), worker.job().layout);
    if (expected == 0) {
      train(worker, cut);
      checkpoint::save(folder.path(), 1, place, worker.state(true), {}, {});
      expected = train(worker, cut);
      continue;
    }
    checkpoint::load(folder.path() / "step_1", place, worker.state(true));
    worker.derive_parameters();
    EXPECT_NEAR(train(worker, cut), expected, 1e-12 * expected);
  }
}

}  // namespace
}  // namespace ztrain::experts_test
