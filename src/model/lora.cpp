#include "model/lora.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "config/adapters.hpp"
#include "config/validate/refusals.hpp"
#include "kernels/dropout/record.hpp"
#include "kernels/elementwise/record.hpp"
#include "kernels/grouped/record.hpp"
#include "kernels/linear/record.hpp"

namespace ztrain::model {
namespace {

ValueId weight_of(const Node& layer) {
  const std::size_t weight =
      layer.op == GroupedLinear::op ? std::size_t{GroupedLinear::weight} : Linear::weight;
  return layer.inputs[weight];
}

/// Returns the module that lora.targets may name and to which a node belongs, or "" for a node that is no
/// layer of a transformer block. The head is none: it has adapters in no objective, since where the loss is
/// wanted it is one op with it.
std::string module_of(const Graph& graph, const Node& node) {
  if ((node.op != Linear::op && node.op != GroupedLinear::op) || node.piece == "head") return "";
  const ValueId weight = weight_of(node);
  if (graph.value(weight).parameter < 0 || graph.parameter_of(weight).name != node.name + ".weight")
    return "";
  return config::adapted_module(node.name);
}

/// Returns the modules that lora.targets may name.
std::set<std::string> modules_of(const Graph& graph) {
  std::set<std::string> modules;
  for (const Node& node : graph.nodes)
    if (std::string module = module_of(graph, node); !module.empty()) modules.insert(std::move(module));
  return modules;
}

/// Returns the shortest entry of lora.targets that means a module in every layer that has it.
std::string short_name(const std::string& module) {
  const std::size_t experts = module.rfind(".experts.");
  return experts == std::string::npos ? config::last_part(module)
                                      : module.substr(module.rfind('.', experts - 1) + 1);
}

/// Requires that an entry of lora.targets means a module.
void require_target(const std::string& target, const std::set<std::string>& modules) {
  if (std::ranges::any_of(modules, [&](const auto& module) { return config::is_target(target, module); }))
    return;
  std::set<std::string> names;
  for (const std::string& module : modules) names.insert(short_name(module));
  REQUIRE(target != config::all_linear,
          "lora.targets: '{}' stands for all linear layers of the blocks, and must be the only entry",
          target);
  for (const auto& [module, what] :
       {std::pair("lm_head", "head"), std::pair("model.embed_tokens", "embedding")})
    REQUIRE(!config::is_target(target, module),
            "lora.targets: '{}': adapters of the {} are not supported: give linear layers of the blocks "
            "({}), or leave lora.targets out for all of these; model.trainable trains the {} itself",
            target, what, fmt::join(names, ", "), what);
  fail("lora.targets: '{}' is no linear layer of the model; legal are {}, or patterns of whole names", target,
       fmt::join(names, ", "));
}

void require_targets(const Graph& graph, const config::Lora& lora) {
  const std::set<std::string> modules = modules_of(graph);
  for (const std::string& target : lora.targets) {
    require_target(target, modules);
    REQUIRE(lora.dropout == 0 || !config::names_experts(target),
            "lora.targets: '{}' gives adapters to experts, and these have no dropout, as in PEFT; "
            "lora.dropout = {}: set it to 0, or leave experts out of lora.targets",
            target, lora.dropout);
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
      const std::string module = module_of(graph_, node);
      const auto matches = [&](const std::string& target) { return config::is_target(target, module); };
      if (!module.empty() && std::ranges::any_of(lora_.targets, matches))
        add_beside(std::move(node), module);
      else
        graph_.nodes.push_back(std::move(node));
    }
  }

 private:
  /// Emits the layer, then the ops that add to what it gives. What read its output reads the sum.
  void add_beside(Node layer, const std::string& module) {
    const ValueId y = layer.outputs[Linear::y], weight = weight_of(layer);
    const auto [inner, is_first] = scaled_.try_emplace(module, -1);
    const ValueId a = is_first ? add_a(module, weight) : -1, b = add_b(layer.name, weight);
    layer.outputs[Linear::y] = value(layer.name + ".frozen", graph_.value(y));
    graph_.nodes.push_back(layer);
    if (is_first) inner->second = narrow(layer, module, a);
    const ValueId added = product(layer, layer.name + ".lora_B", inner->second, b);
    Node sum = layer;
    sum.op = Add::op;
    sum.name = layer.name + ".lora_sum";
    sum.inputs = {layer.outputs[Linear::y], added};
    sum.outputs = {y};
    sum.attributes = {};
    graph_.nodes.push_back(std::move(sum));
  }

  /// Makes A of [experts,] rank, k beside a weight of [experts,] n, k.
  ValueId add_a(const std::string& module, ValueId weight) {
    Shape shape = graph_.value(weight).shape;
    const double bound = 1 / std::sqrt(static_cast<double>(shape.back()));
    *(shape.end() - 2) = lora_.rank;
    return add_factor(fmt::format("{}{}", module, config::lora_a_ending), weight, std::move(shape),
                      Init::uniform, bound);
  }

  /// Makes B of [experts,] n, rank.
  ValueId add_b(const std::string& layer, ValueId weight) {
    Shape shape = graph_.value(weight).shape;
    shape.back() = lora_.rank;
    return add_factor(fmt::format("{}{}", layer, config::lora_b_ending), weight, std::move(shape),
                      Init::zeros, 0);
  }

  ValueId add_factor(std::string name, ValueId weight, Shape shape, Init init, double init_std) {
    const Parameter& beside = graph_.parameter_of(weight);
    Parameter factor{.name = std::move(name),
                     .shape = std::move(shape),
                     .unit = beside.unit,
                     .init = init,
                     .init_std = init_std,
                     .adapter = true,
                     .share_of_token = beside.share_of_token};
    return graph_.add(std::move(factor), graph_.value(weight).dtype);
  }

  /// Emits the scaled dropout(x) A^T of a layer's input x. Layers of one module share it.
  ValueId narrow(const Node& layer, const std::string& module, ValueId a) {
    const ValueId x = layer.inputs[Linear::x], kept = lora_.dropout > 0 ? dropout(layer, x) : x,
                  inner = product(layer, module + ".lora_A", kept, a);
    const Scale scale{config::adapter_scale(lora_.alpha, lora_.rank, lora_.rslora)};
    return emit(layer, scale, module + ".lora_scale", {inner}, graph_.value(inner).shape);
  }

  /// Emits the product of rows and a factor, which for experts lie in the groups of the layer's rows.
  ValueId product(const Node& layer, const std::string& name, ValueId x, ValueId factor) {
    const Shape& of_factor = graph_.value(factor).shape;
    Shape shape{graph_.value(x).shape[0], *(of_factor.end() - 2)};
    if (layer.op == Linear::op) return emit(layer, Linear{}, name, {x, factor}, std::move(shape));
    return emit(layer, GroupedLinear{}, name, {x, layer.inputs[GroupedLinear::offsets], factor},
                std::move(shape));
  }

  ValueId dropout(const Node& layer, ValueId x) {
    const std::uint64_t key = hash_text(layer.name + ".lora_dropout", seed_);
    const Dropout mask{lora_.dropout, std::bit_cast<std::int64_t>(key)};
    return emit(layer, mask, layer.name + ".lora_dropout", {x}, graph_.value(x).shape);
  }

  template <class Record>
  ValueId emit(const Node& beside, const Record& record, const std::string& name, std::vector<ValueId> inputs,
               Shape shape) {
    Value v = graph_.value(beside.outputs[Linear::y]);
    v.shape = std::move(shape);
    const ValueId out = value(name, std::move(v));
    graph_.nodes.push_back({std::string(Record::op),
                            name,
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
  std::map<std::string, ValueId> scaled_;  ///< what the layers of a module read, by module
};

}  // namespace

void add_adapters(Graph& graph, const config::Lora& lora, std::uint64_t seed) {
  if (lora.rank == 0) return;
  if (lora.targets.empty()) config::refuse("lora.rank lora.targets", {{"rank", lora.rank}});
  require_targets(graph, lora);
  Adapter(graph, lora, seed).run();
}

}  // namespace ztrain::model
