#include "model/lora.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"
#include "config/validate/refusals.hpp"
#include "kernels/dropout/record.hpp"
#include "kernels/elementwise/record.hpp"
#include "kernels/linear/record.hpp"

namespace ztrain::model {
namespace {

std::string last_part(const std::string& module) {
  return module.substr(module.rfind('.') + 1);
}

/// A linear layer of a transformer block. The head is none: it has adapters in no objective, since where the
/// loss is wanted it is one op with it.
bool is_linear_layer(const Graph& graph, const Node& node) {
  if (node.op != Linear::op || node.piece == "head") return false;
  const ValueId weight = node.inputs[Linear::weight];
  return graph.value(weight).parameter >= 0 && graph.parameter_of(weight).name == node.name + ".weight";
}

void require_targets(const Graph& graph, const config::Lora& lora) {
  for (const std::string& target : lora.targets) {
    std::set<std::string> layers;
    bool found = false;
    for (const Node& node : graph.nodes) {
      if (!is_linear_layer(graph, node)) continue;
      found = found || is_target(target, node.name);
      layers.insert(last_part(node.name));
    }
    REQUIRE(
        found || target != "all-linear",
        "lora.targets: 'all-linear' is no name of a layer: leave lora.targets out, which gives adapters to "
        "all linear layers of the blocks");
    for (const auto& [module, what] :
         {std::pair("lm_head", "head"), std::pair("model.embed_tokens", "embedding")})
      REQUIRE(found || !is_target(target, module),
              "lora.targets: '{}': adapters of the {} are not supported: give linear layers of the blocks "
              "({}), or leave lora.targets out for all of these; model.trainable trains the {} itself",
              target, what, fmt::join(layers, ", "), what);
    REQUIRE(found,
            "lora.targets: '{}' is no linear layer of the model; legal are {}, or patterns of whole names",
            target, fmt::join(layers, ", "));
  }
}

class Adapter {
 public:
  Adapter(Graph& graph, const config::Lora& lora, std::uint64_t seed)
      : graph_(graph), lora_(lora), seed_(seed) {}

  void run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (Node& node : nodes) {
      const auto matches = [&](const std::string& target) { return is_target(target, node.name); };
      if (is_linear_layer(graph_, node) && std::ranges::any_of(lora_.targets, matches))
        add_beside(std::move(node));
      else
        graph_.nodes.push_back(std::move(node));
    }
  }

 private:
  /// Emits the layer, then the ops that add to what it gives. What read its output reads the sum.
  void add_beside(Node layer) {
    const ValueId x = layer.inputs[Linear::x], y = layer.outputs[Linear::y];
    const Value weight = graph_.value(layer.inputs[Linear::weight]);
    const std::int64_t n = weight.shape[0], k = weight.shape[1], tokens = graph_.value(x).shape[0];
    const Shape narrow{tokens, lora_.rank};
    Parameter factor{.name = layer.name + lora_a_suffix,
                     .shape = {lora_.rank, k},
                     .unit = graph_.parameters[at(weight.parameter)].unit,
                     .init = Init::uniform,
                     .init_std = 1 / std::sqrt(static_cast<double>(k)),
                     .adapter = true};
    const ValueId a = graph_.add(factor, weight.dtype);
    factor.name = layer.name + lora_b_suffix;
    factor.shape = {n, lora_.rank};
    factor.init = Init::zeros;
    factor.init_std = 0;
    const ValueId b = graph_.add(std::move(factor), weight.dtype);

    layer.outputs[Linear::y] = value(layer.name + ".frozen", graph_.value(y));
    graph_.nodes.push_back(layer);
    const ValueId kept = lora_.dropout > 0 ? dropout(layer, x) : x;
    const ValueId inner = emit(layer, Linear{}, ".lora_A", {kept, a}, narrow);
    const ValueId scaled =
        emit(layer, Scale{lora_.alpha / static_cast<double>(lora_.rank)}, ".lora_scale", {inner}, narrow);
    const ValueId added = emit(layer, Linear{}, ".lora_B", {scaled, b}, {tokens, n});
    Node sum = layer;
    sum.op = Add::op;
    sum.name = layer.name + ".lora_sum";
    sum.inputs = {layer.outputs[Linear::y], added};
    sum.outputs = {y};
    sum.attributes = {};
    graph_.nodes.push_back(std::move(sum));
  }

  ValueId dropout(const Node& layer, ValueId x) {
    const std::uint64_t key = hash_text(layer.name + ".lora_dropout", seed_);
    const Dropout mask{lora_.dropout, std::bit_cast<std::int64_t>(key)};
    return emit(layer, mask, ".lora_dropout", {x}, graph_.value(x).shape);
  }

  template <class Record>
  ValueId emit(const Node& beside, const Record& record, const char* suffix, std::vector<ValueId> inputs,
               Shape shape) {
    Value v = graph_.value(beside.outputs[Linear::y]);
    v.shape = std::move(shape);
    const ValueId out = value(beside.name + suffix, std::move(v));
    graph_.nodes.push_back({std::string(Record::op),
                            beside.name + suffix,
                            std::move(inputs),
                            {out},
                            attributes_of(record),
                            beside.block,
                            beside.piece});
    return out;
  }

  ValueId value(std::string name, Value like) {
    like.name = std::move(name);
    return graph_.add(std::move(like));
  }

  Graph& graph_;
  const config::Lora& lora_;
  std::uint64_t seed_;
};

}  // namespace

bool is_target(const std::string& target, const std::string& module) {
  return glob_match(target, target.find('.') == std::string::npos ? last_part(module) : module);
}

void add_adapters(Graph& graph, const config::Lora& lora, std::uint64_t seed) {
  if (lora.rank == 0) return;
  if (lora.targets.empty()) config::refuse("lora.rank lora.targets", {{"rank", lora.rank}});
  require_targets(graph, lora);
  Adapter(graph, lora, seed).run();
}

}  // namespace ztrain::model
