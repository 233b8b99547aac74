#pragma once
// From a deck to what the compiler of Programs takes, and on how many ranks it can be. Pure.

#include "config/deck.hpp"
#include "kernel_interface/target.hpp"
#include "model/graph.hpp"
#include "program/jobs/compile.hpp"

namespace ztrain::plan {

/// deck.mesh must be resolved (config::validate_for_ranks).
MeshShape mesh_shape(const config::Deck& deck);

/// target: build_target() for a run; a plan's is its Machine's.
program::JobSpec job_spec(const config::Deck& deck, Target target);

/// Returns the job that evaluates the deck's model, one micro-batch of each rank at a time. It keeps all
/// weights in precision.parameters, and has room for every row that experts may get.
program::JobSpec evaluation_spec(const config::Deck& deck, Target on);

/// The model on one micro-batch. deck.model.vocab_size must be known. likelihoods: as model::Request.
model::Graph training_graph(const config::Deck& deck, std::int64_t likelihoods = 0);

/// Returns the model's logits on so many tokens, of the one at input `index`. capacity: positions that a
/// sequence may have at most.
model::Graph logits_graph(const config::Deck& deck, DType compute, std::int64_t tokens,
                          std::int64_t capacity);

/// The largest number of ranks, up to `most`, that the deck's mesh, batch and model take, with up to
/// ranks_per_node on each node. Throws Error where none is: that of `most` ranks, and whether the deck fixes
/// their number.
int largest_legal_ranks(const config::Deck& deck, int most, int ranks_per_node, Target target);

/// Ranks that a job may have at most.
inline constexpr int most_job_ranks = 1 << 20;

/// Returns the job on the fewest ranks that the deck's mesh, batch and model take, whose other degrees are 1
/// if they are open. Throws Error if the deck goes together with no number of ranks. deck.model.vocab_size
/// must be known.
program::JobSpec least_job(const config::Deck& deck, int ranks_per_node, Target target);

}  // namespace ztrain::plan
