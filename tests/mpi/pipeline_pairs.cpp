// Pipelines with everything: each schedule, mesh, strategy, kind of model, recomputation, accumulation,
// number of micro-batches, home of the states and choice of late weights meets each of the others in some run
// (pairwise coverage). In fp64 the loss, the norm and the gradient of each parameter are those of ranks that
// have the whole model, and the same run gives the same bits again.

#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "kernels/launch/backend.hpp"
#include "program/passes/place.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/pairwise.hpp"
#include "tests/support/parameter_gradients.hpp"

namespace ztrain::pipeline_pairs_test {
namespace {

using model::ContextMethod;
using program::JobSpec;
using program::Tier;
using test::session;
using test::StepResult;
using test::TinyModel;

constexpr const char* schedules[] = {"1f1b", "gpipe", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipe-v"};
constexpr const char* strategies[] = {"FULL_SHARD", "SHARD_GRAD_OP", "zero2", "zero1", "NO_SHARD"};
constexpr int micro_batches[] = {1, 2, 3, 5};
constexpr int recomputed[] = {0, 1, 2};  ///< every so many blocks

/// The rest of the ranks is shard.
struct Mesh {
  int ranks, pipeline, replicate = 1, context = 1, tensor = 1;
  ContextMethod method = ContextMethod::gather;
};
constexpr Mesh meshes[] = {{2, 2},
                           {3, 3},
                           {4, 4},
                           {4, 2},
                           {4, 2, 2},
                           {4, 2, 1, 2},
                           {4, 2, 1, 2, 1, ContextMethod::ring},
                           {4, 2, 1, 2, 1, ContextMethod::heads},
                           {4, 2, 1, 1, 2}};

struct Kind {
  const char* name;
  void (*set)(TinyModel&);
};
constexpr Kind kinds[] = {{"plain", [](TinyModel&) {}},
                          {"packed",
                           [](TinyModel& m) {
                             m.document_ends = {1, 2, 5, 12};
                           }},
                          {"tied", [](TinyModel& m) { m.dims.tie_word_embeddings = true; }},
                          {"adapters",
                           [](TinyModel& m) {
                             m.lora = {3, 6, 0, {"q_proj", "o_proj", "down_proj"}};
                             m.adapter_std = 0.3;
                           }},
                          {"biases, head norms, tied, packed", [](TinyModel& m) {
                             m.dims.attention_bias = m.dims.attention_output_bias = m.dims.qk_norm = true;
                             m.dims.tie_word_embeddings = true;
                             m.document_ends = {7};
                           }}};

struct Home {
  const char* name;
  void (*set)(program::OffloadOptions&);
};
constexpr Home homes[] = {
    {"on the device", [](program::OffloadOptions&) {}},
    {"optimizer on the host",
     [](program::OffloadOptions& o) {
       o.optimizer = o.master = {Tier::host, 1};
     }},
    {"activations on the host",
     [](program::OffloadOptions& o) {
       o.activations = {Tier::host, 0.5};
     }},
    {"all on NVMe but the moments, which are looked at", [](program::OffloadOptions& o) {
       o.parameters = o.gradients = o.master = o.activations = {Tier::nvme, 1};
     }}};

std::vector<Mesh> own_meshes() {
  std::vector<Mesh> own;
  for (const Mesh& mesh : meshes)
    if (mesh.ranks == session().size()) own.push_back(mesh);
  return own;
}

enum Factor : std::size_t { schedule, mesh, strategy, kind, recompute, every_micro, micros, home, late };

class Pairs {
 public:
  std::vector<std::vector<int>> rows() const {
    const auto count = [](const auto& levels) { return static_cast<int>(std::size(levels)); };
    return test::Pairwise({count(schedules), count(meshes_), count(strategies), count(kinds),
                           count(recomputed), 2, count(micro_batches), count(homes), 2})
        .rows();
  }

  void expect_agreement(const std::vector<int>& row) {
    SCOPED_TRACE(name_of(row));
    const TinyModel model = model_of(row);
    const JobSpec spec = spec_of(row, model);
    const StepResult split = step(model, spec);
    test::expect_same(whole(row, model), split);
    const StepResult again = step(model, spec);
    EXPECT_EQ(again.loss, split.loss);
    EXPECT_EQ(again.norm, split.norm);
    EXPECT_EQ(again.gradients, split.gradients);
  }

 private:
  template <class Levels>
  static const auto& level(const Levels& levels, const std::vector<int>& row, Factor factor) {
    return levels[static_cast<std::size_t>(row[factor])];
  }
  const Mesh& mesh_of(const std::vector<int>& row) const { return level(meshes_, row, mesh); }

  std::string name_of(const std::vector<int>& row) const {
    const Mesh& m = mesh_of(row);
    return fmt::format(
        "{}, {} x {} x context {} ({}) x tensor {}, {}, {}, recompute {}, every micro-batch {}, {} "
        "micro-batches, {}, late weights {}",
        level(schedules, row, schedule), m.pipeline, m.replicate, m.context, static_cast<int>(m.method),
        m.tensor, level(strategies, row, strategy), level(kinds, row, kind).name,
        level(recomputed, row, recompute), row[every_micro], level(micro_batches, row, micros),
        level(homes, row, home).name, row[late] == 0 ? "all" : "kept");
  }

  MeshShape shape_of(const Mesh& m) const {
    MeshShape shape;
    shape[Axis::pipeline] = m.pipeline, shape[Axis::replicate] = m.replicate;
    shape[Axis::context] = m.context, shape[Axis::tensor] = m.tensor;
    shape[Axis::shard] = m.ranks / (m.pipeline * m.replicate * m.context * m.tensor);
    return shape;
  }

  TinyModel model_of(const std::vector<int>& row) const {
    TinyModel model;
    level(kinds, row, kind).set(model);
    const Mesh& m = mesh_of(row);
    if (m.method == ContextMethod::heads) model.dims.num_key_value_heads = 4;
    model.dims.num_hidden_layers = m.pipeline > 2 ? 9 : 5;
    const MeshShape shape = shape_of(m);
    model.global = level(micro_batches, row, micros) * shape.size(Axis::replicate | Axis::shard);
    model.token_order = program::token_order(shape, m.method);
    return model;
  }

  JobSpec spec_of(const std::vector<int>& row, const TinyModel& model) const {
    const Mesh& m = mesh_of(row);
    JobSpec spec =
        test::spec_for(model, shape_of(m), level(strategies, row, strategy), test::precision_of(DType::f64));
    spec.schedule = program::find_schedule(level(schedules, row, schedule));
    spec.tensor = model::decoder_tensor_plan(model.dims, m.tensor);
    spec.context = m.method;
    spec.recompute.every = level(recomputed, row, recompute);
    spec.sharding.reduce.every_micro = row[every_micro] == 0;
    if (row[late] == 1) spec.pipeline.late_weights = program::LateWeights::kept;
    level(homes, row, home).set(spec.offload);
    return spec;
  }

  static StepResult step(const TinyModel& model, const JobSpec& spec) {
    job::WorkerOptions options;
    options.nvme.paths = {std::filesystem::temp_directory_path()};
    return test::step_result(session(), model, spec, options);
  }

  /// Of all ranks as copies of one, which share heads and words alone.
  const StepResult& whole(const std::vector<int>& row, TinyModel model) {
    const std::tuple key{row[kind], model.global, model.dims.num_hidden_layers,
                         model.dims.num_key_value_heads};
    const auto found = whole_.find(key);
    if (found != whole_.end()) return found->second;
    model.token_order = {};
    MeshShape alone;
    alone[Axis::tensor] = session().size();
    JobSpec spec = test::spec_for(model, alone, "NO_SHARD", test::precision_of(DType::f64));
    spec.tensor = model::decoder_tensor_plan(model.dims, session().size());
    spec.tensor.sequence_parallel = false;
    return whole_[key] = step(model, spec);
  }

  std::vector<Mesh> meshes_ = own_meshes();
  std::map<std::tuple<int, std::int64_t, std::int64_t, std::int64_t>, StepResult> whole_;
};

TEST(PipelinePairs, GiveTheGradientsOfTheWholeModel) {
  kernels::initialize_backend();
  Pairs pairs;
  int number = 0;
  for (const std::vector<int>& row : pairs.rows()) {
    pairs.expect_agreement(row);
    if (HasFailure()) break;
    ++number;
  }
  if (session().rank() == 0) std::printf("%d rows over 9 factors\n", number);
}

}  // namespace
}  // namespace ztrain::pipeline_pairs_test
