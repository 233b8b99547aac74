#include "checkpoint/hf/tensor_parts.hpp"

#include <algorithm>

namespace ztrain::checkpoint {
namespace {

constexpr std::string_view layer_prefix = "model.layers.";

/// Returns what * stands for if the name fits the pattern; "" for a pattern without *.
std::optional<std::string> match(std::string_view pattern, std::string_view name) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name ? std::optional<std::string>("") : std::nullopt;
  const std::string_view before = pattern.substr(0, star), after = pattern.substr(star + 1);
  if (name.size() <= before.size() + after.size() || !name.starts_with(before) || !name.ends_with(after))
    return std::nullopt;
  const std::string_view number = name.substr(before.size(), name.size() - before.size() - after.size());
  if (number.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  return std::string(number);
}

/// Returns the pattern with its * replaced.
std::string fill_pattern(std::string_view pattern, std::string_view number) {
  std::string name(pattern);
  if (const std::size_t star = name.find('*'); star != std::string::npos) name.replace(star, 1, number);
  return name;
}

/// Returns the name without its first part, or "" for names that are not of the model below the head.
std::string without_base(const std::string& name) {
  for (const std::string_view base : {"model.", "transformer."})
    if (name.starts_with(base)) return name.substr(base.size());
  return "";
}

/// A tensor of files, or one for each expert, as rows of the table fill it.
struct Fused {
  std::int64_t outputs = 0, parts = 0;
};

/// A parameter in a tensor of files.
struct Placed {
  const config::FileTensor* row = nullptr;
  std::size_t parameter = 0;
  std::string tensor;  ///< with * for the expert's number if each has a tensor of its own
  Fused before;        ///< what the tensor holds before this parameter
};

/// Returns the place of a parameter in a tensor whose other parts are known.
TensorPart part_of(const Placed& placed, const Shape& shape, const Fused& whole) {
  const config::FileTensor& row = *placed.row;
  const bool of_experts = row.experts != config::ExpertFiles::none && !shape.empty();
  TensorPart part{.shape = Shape(shape.begin() + (of_experts ? 1 : 0), shape.end())};
  part.matrices = of_experts ? shape[0] : 1;
  part.rows = part.shape.empty() ? 1 : part.shape[0];
  part.columns = part.rows == 0 ? 1 : elements(part.shape) / part.rows;
  const bool transposed = row.transposed && part.shape.size() == 2;
  const std::int64_t turns = row.order == config::PartOrder::interleaved ? whole.parts : 1;
  part.first = turns > 1 ? placed.before.parts : placed.before.outputs;
  part.row_stride = turns;
  if (transposed) {
    part.column_stride = whole.outputs;
  } else {
    part.first *= part.columns;
    part.row_stride *= part.columns;
  }
  part.matrix_stride = whole.outputs * part.columns;
  if (!part.shape.empty()) part.shape[0] = whole.outputs;
  if (transposed) std::swap(part.shape[0], part.shape[1]);
  if (row.experts == config::ExpertFiles::stacked && of_experts)
    part.shape.insert(part.shape.begin(), part.matrices);
  if (row.experts == config::ExpertFiles::apart && of_experts)
    for (std::int64_t e = 0; e < part.matrices; ++e)
      part.tensors.push_back(fill_pattern(placed.tensor, std::to_string(e)));
  else
    part.tensors = {placed.tensor};
  return part;
}

}  // namespace

std::vector<std::vector<TensorPart>> tensor_forms(std::span<const NamedShape> parameters,
                                                  const config::Architecture* architecture) {
  std::vector<Placed> placed;
  std::map<std::string, Fused> whole;
  std::span<const config::FileTensor> rows;
  if (architecture != nullptr) rows = architecture->files;
  for (const config::FileTensor& row : rows)
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const auto number = match(row.parameter, parameters[i].name);
      if (!number) continue;
      const std::size_t dim = row.experts == config::ExpertFiles::none ? 0 : 1;
      const Shape& shape = parameters[i].shape;
      placed.push_back({&row, i, fill_pattern(row.tensor, *number), {}});
      Fused& tensor = whole[placed.back().tensor];
      placed.back().before = tensor;
      tensor.outputs += shape.size() > dim ? shape[dim] : 1;
      ++tensor.parts;
    }
  std::vector<std::vector<TensorPart>> forms(parameters.size());
  for (const Placed& p : placed)
    forms[p.parameter].push_back(part_of(p, parameters[p.parameter].shape, whole.at(p.tensor)));
  for (std::size_t i = 0; i < parameters.size(); ++i)
    forms[i].push_back({.tensors = {parameters[i].name},
                        .shape = parameters[i].shape,
                        .rows = elements(parameters[i].shape)});
  return forms;
}

TensorPart find_part(std::span<const TensorPart> forms, const std::map<std::string, Shape>& tensors) {
  const auto is_there = [&](const std::string& name) { return tensors.contains(name); };
  for (const TensorPart& form : forms) {
    if (std::ranges::any_of(form.tensors, is_there)) return form;
    TensorPart bare = form;
    std::ranges::transform(form.tensors, bare.tensors.begin(), without_base);
    if (std::ranges::any_of(bare.tensors, is_there)) return bare;
  }
  return forms.front();
}

const config::FileBuffer* find_buffer(const std::string& tensor, const config::Architecture& architecture) {
  const auto found = std::ranges::find_if(architecture.buffers, [&](const config::FileBuffer& buffer) {
    return match(buffer.tensor, tensor) || match(without_base(std::string(buffer.tensor)), tensor);
  });
  return found == architecture.buffers.end() ? nullptr : &*found;
}

std::vector<std::pair<std::string, double>> written_buffers(std::span<const NamedShape> parameters,
                                                            const config::Architecture& architecture) {
  std::vector<std::string> layers;
  for (const NamedShape& p : parameters) {
    const auto number = match("model.layers.*.", p.name.substr(0, p.name.find('.', layer_prefix.size()) + 1));
    if (number && std::ranges::find(layers, *number) == layers.end()) layers.push_back(*number);
  }
  std::vector<std::pair<std::string, double>> written;
  for (const config::FileBuffer& buffer : architecture.buffers) {
    if (!buffer.value) continue;
    const bool of_layers = buffer.tensor.find('*') != std::string_view::npos;
    for (const std::string& layer : of_layers ? layers : std::vector<std::string>{""})
      written.emplace_back(fill_pattern(buffer.tensor, layer), *buffer.value);
  }
  return written;
}

}  // namespace ztrain::checkpoint
