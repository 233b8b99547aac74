#pragma once
// Every knob of sharding, recomputation and precision, as levels of factors whose pairs tests go through.

#include <functional>
#include <string>
#include <vector>

#include "config/strategy.hpp"
#include "program/jobs/compile.hpp"
#include "tests/support/pairwise.hpp"
#include "tests/support/small_job.hpp"

namespace ztrain::test {

using config::Strategy;
using program::BackwardPrefetch;
using program::JobSpec;
using program::UnitGranularity;

using Set = std::function<void(JobSpec&)>;

inline Set mesh(int replicate, int shard, int inner) {
  return [=](JobSpec& s) {
    s.mesh[Axis::replicate] = replicate;
    s.mesh[Axis::shard] = shard;
    s.mesh.inner_of(Axis::shard) = inner;
    s.sharding.secondary_shards = inner > 1;
  };
}

inline std::vector<Set> all_strategies() {
  std::vector<Set> sets;
  for (const Strategy& row : config::strategies())
    sets.emplace_back([&row](JobSpec& s) { s.strategy = row; });
  return sets;
}

inline Set backward(BackwardPrefetch when) {
  return [=](JobSpec& s) { s.sharding.gather.backward_prefetch = when; };
}
inline Set forward(int ahead) {
  return [=](JobSpec& s) { s.sharding.gather.forward_prefetch = ahead; };
}
inline Set limits(int units, std::int64_t elements, std::int64_t reuse) {
  return [=](JobSpec& s) {
    s.sharding.gather.max_units = units;
    s.sharding.gather.max_elements = elements;
    s.sharding.gather.max_reuse_distance = reuse;
  };
}
inline Set units(UnitGranularity granularity, std::vector<std::string> patterns, std::int64_t whole) {
  return [=](JobSpec& s) { s.units = {granularity, 30000, patterns, whole}; };
}
inline Set reshard(bool after) {
  return [=](JobSpec& s) { s.strategy.reshard_after_forward = after; };
}
inline Set recompute(int every, std::vector<std::string> tags) {
  return [=](JobSpec& s) { s.recompute = {every, tags}; };
}
inline Set reduction(std::int64_t bucket, bool every_micro, bool overlap) {
  return [=](JobSpec& s) { s.sharding.reduce = {every_micro, bucket, overlap}; };
}
inline Set optimizer(const char* name, DType parameters, DType gradients) {
  return [=](JobSpec& s) {
    s.optimizer.options.name = name;
    s.precision = {parameters, gradients, gradients, DType::f32, DType::f32};
  };
}

/// The strategy comes before what changes it.
inline std::vector<std::vector<Set>> knobs() {
  using enum UnitGranularity;
  return {
      all_strategies(),
      {mesh(1, 1, 1), mesh(1, 2, 1), mesh(1, 4, 2), mesh(1, 6, 3), mesh(1, 7, 1), mesh(2, 4, 2),
       mesh(4, 1, 1)},
      {backward(BackwardPrefetch::pre), backward(BackwardPrefetch::post), backward(BackwardPrefetch::none)},
      {forward(0), forward(1), forward(3)},
      {limits(0, 0, 0), limits(1, 0, 0), limits(2, 0, 0), limits(0, 20000, 0), limits(2, 20000, 60000)},
      {[](JobSpec&) {}, reshard(true), reshard(false)},
      {units(block, {}, 0), units(block, {}, 100), units(model, {}, 0), units(size, {}, 0),
       units(pattern, {"model.layers.*.mlp", "model.layers.1.self_attn"}, 41)},
      {recompute(0, {}), recompute(1, {}), recompute(2, {}), recompute(0, {"norm", "swiglu"}),
       recompute(0, {"qkv", "attention", "gate_up", "swiglu"})},
      {reduction(0, true, true), reduction(2000, true, false), reduction(1, false, true),
       reduction(5000, false, false)},
      {optimizer("adamw", DType::bf16, DType::f32), optimizer("adamw_8bit", DType::f16, DType::f16),
       optimizer("sgd", DType::f32, DType::f32)},
      {[](JobSpec& s) { s.micro_batches = 1; }, [](JobSpec& s) { s.micro_batches = 3; }}};
}

/// A job, and the level of each factor that it has.
struct Setting {
  std::string name;  ///< "row 0 3 1 ..."
  JobSpec spec;
};

/// Jobs that together have every pair of levels of every two factors.
inline std::vector<Setting> paired(const std::vector<std::vector<Set>>& factors) {
  std::vector<int> levels;
  for (const auto& sets : factors) levels.push_back(static_cast<int>(sets.size()));
  std::vector<Setting> settings;
  for (const std::vector<int>& row : Pairwise(levels).rows()) {
    Setting setting{"row", spec_on(1, 1, config::strategies().front())};
    for (std::size_t k = 0; k < row.size(); ++k) {
      factors[k][static_cast<std::size_t>(row[k])](setting.spec);
      setting.name += " " + std::to_string(row[k]);
    }
    settings.push_back(std::move(setting));
  }
  return settings;
}

}  // namespace ztrain::test
