#pragma once
// What a run's steps train on.

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
  /// Does the same before the ranks ask each other whether to stop: a rank that has no data for its next step
  /// says so there, and all ranks save the step that they have done.
  void fill_next();
  /// Lets the file system read the samples of the step after the next one ahead of time.
  void read_ahead() const;

 private:
  std::int64_t first_sample(std::int64_t samples, std::int64_t micro_batch) const;

  Run& run_;
  data::BatchPart part_;
};

}  // namespace ztrain::train
