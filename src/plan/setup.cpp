#include "plan/setup.hpp"

#include "config/validate.hpp"
#include "model/family.hpp"

namespace ztrain::plan {

MeshShape mesh_shape(const config::Deck& deck) {
  MeshShape shape;
  shape[Axis::pipeline] = static_cast<int>(deck.mesh.pipeline);
  shape[Axis::replicate] = static_cast<int>(deck.mesh.replicate);
  shape[Axis::shard] = static_cast<int>(deck.mesh.shard);
  shape[Axis::context] = static_cast<int>(deck.mesh.context);
  shape[Axis::tensor] = static_cast<int>(deck.mesh.tensor);
  return shape;
}

program::JobSpec job_spec(const config::Deck& deck) {
  program::JobSpec spec;
  spec.mesh = mesh_shape(deck);
  spec.strategy = program::find_strategy(deck.sharding.strategy);
  spec.precision = {deck.precision.parameters, deck.precision.gradients, deck.precision.reduce,
                    deck.precision.master, deck.precision.moments};
  spec.optimizer = {deck.optimizer.beta1, deck.optimizer.beta2, deck.optimizer.eps,
                    deck.optimizer.weight_decay};
  spec.micro_batches = static_cast<int>(config::accumulation_steps(deck));
  spec.recompute = deck.recompute.mode == "full" ? program::Recompute::full : program::Recompute::none;
  const std::string& accumulation = deck.sharding.gradient_accumulation;
  spec.reduce_every_micro =
      accumulation == "auto" ? spec.strategy.gradients_sharded : accumulation == "reduce";
  spec.prefetch = static_cast<int>(deck.sharding.prefetch);
  return spec;
}

model::Graph training_graph(const config::Deck& deck) {
  model::Request request;
  request.tokens = deck.batch.micro * deck.data.sequence;
  request.compute = deck.precision.parameters;
  request.objective = model::Objective::loss;
  model::Graph graph = model::find_family(deck.model.family).emit(deck.model, request);
  for (model::Node& node : graph.nodes)
    if (node.op == "attention") node.attributes.set("sequence", deck.data.sequence);
  return graph;
}

}  // namespace ztrain::plan
