// Pipelines in the types that training has, over several steps: each schedule, mesh, strategy, precision,
// recomputation and home of the states meets each of the others in some run (pairwise coverage). In fp32
// losses and norms are those of ranks that have the whole model; in narrower types, whose rounding differs
// between meshes, they are those of 1f1b on the same mesh, bit for bit.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "kernels/launch/backend.hpp"
#include "program/passes/place.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/pairwise.hpp"
#include "tests/support/tiny_job.hpp"

namespace ztrain::pipeline_precisions_test {
namespace {

using model::ContextMethod;
using program::JobSpec;
using program::Tier;
using test::session;
using test::TinyModel;

constexpr const char* schedules[] = {"gpipe", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipe-v", "1f1b"};
constexpr const char* strategies[] = {"FULL_SHARD", "zero2", "zero1"};

/// The rest of the ranks is shard.
struct Mesh {
  int ranks, pipeline, context = 1, tensor = 1;
};
constexpr Mesh meshes[] = {{4, 4}, {4, 2}, {4, 2, 2}, {4, 2, 1, 2}};

struct Precision {
  const char* name;
  program::Precision dtypes;
  const char* fp8 = "none";
  const char* optimizer = "adamw";
};
constexpr program::Precision mixed{DType::bf16, DType::f32, DType::f32, DType::f32, DType::f32};
constexpr Precision precisions[] = {{"fp32", {DType::f32, DType::f32, DType::f32, DType::f32, DType::f32}},
                                    {"bf16, 8-bit moments", mixed, "none", "adamw_8bit"},
                                    {"fp8 tensorwise", mixed, "tensorwise"},
                                    {"fp8 rowwise", mixed, "rowwise"}};

struct Recomputation {
  const char* name;
  int every;
  program::LateWeights late;
};
constexpr Recomputation recomputations[] = {
    {"nothing", 0, program::LateWeights::all},
    {"every block", 1, program::LateWeights::all},
    {"every second block, weights late of the others", 2, program::LateWeights::kept}};

struct Home {
  const char* name;
  void (*set)(program::OffloadOptions&);
};
constexpr Home homes[] = {
    {"on the device", [](program::OffloadOptions&) {}},
    {"on the host",
     [](program::OffloadOptions& o) {
       o.optimizer = o.master = {Tier::host, 1};
       o.activations = {Tier::host, 0.5};
     }},
    {"on NVMe", [](program::OffloadOptions& o) {
       o.parameters = o.gradients = o.optimizer = o.master = o.activations = {Tier::nvme, 1};
     }}};

std::vector<Mesh> own_meshes() {
  std::vector<Mesh> own;
  for (const Mesh& mesh : meshes)
    if (mesh.ranks == session().size()) own.push_back(mesh);
  return own;
}

enum Factor : std::size_t { schedule, mesh, strategy, precision, recompute, home };

template <class Levels>
const auto& level(const Levels& levels, const std::vector<int>& row, Factor factor) {
  return levels[static_cast<std::size_t>(row[factor])];
}

class Runs {
 public:
  std::vector<std::vector<int>> rows() const {
    const auto count = [](const auto& levels) { return static_cast<int>(std::size(levels)); };
    return test::Pairwise({count(schedules), count(meshes_), count(strategies), count(precisions),
                           count(recomputations), count(homes)})
        .rows();
  }

  void expect_agreement(const std::vector<int>& row) {
    SCOPED_TRACE(name_of(row));
    const Precision& p = level(precisions, row, precision);
    const std::vector<double> found = losses(row, level(schedules, row, schedule));
    for (const double value : found) ASSERT_TRUE(std::isfinite(value));
    if (p.dtypes.parameters != DType::f32) {
      EXPECT_EQ(found, losses(row, "1f1b"));
      return;
    }
    const std::vector<double>& expected = whole(mesh_of(row).pipeline);
    ASSERT_EQ(found.size(), expected.size());
    // Losses and norms in turn.
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double tolerance = i % 2 == 0 ? 1e-5 : 1e-4;
      EXPECT_NEAR(found[i], expected[i], tolerance * std::abs(expected[i])) << "step " << i / 2;
    }
  }

 private:
  const Mesh& mesh_of(const std::vector<int>& row) const { return level(meshes_, row, mesh); }

  std::string name_of(const std::vector<int>& row) const {
    const Mesh& m = mesh_of(row);
    return fmt::format("{}, pipeline {} x context {} x tensor {}, {}, {}, recomputes {}, {}",
                       level(schedules, row, schedule), m.pipeline, m.context, m.tensor,
                       level(strategies, row, strategy), level(precisions, row, precision).name,
                       level(recomputations, row, recompute).name, level(homes, row, home).name);
  }

  /// Sizes of which products of codes can be cut into two.
  static TinyModel model_of(int pipeline) {
    TinyModel m;
    m.sequence = 32;
    m.global = 12;
    m.dims.hidden_size = 32, m.dims.intermediate_size = 64, m.dims.head_dim = 16;
    m.dims.num_hidden_layers = 2 * pipeline;
    return m;
  }

  std::vector<double> losses(const std::vector<int>& row, const char* name) const {
    const Mesh& of = mesh_of(row);
    const Precision& p = level(precisions, row, precision);
    TinyModel m = model_of(of.pipeline);
    m.fp8 = p.fp8;
    MeshShape shape;
    shape[Axis::pipeline] = of.pipeline, shape[Axis::context] = of.context, shape[Axis::tensor] = of.tensor;
    shape[Axis::shard] = of.ranks / (of.pipeline * of.context * of.tensor);
    m.token_order = program::token_order(shape, ContextMethod::ring);
    JobSpec spec = test::spec_for(m, shape, level(strategies, row, strategy), p.dtypes);
    spec.schedule = program::find_schedule(name);
    spec.tensor = model::decoder_tensor_plan(m.dims, of.tensor);
    spec.context = ContextMethod::ring;
    spec.recompute.every = level(recomputations, row, recompute).every;
    spec.pipeline.late_weights = level(recomputations, row, recompute).late;
    spec.optimizer.options.name = p.optimizer;
    level(homes, row, home).set(spec.offload);
    return steps(m, spec);
  }

  /// Of all ranks as copies of one, which share heads and words alone.
  const std::vector<double>& whole(int pipeline) {
    std::vector<double>& known = whole_[pipeline];
    if (!known.empty()) return known;
    const TinyModel m = model_of(pipeline);
    MeshShape alone;
    alone[Axis::tensor] = session().size();
    JobSpec spec = test::spec_for(m, alone, "NO_SHARD", precisions[0].dtypes);
    spec.tensor = model::decoder_tensor_plan(m.dims, session().size());
    return known = steps(m, spec);
  }

  static std::vector<double> steps(const TinyModel& m, const JobSpec& spec) {
    job::WorkerOptions options{.poison = true};
    options.nvme.paths = {std::filesystem::temp_directory_path()};
    job::Worker worker(session(), m.graph(spec.precision.parameters), spec, options);
    const int count = spec.precision.parameters == DType::f32 ? 10 : 3;
    // Slowly: few tokens that are learned by heart within ten steps blow rounding up.
    return test::train_losses(worker, m, spec.micro_batches, count, [&](int, auto run) {
      worker.scalars().learning_rate *= 0.1;
      run();
    });
  }

  std::vector<Mesh> meshes_ = own_meshes();
  std::map<int, std::vector<double>> whole_;  ///< by mesh.pipeline, on which the layers depend
};

TEST(PipelinePrecisions, TrainAsTheWholeModelDoes) {
  kernels::initialize_backend();
  Runs runs;
  int number = 0;
  for (const std::vector<int>& row : runs.rows()) {
    runs.expect_agreement(row);
    if (HasFailure()) break;
    ++number;
  }
  if (session().rank() == 0) std::printf("%d rows over 6 factors\n", number);
}

}  // namespace
}  // namespace ztrain::pipeline_precisions_test
