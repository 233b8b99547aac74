#include "model/graph.hpp"

#include <cmath>

namespace ztrain::model {

ValueId Graph::add(Value value) {
  values.push_back(std::move(value));
  return static_cast<ValueId>(values.size()) - 1;
}

ValueId Graph::add(Parameter parameter, DType dtype) {
  const auto index = static_cast<int>(parameters.size());
  const ValueId value = add({parameter.name, dtype, parameter.shape, Role::parameter, index});
  parameter.value = value;
  parameters.push_back(std::move(parameter));
  return value;
}

std::int64_t Graph::active_parameters() const {
  double active = 0;
  for (const Parameter& p : parameters) active += p.share_of_token * static_cast<double>(elements(p.shape));
  return std::llround(active);
}

}  // namespace ztrain::model
