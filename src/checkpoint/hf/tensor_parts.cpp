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

}  // namespace

std::vector<TensorPart> tensor_parts(std::span<const NamedShape> parameters,
                                     const config::Architecture* architecture) {
  std::vector<TensorPart> parts;
  for (const NamedShape& p : parameters) parts.push_back({p.name, p.shape});
  if (architecture == nullptr) return parts;
  std::map<std::string, Shape> whole;  // shapes with the outputs first
  for (const config::FileTensor& row : architecture->files)
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const auto number = match(row.parameter, parameters[i].name);
      if (!number) continue;
      const Shape& shape = parameters[i].shape;
      const std::string tensor = fill_pattern(row.tensor, *number);
      const auto [at, is_first] = whole.try_emplace(tensor, shape);
      parts[i] = {tensor, {}, is_first ? 0 : at->second[0], row.transposed && shape.size() == 2};
      if (!is_first) at->second[0] += shape[0];
    }
  for (TensorPart& part : parts)
    if (const auto at = whole.find(part.tensor); at != whole.end()) {
      part.shape = at->second;
      if (part.transposed) std::swap(part.shape[0], part.shape[1]);
    }
  return parts;
}

TensorPart find_part(const TensorPart& part, const NamedShape& parameter,
                     const std::map<std::string, Shape>& tensors) {
  for (const TensorPart& form : {part, TensorPart{parameter.name, parameter.shape}})
    for (const std::string& name : {form.tensor, without_base(form.tensor)})
      if (tensors.contains(name)) return {name, form.shape, form.first, form.transposed};
  return part;
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
