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
#include "kernels/dora/record.hpp"
#include "kernels/dropout/record.hpp"
#include "kernels/elementwise/record.hpp"
#include "kernels/grouped/record.hpp"
#include "kernels/linear/record.hpp"

namespace ztrain::model {
namespace {

/// End of the name of the product with what dropout takes from a layer's input.
constexpr std::string_view taken_ending = ".lora_taken";

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
    if (lora.dora && config::names_experts(target))
      config::refuse("lora.dora lora.targets", {{"target", target}});
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
    if (lora_.dora) return add_with_magnitude(std::move(layer), a, b);
    layer.outputs[Linear::y] = value(layer.name + ".frozen", graph_.value(y));
    graph_.nodes.push_back(layer);
    if (is_first) inner->second = narrow(layer, module, a, kept(layer));
    const ValueId added = product(layer, layer.name + ".lora_B", inner->second, b);
    emit_as<Add>(layer, ".lora_sum", {layer.outputs[Linear::y], added}, y);
  }

  /// Emits the layer with adapters and magnitudes. Its bias is added after these.
  void add_with_magnitude(Node layer, ValueId a, ValueId b) {
    const ValueId x = layer.inputs[Linear::x], y = layer.outputs[Linear::y],
                  weight = layer.inputs[Linear::weight];
    const std::vector<ValueId> bias(layer.inputs.begin() + Linear::weight + 1, layer.inputs.end());
    const ValueId magnitude = add_magnitude(layer.name, weight), input = kept(layer);
    const Shape shape = graph_.value(y).shape, of_x = graph_.value(x).shape;
    Node product_of_base = layer;
    const ValueId frozen = value(layer.name + ".frozen", graph_.value(y));
    product_of_base.inputs = {input, weight};
    product_of_base.outputs = {frozen};
    graph_.nodes.push_back(std::move(product_of_base));
    const ValueId inner = narrow(layer, layer.name, a, input);
    const ValueId added = product(layer, layer.name + ".lora_B", inner, b);
    const ValueId sum = emit(layer, Add{}, layer.name + ".lora_sum", {frozen, added}, shape);
    std::vector<ValueId> scaled{sum, magnitude, squares(layer, a, b)};
    if (lora_.dropout == 0) scaled.insert(scaled.end(), bias.begin(), bias.end());
    if (lora_.dropout == 0) return emit_as<DoraScale>(layer, ".lora_magnitude", std::move(scaled), y);
    const ValueId turned = emit(layer, DoraScale{}, layer.name + ".lora_magnitude", std::move(scaled), shape);
    const ValueId less = emit(layer, Scale{-1}, layer.name + ".lora_less", {input}, of_x);
    std::vector<ValueId> rest{emit(layer, Add{}, layer.name + ".lora_rest", {x, less}, of_x), weight};
    rest.insert(rest.end(), bias.begin(), bias.end());
    const std::string name = fmt::format("{}{}", layer.name, taken_ending);
    const ValueId taken = emit(layer, Linear{}, name, std::move(rest), shape);
    emit_as<Add>(layer, ".lora_output", {turned, taken}, y);
  }

  /// Emits the squares of the rows of the adapted weight, in the type in which norms are summed.
  ValueId squares(const Node& layer, ValueId a, ValueId b) {
    const ValueId weight = layer.inputs[Linear::weight];
    const Shape shape{graph_.value(weight).shape[0]};
    const ValueId out =
        emit(layer, DoraSquares{{scale()}}, layer.name + ".lora_squares", {weight, a, b}, shape);
    Value& made = graph_.value(out);
    if (made.dtype != DType::f64) made.dtype = DType::f32;
    return out;
  }

  /// Emits the layer's last op, whose output is the layer's.
  template <class Record>
  void emit_as(const Node& layer, const char* ending, std::vector<ValueId> inputs, ValueId output) {
    Node last = layer;
    last.op = Record::op;
    last.name = layer.name + ending;
    last.inputs = std::move(inputs);
    last.outputs = {output};
    last.attributes = attributes_of(Record{});
    graph_.nodes.push_back(std::move(last));
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

  /// Makes the magnitudes [n] beside a weight of n, k. They take no weight decay, as other vectors.
  ValueId add_magnitude(const std::string& layer, ValueId weight) {
    const ValueId magnitude = add_factor(fmt::format("{}{}", layer, config::magnitude_ending), weight,
                                         {graph_.value(weight).shape[0]}, Init::row_norms, 0);
    graph_.parameter_of(magnitude).decay = false;
    return magnitude;
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

  /// Returns dropout(x) of a layer's input x.
  ValueId kept(const Node& layer) {
    const ValueId x = layer.inputs[Linear::x];
    return lora_.dropout > 0 ? dropout(layer, x) : x;
  }

  /// Emits the scaled product of the input and A^T. Layers of one module share it.
  ValueId narrow(const Node& layer, const std::string& module, ValueId a, ValueId input) {
    const ValueId inner = product(layer, module + ".lora_A", input, a);
    return emit(layer, Scale{scale()}, module + ".lora_scale", {inner}, graph_.value(inner).shape);
  }

  /// Emits the product of rows and a factor, which for experts lie in the groups of the layer's rows.
  ValueId product(const Node& layer, const std::string& name, ValueId x, ValueId factor) {
    const Shape& of_factor = graph_.value(factor).shape;
    Shape shape{graph_.value(x).shape[0], *(of_factor.end() - 2)};
    if (layer.op == Linear::op) return emit(layer, Linear{}, name, {x, factor}, std::move(shape));
    return emit(layer, GroupedLinear{}, name, {x, layer.inputs[GroupedLinear::offsets], factor},
                std::move(shape));
  }

  double scale() const { return config::adapter_scale(lora_.alpha, lora_.rank, lora_.rslora); }

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

std::string layer_of(const Node& product) {
  const std::string& name = product.name;
  return name.ends_with(taken_ending) ? name.substr(0, name.size() - taken_ending.size()) : name;
}

void add_adapters(Graph& graph, const config::Lora& lora, std::uint64_t seed) {
  if (lora.rank == 0) return;
  if (lora.targets.empty()) config::refuse("lora.rank lora.targets", {{"rank", lora.rank}});
  require_targets(graph, lora);
  Adapter(graph, lora, seed).run();
}

}  // namespace ztrain::model
