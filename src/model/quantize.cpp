#include "model/quantize.hpp"

#include "base/error.hpp"
#include "config/adapters.hpp"
#include "config/validate/refusals.hpp"
#include "kernels/dequantize/record.hpp"
#include "kernels/dora/record.hpp"
#include "kernels/grouped/record.hpp"
#include "kernels/linear/record.hpp"
#include "model/lora.hpp"

namespace ztrain::model {
namespace {

/// Returns whether the node is a linear layer of a block whose weight, at this place among its inputs, is
/// frozen.
bool has_frozen_weight(const Graph& graph, const Node& node, std::size_t weight) {
  const ValueId w = node.inputs[weight];
  if (node.piece == "head" || graph.value(w).parameter < 0) return false;
  const Parameter& p = graph.parameter_of(w);
  return !p.trainable && !p.adapter && p.name == layer_of(node) + ".weight";
}

void keep_as_codes(Graph& graph, Node& layer, WeightForm form) {
  const ValueId w = layer.inputs[Linear::weight];
  if (!graph.parameter_of(w).form.any()) {
    const Shape shape = graph.value(w).shape;
    const std::string name = graph.parameter_of(w).name;
    graph.value(w).dtype = DType::u8;
    const ValueId statistics = graph.add(
        {statistics_name(name), DType::f32, {form.statistics(elements(shape), shape.back())}, Role::state});
    Parameter& p = graph.parameter_of(w);
    p.form = form;
    p.statistics = statistics;
  }
  layer.inputs.insert(layer.inputs.begin() + LinearQuantized::statistics, graph.parameter_of(w).statistics);
  layer.op = LinearQuantized::op;
  layer.attributes = attributes_of(LinearQuantized{{static_cast<std::int64_t>(form.code), form.nested}});
}

/// Makes a node that reads a weight read its codes. Nodes that read it come after its layer's product.
void read_codes(const Graph& graph, Node& squares) {
  const Parameter& p = graph.parameter_of(squares.inputs[DoraSquares::weight]);
  if (!p.form.any()) return;
  const auto scale = record_of<DoraSquares>(squares.attributes).scale;
  squares.inputs.insert(squares.inputs.begin() + DoraSquaresQuantized::statistics, p.statistics);
  squares.op = DoraSquaresQuantized::op;
  squares.attributes =
      attributes_of(DoraSquaresQuantized{{static_cast<std::int64_t>(p.form.code), p.form.nested}, scale});
}

}  // namespace

void quantize_weights(Graph& graph, const config::Lora& lora) {
  const WeightForm form = config::weight_form(lora);
  if (!form.any()) return;
  std::size_t layers = 0;
  for (Node& node : graph.nodes) {
    if (node.op == GroupedLinear::op && has_frozen_weight(graph, node, GroupedLinear::weight))
      config::refuse("lora.quantization model.num_experts", {{"quantization", lora.quantization}});
    if (node.op == DoraSquares::op) read_codes(graph, node);
    if (node.op != Linear::op || !has_frozen_weight(graph, node, Linear::weight)) continue;
    keep_as_codes(graph, node, form);
    ++layers;
  }
  if (layers == 0) config::refuse("lora.quantization model.trainable", {{"quantization", lora.quantization}});
}

}  // namespace ztrain::model
