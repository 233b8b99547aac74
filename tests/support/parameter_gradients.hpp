#pragma once
// The gradient of each parameter as a whole, whatever the mesh and strategy that computed it: for tests that
// compare meshes by more than a loss.

#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "tests/support/device_values.hpp"
#include "tests/support/tiny_job.hpp"

namespace ztrain::test {

struct StepResult {
  double loss = 0, norm = 0;
  std::map<std::string, std::vector<double>> gradients;  ///< by name, row-major; of trained parameters
};

/// Adam's first moment after one step from zero is (1 - beta1) times the gradient of the mean loss.
inline constexpr double probe_beta1 = 0.5;

/// Adds the elements that this rank speaks for.
inline void add_own_gradients(const job::Worker& worker, StepResult& result) {
  const program::Job& job = worker.job();
  const Layout& layout = job.layout;
  const Coordinate at(job.train().mesh, job.train().rank);
  for (const FlatUnit& unit : layout.units()) {
    const program::UnitState& state = job.tensors.units[static_cast<std::size_t>(unit.unit)];
    const std::int64_t begin = unit.shard_begin(at);
    if (state.optimizer.empty()) continue;
    for (const Piece& piece : layout.pieces(unit.unit, at)) {
      const ParameterShape& p = layout.parameters()[static_cast<std::size_t>(piece.parameter)];
      std::vector<double>& whole = result.gradients[p.name];
      whole.resize(static_cast<std::size_t>(elements(p.shape)));
      if (!owns(at, unit, p)) continue;
      const auto moments =
          read_elements<double>(worker, state.optimizer[0].slice, piece.flat_begin - begin, piece.count);
      for (const LogicalRun& run :
           layout.logical_runs(piece.parameter, part_of(p.slice, at), piece.slice_begin, piece.count))
        for (std::int64_t i = 0; i < run.count; ++i)
          whole[static_cast<std::size_t>(run.logical_begin + i)] +=
              moments[static_cast<std::size_t>(run.slice_begin - piece.slice_begin + i)] / (1 - probe_beta1);
    }
  }
}

/// Collective: one step in fp64 without clipping, and the gradients on every rank.
inline StepResult step_result(const runtime::Session& session, const TinyModel& model, program::JobSpec spec,
                              const job::WorkerOptions& options = {}) {
  spec.optimizer.options.beta1 = probe_beta1;
  job::Worker worker(session, model.graph(DType::f64), spec, options);
  worker.initialize(5);
  fill(worker, model, spec.micro_batches, 0);
  set_scalars(worker.scalars(), 0);
  worker.scalars().learning_rate = 0;
  worker.scalars().max_norm = 0;
  worker.scalars().loss_scale = 1;
  worker.step();
  StepResult result{worker.scalars().loss, worker.scalars().gradient_norm, {}};
  for (const ParameterShape& p : worker.job().layout.parameters())
    if (p.trainable) result.gradients[p.name].assign(static_cast<std::size_t>(elements(p.shape)), 0);
  add_own_gradients(worker, result);
  for (auto& [name, values] : result.gradients)
    MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE, MPI_SUM,
                  MPI_COMM_WORLD);
  return result;
}

/// To the rounding of fp64.
inline void expect_same(const StepResult& whole, const StepResult& split) {
  EXPECT_NEAR(split.loss, whole.loss, 1e-12 * whole.loss);
  EXPECT_NEAR(split.norm, whole.norm, 1e-12 * whole.norm);
  ASSERT_EQ(split.gradients.size(), whole.gradients.size());
  for (const auto& [name, expected] : whole.gradients) {
    const std::vector<double>& values = split.gradients.at(name);
    ASSERT_EQ(values.size(), expected.size()) << name;
    double largest = 0, difference = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::abs(expected[i]));
      difference = std::max(difference, std::abs(values[i] - expected[i]));
    }
    EXPECT_GT(largest, 0) << name;
    EXPECT_LE(difference, 1e-12 * largest) << name;
  }
}

}  // namespace ztrain::test
