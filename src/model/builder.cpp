#include "model/builder.hpp"

#include "base/error.hpp"

namespace ztrain::model {

int Builder::block(std::string name) {
  graph_.blocks.push_back(name);
  graph_.units.push_back({std::move(name)});
  piece_.clear();
  return static_cast<int>(graph_.blocks.size()) - 1;
}

ValueId Builder::input(const std::string& name, DType dtype, Shape shape) {
  graph_.values.push_back({name, dtype, std::move(shape), Role::input, -1});
  return static_cast<ValueId>(graph_.values.size()) - 1;
}

ValueId Builder::parameter(const std::string& name, Shape shape, Init init, double init_std) {
  const auto id = static_cast<ValueId>(graph_.values.size());
  const auto index = static_cast<int>(graph_.parameters.size());
  graph_.values.push_back({name, compute_, shape, Role::parameter, index});
  Parameter p;
  p.name = name;
  p.decay = shape.size() > 1;
  p.shape = std::move(shape);
  p.unit = static_cast<int>(graph_.units.size()) - 1;
  p.init = init;
  p.init_std = init_std;
  p.value = id;
  graph_.parameters.push_back(std::move(p));
  return id;
}

ValueId Builder::append(std::string_view op, const std::string& name, std::vector<ValueId> inputs,
                        Shape shape, DType dtype, Attributes attributes) {
  const auto out = static_cast<ValueId>(graph_.values.size());
  graph_.values.push_back({name, dtype, std::move(shape), Role::activation, -1});
  graph_.nodes.push_back({std::string(op),
                          name,
                          std::move(inputs),
                          {out},
                          std::move(attributes),
                          static_cast<int>(graph_.blocks.size()) - 1,
                          piece_});
  return out;
}

ValueId Builder::extra_output(const std::string& name, Shape shape) {
  const auto out = static_cast<ValueId>(graph_.values.size());
  graph_.values.push_back({name, statistics(), std::move(shape), Role::activation, -1});
  graph_.nodes.back().outputs.push_back(out);
  return out;
}

ValueId Builder::embedding(const std::string& name, ValueId tokens, ValueId weight) {
  return emit(Embedding{}, name, {tokens, weight}, {shape(tokens)[0], shape(weight)[1]}, compute_);
}

ValueId Builder::rms_norm(const std::string& name, ValueId x, ValueId weight, const RmsNorm& norm) {
  REQUIRE(shape(x)[1] % shape(weight)[0] == 0, "{}: input {} does not fit weight {}", name,
          to_string(shape(x)), to_string(shape(weight)));
  const ValueId y = emit(norm, name, {x, weight}, shape(x), compute_);
  extra_output(name + ".rstd", {elements(shape(x)) / shape(weight)[0]});
  return y;
}

ValueId Builder::linear(const std::string& name, ValueId x, ValueId weight, ValueId bias) {
  REQUIRE(shape(x)[1] == shape(weight)[1], "{}: input {} does not fit weight {}", name, to_string(shape(x)),
          to_string(shape(weight)));
  std::vector<ValueId> inputs{x, weight};
  if (bias >= 0) inputs.push_back(bias);
  return emit(Linear{}, name, std::move(inputs), {shape(x)[0], shape(weight)[0]}, compute_);
}

ValueId Builder::rope_table(const std::string& name, ValueId positions, std::int64_t head_dim,
                            const RopeTable& scaling) {
  return emit(scaling, name, {positions}, {shape(positions)[0], head_dim}, statistics());
}

ValueId Builder::rope(const std::string& name, ValueId x, ValueId table) {
  return emit(Rope{}, name, {x, table}, shape(x), compute_);
}

ValueId Builder::attention(const std::string& name, ValueId q, ValueId k, ValueId v, ValueId document_start,
                           const Attention& attention) {
  const ValueId o = emit(attention, name, {q, k, v, document_start}, shape(q), compute_);
  extra_output(name + ".lse", {shape(q)[0], attention.heads});
  return o;
}

ValueId Builder::swiglu(const std::string& name, ValueId gate, ValueId up) {
  return emit(Swiglu{}, name, {gate, up}, shape(gate), compute_);
}

ValueId Builder::add(const std::string& name, ValueId a, ValueId b) {
  return emit(Add{}, name, {a, b}, shape(a), compute_);
}

ValueId Builder::select_row(const std::string& name, ValueId x, ValueId index) {
  return emit(SelectRow{}, name, {x, index}, {1, shape(x)[1]}, compute_);
}

ValueId Builder::head_loss(const std::string& name, ValueId x, ValueId weight, ValueId targets,
                           ValueId weights) {
  return emit(HeadLoss{}, name, {x, weight, targets, weights}, {2}, DType::f64);
}

Graph Builder::finish(ValueId result) && {
  graph_.result = result;
  return std::move(graph_);
}

}  // namespace ztrain::model
