#pragma once
// Gives a run's steps their samples.

#include <cstdint>

#include "data/rows/batch_part.hpp"
#include "train/run.hpp"

namespace ztrain::train {

/// Reads the samples of each step between the steps, and asks for the next ones while the device computes.
/// Owns this rank's part of a micro-batch. The run outlives it.
class Inputs {
 public:
  explicit Inputs(Run& run);

  /// Writes the samples of the next step to the worker's inputs. Throws Error if they cannot be read.
  void fill();
  /// Does the same, but keeps a failure for the exchange of requests after the step. All ranks then save the
  /// step that they have done.
  void fill_next();
  /// Asks the file system to read the samples of the step after the next one.
  void read_ahead() const;

 private:
  std::int64_t first_sample(std::int64_t samples, std::int64_t micro_batch) const;

  Run& run_;
  data::BatchPart part_;
};

}  // namespace ztrain::train
