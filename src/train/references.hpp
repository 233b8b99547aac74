#pragma once
// Log-probabilities of the answers under the reference model, which losses on pairs compare with. The
// reference is the model as a run begins: a model with new adapters is then the model without them.

#include "train/run.hpp"

namespace ztrain::train {

/// Collective. Computes them with the weights of a run that begins, for all pairs of training and validation,
/// and writes run.output/reference.h5; a run that goes on reads that file, and holds it against the hash in
/// its checkpoint. Does nothing if the loss needs no reference, or if the run is complete. Throws
/// AgreedError.
void take_references(Run& run);

}  // namespace ztrain::train
