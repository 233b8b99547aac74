#include "tests/additions/rows.hpp"

#include "config/families/families.hpp"
#include "kernels/activation/record.hpp"
#include "tests/additions/geglu/record.hpp"

namespace ztrain::config::families {

std::vector<Architecture> additions() {
  return {{.family = "gated", .hf_class = "GatedForCausalLM", .model_type = "gated", .keys = {silu}},
          {.family = "capped", .hf_class = "CappedForCausalLM", .model_type = "capped", .keys = {silu}}};
}

}  // namespace ztrain::config::families

namespace ztrain::model {

void gate_by_geglu(Graph& graph) {
  for (Node& node : graph.nodes)
    if (node.op == GatedActivation::op) node.op = Geglu::op;
}

Graph geglu_decoder(const config::Model& dims, const Request& request) {
  Graph graph = decoder(dims, request);
  gate_by_geglu(graph);
  return graph;
}

Attention capped_attention(const config::Model& dims, std::int64_t layer) {
  Attention attention = decoder_attention(dims, layer);
  attention.window = layer % 2 == 0 ? 5 : 0;
  attention.scale = 4;
  attention.soft_cap = 0.2;
  attention.rotary = layer + 1 < dims.num_hidden_layers;
  return attention;
}

}  // namespace ztrain::model

namespace ztrain::program {

std::vector<Turn> forwards_first(const ScheduleInput& input) {
  std::vector<Turn> turns;
  for (int m = 0; m < input.micro_batches; ++m) turns.push_back({TurnKind::forward, 0, m});
  // In the order of the others: gradients are added up micro-batch by micro-batch, with a rounding at each.
  for (int m = 0; m < input.micro_batches; ++m) turns.push_back({TurnKind::backward, 0, m});
  return turns;
}

}  // namespace ztrain::program
