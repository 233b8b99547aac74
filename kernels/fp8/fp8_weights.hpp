#pragma once
// Weights as e4m3 codes, quantised where they are sharded. A weight has one scale, or one per row; a shard
// may begin and end within a row, so a scale's largest magnitude is the largest of what the shards found.
// Each shard writes what it found, row by row, into its slots; the slots of all shards are gathered; from
// them everyone computes all scales, and quantises what it holds. The maximum is exact: codes and scales do
// not depend on how weights are cut.
//
// Weights lie in flat ranges, begin on multiples of 256 elements there and have rows of a multiple of 16.
// What a launch works on is a list, which is put into the memory of the device once, when the launch is
// prepared: one launch, or two, for all weights of a unit.

#include <functional>
#include <vector>

#include "base/dtype.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// A run of one weight's elements, from 16 bytes on. Its rows are those that it has some of.
struct Fp8Run {
  Vector<const bf16> values;
  std::int64_t begin = 0;  ///< elements of the weight before it
  std::int64_t row = 0;    ///< elements that share a scale

  std::int64_t first_row() const { return begin / row; }
  std::int64_t rows() const { return (begin + values.count - 1) / row - first_row() + 1; }
};

/// Prepared: addresses are set once.
using Fp8Launch = std::function<void(Exec&)>;

/// slots[i] = the largest magnitude of the run's i-th row. The runs of a launch are parts of one array.
struct Fp8Search {
  Fp8Run run;
  float* slots = nullptr;
};
/// partials: the sum of fp8_weight_workspace_bytes() over the runs. Throws Error where a run is not aligned
/// as above.
Fp8Launch make_fp8_largest(const std::vector<Fp8Search>& searches, float* partials);

/// Where the slots of one weight are among those of all shards of its unit.
struct Fp8Slots {
  const float* slots = nullptr;   ///< of the unit, of the first shard
  std::int64_t stride = 0;        ///< from one shard's to the next's
  std::int64_t first = 0;         ///< the weight's first, in the shard where it begins; in others it is 0
  std::int64_t weight_begin = 0;  ///< in the unit's flat range
  std::int64_t row = 0;
  std::int64_t shard = 0;  ///< elements
  std::int64_t parts = 1;  ///< behind one another in each shard: those of so many parts of the weight
};

/// scales[rows], of all rows of the weight.
struct Fp8Scaling {
  Fp8Slots slots;
  Vector<float> scales;
  bool magnitudes = false;  ///< the largest ones of the rows in their place
};
Fp8Launch make_fp8_scales(const std::vector<Fp8Scaling>& weights);

/// codes[run.values.count], from 16 bytes on. scales: of all rows of the weight. Runs and codes are parts of
/// two arrays, at the same places.
struct Fp8Encoding {
  Fp8Run run;
  const float* scales = nullptr;
  f8e4m3* codes = nullptr;
};
/// Throws Error as make_fp8_largest.
Fp8Launch make_fp8_encode(const std::vector<Fp8Encoding>& encodings);

}  // namespace ztrain::kernels
