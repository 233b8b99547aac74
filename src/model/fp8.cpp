#include "model/fp8.hpp"

#include <map>

#include "base/error.hpp"
#include "config/validate/refusals.hpp"
#include "kernels/fp8/record.hpp"
#include "kernels/linear/record.hpp"

namespace ztrain::model {
namespace {

class Fp8 {
 public:
  Fp8(Graph& graph, bool rowwise) : graph_(graph), rowwise_(rowwise) {
    readers_.assign(graph.values.size(), 0);
    for (const Node& node : graph.nodes) {
      for (const ValueId in : node.inputs) ++readers_[at(in)];
      for (const ValueId out : node.outputs) piece_of_[out] = node.piece;
    }
  }

  /// The number of layers changed.
  int run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    int changed = 0;
    for (Node& node : nodes) {
      if (applies_to(node)) change(node), ++changed;
      graph_.nodes.push_back(std::move(node));
    }
    return changed;
  }

 private:
  bool applies_to(const Node& node) const {
    if (node.op != Linear::op || node.piece == "head") return false;
    const ValueId w = node.inputs[Linear::weight];
    const Value& weight = graph_.value(w);
    return weight.parameter >= 0 && readers_[at(w)] <= 1 && !graph_.parameter_of(w).adapter &&
           weight.shape[0] % fp8_multiple == 0 && weight.shape[1] % fp8_multiple == 0;
  }

  void change(Node& layer) {
    const ValueId weight = layer.inputs[Linear::weight];
    const auto [codes, scales] = quantised(layer);
    std::vector<ValueId> inputs{codes, scales, weight, weight_scales(weight)};
    inputs.insert(inputs.end(), layer.inputs.begin() + 2, layer.inputs.end());
    layer.op = LinearFp8::op;
    layer.inputs = std::move(inputs);
    layer.attributes = attributes_of(LinearFp8{{rowwise_}});
  }

  /// Codes and scales of the layer's input; with one scale the transposed codes as well, for backward.
  /// Recomputed with what makes the input, so that a piece that is run again keeps nothing.
  std::pair<ValueId, ValueId> quantised(const Node& layer) {
    const ValueId x = layer.inputs[Linear::x];
    const auto [it, fresh] = quantised_.try_emplace({x, layer.block});
    if (!fresh) return it->second;
    const Value input = graph_.value(x);
    REQUIRE(input.dtype == DType::bf16, "precision.fp8: '{}' is {}; products with 8-bit floats need bf16",
            input.name, name_of(input.dtype));
    ASSERT(input.shape[0] % fp8_multiple == 0, "a micro-batch of {} tokens becomes codes, no multiple of {}",
           input.shape[0], fp8_multiple);
    const Shape scales{rowwise_ ? input.shape[0] : 1};
    it->second = {graph_.add({input.name + ".codes", DType::f8e4m3, input.shape}),
                  graph_.add({input.name + ".scales", DType::f32, scales})};
    Node node{
        std::string(Fp8Quantize::op),          input.name,  {x},        {it->second.first, it->second.second},
        attributes_of(Quantization{rowwise_}), layer.block, layer.piece};
    if (!rowwise_) {
      node.op = Fp8QuantizeBoth::op;
      const Shape transposed{input.shape[1], input.shape[0]};
      node.outputs.push_back(graph_.add({input.name + ".transposed", DType::f8e4m3, transposed}));
    }
    if (const auto maker = piece_of_.find(x); maker != piece_of_.end()) node.piece = maker->second;
    graph_.nodes.push_back(std::move(node));
    return it->second;
  }

  ValueId weight_scales(ValueId weight) {
    Value& w = graph_.value(weight);
    w.dtype = DType::f8e4m3;
    Parameter& p = graph_.parameter_of(weight);
    const Shape shape{rowwise_ ? w.shape[0] : 1};
    return p.scales = graph_.add({scales_name(p.name), DType::f32, shape, Role::state});
  }

  Graph& graph_;
  bool rowwise_;
  std::vector<int> readers_;                 ///< by value
  std::map<ValueId, std::string> piece_of_;  ///< of the node that makes a value
  std::map<std::pair<ValueId, int>, std::pair<ValueId, ValueId>> quantised_;  ///< by value and block
};

}  // namespace

void use_fp8(Graph& graph, const std::string& scaling) {
  if (scaling == "none") return;
  if (Fp8(graph, scaling == "rowwise").run() == 0)
    config::refuse("precision.fp8 model.hidden_size model.intermediate_size",
                   {{"scaling", scaling}, {"multiple", fp8_multiple}});
}

}  // namespace ztrain::model
