// Weights in 4 and 8 bits: on every mesh a rank's codes are those of its elements of the whole model, losses
// of all strategies are the same, and those of all meshes near a single rank's.

#include <gtest/gtest.h>

#include "kernels/launch/exec.hpp"
#include "model/tensor_plan.hpp"
#include "program/codes/quantized.hpp"
#include "program/passes/place.hpp"
#include "program/schedules/schedule.hpp"
#include "tests/support/as_planned.hpp"
#include "tests/support/device_values.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/tiny_job.hpp"

namespace ztrain::quantized_test {
namespace {

using test::session;
using test::TinyModel;

struct Setting {
  const char* name;
  const char* quantization;
  bool nested = false;
};

class Quantized : public testing::TestWithParam<Setting> {
 protected:
  static void SetUpTestSuite() { kernels::initialize_backend(); }

  static TinyModel model() {
    TinyModel m;
    m.dims.hidden_size = 128;
    m.dims.intermediate_size = 512;
    m.dims.num_attention_heads = 4;
    m.dims.num_key_value_heads = 2;
    m.dims.head_dim = 64;
    m.dims.attention_bias = m.dims.attention_output_bias = true;
    m.lora = {.rank = 2, .alpha = 4, .targets = {"q_proj", "down_proj"}};
    m.lora.quantization = GetParam().quantization;
    m.lora.double_quantization = GetParam().nested;
    m.adapter_std = 0.1;
    return m;
  }
};

struct Way {
  const char* strategy;
  int pipeline = 1, context = 1, tensor = 1;
  int replicate = 1;
  bool sequence = true, offloads = false;
  model::ContextMethod method = model::ContextMethod::gather;
};

program::JobSpec spec_of(const TinyModel& m, const Way& way) {
  MeshShape mesh;
  mesh[Axis::pipeline] = way.pipeline;
  mesh[Axis::context] = way.context;
  mesh[Axis::tensor] = way.tensor;
  mesh[Axis::replicate] = way.replicate;
  mesh[Axis::shard] = session().size() / (way.pipeline * way.context * way.tensor * way.replicate);
  program::JobSpec spec = test::spec_for(m, mesh, way.strategy, test::precision_of(DType::f32));
  if (way.tensor > 1) spec.tensor = model::decoder_tensor_plan(m.dims, way.tensor);
  spec.tensor.sequence_parallel = way.sequence;
  if (way.tensor > 1 && way.sequence) spec.token_multiple = way.tensor;
  if (way.pipeline > 1) spec.schedule = program::find_schedule("1f1b");
  spec.context = way.method;
  spec.recompute.every = way.sequence ? 1 : 0;
  if (way.offloads) spec.offload.parameters.tier = program::Tier::host;
  return spec;
}

/// The bytes of a block: its codes and, behind these, its own scale, if there is one.
std::vector<std::uint8_t> block_of(const WeightForm& form, const std::vector<std::uint8_t>& quanta,
                                   std::int64_t element) {
  const std::uint8_t* quantum = quanta.data() + element / code_quantum * form.quantum_bytes();
  const std::int64_t codes = form.code_bytes() / blocks_per_quantum,
                     scale = (form.quantum_bytes() - form.code_bytes()) / blocks_per_quantum,
                     block = element % code_quantum / scale_block;
  std::vector<std::uint8_t> bytes(quantum + block * codes, quantum + (block + 1) * codes);
  const std::uint8_t* behind = quantum + form.code_bytes() + block * scale;
  bytes.insert(bytes.end(), behind, behind + scale);
  return bytes;
}

/// The quanta of the elements that a rank keeps of a parameter, and of which parts of the whole they are.
std::vector<std::uint8_t> quanta_of(const job::Worker& worker, const Piece& piece, std::int64_t shard_begin) {
  const program::Job& job = worker.job();
  const ParameterShape& p = job.layout.parameters()[static_cast<std::size_t>(piece.parameter)];
  const WeightForm form = job.graph.parameters[static_cast<std::size_t>(piece.parameter)].form;
  const program::TensorId slice = job.tensors.units[static_cast<std::size_t>(p.unit)].parameters.slice;
  worker.device().finish();
  std::vector<std::uint8_t> quanta(static_cast<std::size_t>(form.bytes(piece.count)));
  worker.memory()
      .provider(job.load().tensor(job.load().storage(slice)).tier)
      .read(quanta.data(),
            worker.memory().address(job.load(), slice) + form.bytes(piece.flat_begin - shard_begin),
            std::ssize(quanta));
  return quanta;
}

/// By parameter: all codes, and statistics.
struct Whole {
  std::vector<std::vector<std::uint8_t>> quanta;
  std::vector<std::vector<float>> statistics;
};

Whole whole_of(const job::Worker& alone) {
  const program::Job& job = alone.job();
  Whole whole;
  for (std::size_t p = 0; p < job.layout.parameters().size(); ++p) {
    whole.quanta.emplace_back();
    whole.statistics.emplace_back();
    const program::TensorId t = job.tensors.statistics[p];
    if (t == program::no_tensor) continue;
    const Segment& s = job.layout.segment_of(static_cast<int>(p));
    whole.quanta.back() = quanta_of(alone, {s.parameter, s.begin, 0, s.count}, 0);
    whole.statistics.back() = test::read_elements<float>(alone, t, 0, elements(job.load().tensor(t).shape));
  }
  return whole;
}

void expect_parts_of(const Whole& whole, const job::Worker& worker) {
  const program::Job& job = worker.job();
  const Coordinate here(job.load().mesh, job.load().rank);
  int blocks = 0;
  for (const FlatUnit& unit : job.layout.units())
    for (const Piece& piece : job.layout.pieces(unit.unit, here)) {
      const auto p = static_cast<std::size_t>(piece.parameter);
      const WeightForm form = job.graph.parameters[p].form;
      if (!form.any()) continue;
      const program::TensorId t = job.tensors.statistics[p];
      EXPECT_EQ(test::read_elements<float>(worker, t, 0, elements(job.load().tensor(t).shape)),
                whole.statistics[p]);
      const std::vector<std::uint8_t> own = quanta_of(worker, piece, unit.shard_begin(here));
      const PartOfMatrix part = program::part_of_matrix(job.layout, piece.parameter, here);
      for (std::int64_t e = 0; e < piece.count; e += scale_block, ++blocks)
        ASSERT_EQ(block_of(form, own, e),
                  block_of(form, whole.quanta[p], part.index_of(piece.slice_begin + e)))
            << job.layout.parameters()[p].name << " from element " << e;
    }
  EXPECT_GT(blocks, 0);
}

TEST_P(Quantized, IsTheSameModelOnEveryMesh) {
  const TinyModel m = model();
  const int ranks = session().size();
  job::Worker alone(session(), m.graph(DType::f32),
                    spec_of(m, {.strategy = "NO_SHARD", .replicate = ranks, .sequence = false}));
  const auto expected = test::train_losses(alone, m, 4 / ranks, 3, [](int, auto run) { run(); });
  const Whole whole = whole_of(alone);
  std::map<std::string, std::vector<double>> same;  // of strategies on one mesh
  using enum model::ContextMethod;
  for (const Way& way : {Way{.strategy = "NO_SHARD"},
                         {.strategy = "zero1"},
                         {.strategy = "zero2"},
                         {.strategy = "SHARD_GRAD_OP"},
                         {.strategy = "FULL_SHARD"},
                         {.strategy = "FULL_SHARD", .offloads = true},
                         {.strategy = "HYBRID_SHARD", .replicate = 2},
                         {.strategy = "FULL_SHARD", .tensor = 2},
                         {.strategy = "zero1", .tensor = 2, .sequence = false},
                         {.strategy = "FULL_SHARD", .tensor = 4},
                         {.strategy = "FULL_SHARD", .context = 2, .method = heads},
                         {.strategy = "zero2", .context = 2, .tensor = 2, .method = ring},
                         {.strategy = "FULL_SHARD", .pipeline = 2},
                         {.strategy = "zero1", .pipeline = 2, .tensor = 2}}) {
    if (ranks % (way.pipeline * way.context * way.tensor * way.replicate) != 0) continue;
    TinyModel cut = m;
    const program::JobSpec spec = spec_of(m, way);
    cut.token_order = program::token_order(spec.mesh, way.method, spec.token_multiple);
    SCOPED_TRACE(testing::Message() << way.strategy << " on " << spec.mesh.describe());
    job::Worker worker(session(), cut.graph(DType::f32), spec, {.poison = true});
    worker.initialize(11);
    expect_parts_of(whole, worker);
    const auto found = test::train_losses(worker, cut, spec.micro_batches, 3,
                                          [&](int, auto run) { test::expect_planned_bytes(worker, run); });
    test::expect_planned_memory(worker);
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], expected[i], 2e-5 * expected[i]) << i;
    if (way.pipeline * way.context * way.tensor * way.replicate > 1) continue;
    const auto first = same.try_emplace("", found).first;
    EXPECT_EQ(found, first->second) << "strategies differ";
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, Quantized,
                         testing::Values(Setting{"nf4_nested", "nf4", true}, Setting{"fp4", "fp4"},
                                         Setting{"int8", "int8"}),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace ztrain::quantized_test
