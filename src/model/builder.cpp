#include "model/builder.hpp"

#include "base/error.hpp"
#include "kernels/linear/record.hpp"

namespace ztrain::model {

int Builder::block(std::string name) {
  graph_.blocks.push_back(name);
  graph_.units.push_back({std::move(name)});
  piece_.clear();
  return static_cast<int>(graph_.blocks.size()) - 1;
}

ValueId Builder::input(const std::string& name, DType dtype, Shape shape) {
  return graph_.add({name, dtype, std::move(shape), Role::input});
}

ValueId Builder::parameter(const std::string& name, Shape shape, Init init, double init_std) {
  const bool decay = shape.size() > 1;
  return graph_.add({.name = name,
                     .shape = std::move(shape),
                     .unit = current_unit(),
                     .init = init,
                     .init_std = init_std,
                     .decay = decay},
                    compute_);
}

ValueId Builder::constant(const std::string& name, Shape shape, Init init) {
  return graph_.add({.name = name,
                     .shape = std::move(shape),
                     .unit = current_unit(),
                     .init = init,
                     .trainable = false,
                     .constant = true,
                     .decay = false},
                    statistics());
}

ValueId Builder::expert_parameter(const std::string& name, std::int64_t count, std::int64_t used, Shape shape,
                                  Init init, double init_std) {
  const bool decay = shape.size() > 1;
  shape.insert(shape.begin(), count);
  const ValueId made = parameter(name, std::move(shape), init, init_std);
  Parameter& p = graph_.parameter_of(made);
  p.share_of_token = static_cast<double>(used) / static_cast<double>(count);
  p.decay = decay;
  return made;
}

ValueId Builder::append(std::string_view op, const std::string& name, std::vector<ValueId> inputs,
                        Shape shape, DType dtype, Attributes attributes) {
  const ValueId out = graph_.add({name, dtype, std::move(shape)});
  graph_.nodes.push_back({std::string(op),
                          name,
                          std::move(inputs),
                          {out},
                          std::move(attributes),
                          static_cast<int>(graph_.blocks.size()) - 1,
                          piece_});
  return out;
}

ValueId Builder::extra_output(const std::string& name, Shape shape, DType dtype) {
  const ValueId out = graph_.add({name, dtype, std::move(shape)});
  graph_.nodes.back().outputs.push_back(out);
  return out;
}

ValueId Builder::rms_norm(const std::string& name, ValueId x, ValueId weight, const RmsNorm& norm) {
  REQUIRE(shape(x)[1] % shape(weight)[0] == 0, "{}: input {} does not fit weight {}", name,
          to_string(shape(x)), to_string(shape(weight)));
  const ValueId y = emit(norm, name, {x, weight}, shape(x), compute_);
  extra_output(name + ".rstd", {elements(shape(x)) / shape(weight)[0]}, statistics());
  return y;
}

ValueId Builder::layer_norm(const std::string& name, ValueId x, ValueId weight, ValueId bias, double eps) {
  const ValueId y = emit(LayerNorm{eps}, name, {x, weight, bias}, shape(x), compute_);
  extra_output(name + ".mean", {shape(x)[0]}, statistics());
  extra_output(name + ".rstd", {shape(x)[0]}, statistics());
  return y;
}

ValueId Builder::linear(const std::string& name, ValueId x, ValueId weight, ValueId bias) {
  REQUIRE(shape(x)[1] == shape(weight)[1], "{}: input {} does not fit weight {}", name, to_string(shape(x)),
          to_string(shape(weight)));
  std::vector<ValueId> inputs{x, weight};
  if (bias >= 0) inputs.push_back(bias);
  return emit(Linear{}, name, std::move(inputs), {shape(x)[0], shape(weight)[0]}, compute_);
}

ValueId Builder::attention(const std::string& name, ValueId q, ValueId k, ValueId v, ValueId document_start,
                           const Attention& attention, ValueId sinks) {
  std::vector<ValueId> inputs{q, k, v, document_start};
  if (sinks >= 0) inputs.push_back(sinks);
  const ValueId o = emit(attention, name, std::move(inputs), shape(q), compute_);
  extra_output(name + ".lse", {shape(q)[0], attention.heads}, statistics());
  return o;
}

std::vector<ValueId> Builder::head_parts(const std::string& name, const HeadParts& parts,
                                         std::vector<ValueId> inputs,
                                         const std::vector<std::pair<std::string, std::int64_t>>& outputs) {
  const std::int64_t tokens = shape(inputs[0])[0];
  emit(parts, name + outputs[0].first, std::move(inputs), {tokens, outputs[0].second}, compute_);
  for (std::size_t i = 1; i < outputs.size(); ++i)
    graph_.nodes.back().outputs.push_back(
        graph_.add({name + outputs[i].first, compute_, {tokens, outputs[i].second}}));
  return graph_.nodes.back().outputs;
}

double Builder::rounded(double value) const {
  const auto single = static_cast<float>(value);
  switch (compute_) {
    case DType::f64:
      return value;
    case DType::bf16:
      return static_cast<float>(bf16(single));
    case DType::f16:
      return static_cast<float>(f16(single));
    default:
      return single;
  }
}

Graph Builder::finish(ValueId result, ExpertReport experts, PairValues pairs, TeacherValues teacher) && {
  graph_.result = result;
  graph_.pairs = pairs;
  graph_.teacher = teacher;
  graph_.experts = std::move(experts);
  return std::move(graph_);
}

}  // namespace ztrain::model
