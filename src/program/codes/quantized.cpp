#include "program/codes/quantized.hpp"

#include <map>

#include "base/shape.hpp"
#include "kernels/dequantize/record.hpp"

namespace ztrain::program {

std::vector<TensorId> add_weight_statistics(Program& program, const model::Graph& graph) {
  std::vector<TensorId> statistics;
  for (const model::Parameter& p : graph.parameters) {
    statistics.push_back(no_tensor);
    if (!p.form.any() || p.elsewhere) continue;
    const model::Value& v = graph.value(p.statistics);
    statistics.back() = program.add(persistent(v.name, v.dtype, v.shape, Category::scalar));
  }
  return statistics;
}

void locate_codes(Program& program, const Cut& cut) {
  std::map<std::string_view, int> numbers;
  for (int p = 0; p < std::ssize(cut.layout.parameters()); ++p)
    if (const ParameterShape& shape = cut.layout.parameters()[at(p)]; shape.quantized)
      numbers.emplace(shape.name, p);
  if (numbers.empty()) return;
  for (Op& op : program.ops) {
    if (op.type != Dequantize::op) continue;
    const int p = numbers.at(program.tensor(op.inputs[Dequantize::codes]).name);
    const PartOfMatrix part = part_of_matrix(cut.layout, p, cut.at);
    edit<Dequantize>(op.attributes, [&](Dequantize& record) {
      record.begin = cut.computed[at(p)].begin;
      record.run = part.run;
      record.stride = part.stride;
      record.offset = part.offset;
      record.columns = part.columns;
    });
  }
}

PartOfMatrix part_of_matrix(const Layout& layout, int parameter, const Coordinate& at) {
  const ParameterShape& p = layout.parameters()[ztrain::at(parameter)];
  const std::int64_t columns = p.shape.back(), all = elements(p.shape);
  if (p.slice.whole()) return {all, all, 0, columns};
  const SliceIndex index = slice_index(p.shape, p.slice, part_of(p.slice, at));
  return {index.run, index.stride, index.offset, columns};
}

}  // namespace ztrain::program
