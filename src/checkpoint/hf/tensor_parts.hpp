#pragma once
// Internal to checkpoint. Says which part of which tensor of a file each parameter is: files of some
// architectures keep several parameters in one tensor, or keep them transposed
// (config::Architecture::files).

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/shape.hpp"
#include "config/architectures.hpp"

namespace ztrain::checkpoint {

struct NamedShape {
  std::string name;
  Shape shape;
};

/// Returns the names and shapes of parameters.
template <class Parameters>
std::vector<NamedShape> named_shapes(const Parameters& parameters) {
  std::vector<NamedShape> named;
  for (const auto& p : parameters) named.push_back({p.name, p.shape});
  return named;
}

/// The part of a file's tensor that is one parameter.
struct TensorPart {
  std::string tensor;
  Shape shape;             ///< shape of the whole tensor in the file
  std::int64_t first = 0;  ///< the part's first output: a row of the tensor, or a column if it is transposed
  bool transposed = false;
};

/// Returns the part of each parameter, in their order. architecture may be null: each is a tensor of its own.
std::vector<TensorPart> tensor_parts(std::span<const NamedShape> parameters,
                                     const config::Architecture* architecture);

/// Returns the part as a folder with these tensors has it: fused, or as a tensor of the parameter's own, each
/// with or without the first part of its name ("model." or "transformer."). Returns `part` if the folder
/// has none.
TensorPart find_part(const TensorPart& part, const NamedShape& parameter,
                     const std::map<std::string, Shape>& tensors);

/// Returns the row of a tensor that reading leaves out; null for others.
const config::FileBuffer* find_buffer(const std::string& tensor, const config::Architecture& architecture);

/// Returns the names and values of the buffers that an export writes, for the layers of the parameters.
std::vector<std::pair<std::string, double>> written_buffers(std::span<const NamedShape> parameters,
                                                            const config::Architecture& architecture);

}  // namespace ztrain::checkpoint
