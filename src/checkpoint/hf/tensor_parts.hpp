#pragma once
// Internal to checkpoint. Says where files keep each parameter: files of some architectures keep several
// parameters in one tensor, keep them transposed, or keep each expert in a tensor of its own
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

/// Where files keep a parameter. A parameter is one matrix of outputs and inputs, or one for each expert.
/// Element (r, c) of a matrix is element first + r * row_stride + c * column_stride of its tensor.
struct TensorPart {
  std::vector<std::string> tensors{};  ///< the one that has all matrices, or one for each matrix
  Shape shape{};                       ///< shape of each of these tensors in the file
  std::int64_t matrices = 1, rows = 0, columns = 1;
  std::int64_t first = 0;  ///< offset of the first matrix in its tensor, in elements
  std::int64_t row_stride = 1, column_stride = 1;
  std::int64_t matrix_stride = 0;  ///< elements from one matrix to the next of the same tensor

  std::int64_t matrix_elements() const { return rows * columns; }
  bool is_transposed() const { return column_stride != 1; }
  /// Returns whether the elements of a matrix lie one after the other.
  bool is_consecutive() const { return !is_transposed() && row_stride == columns; }
  const std::string& tensor_of(std::int64_t matrix) const {
    return tensors[tensors.size() > 1 ? static_cast<std::size_t>(matrix) : 0];
  }
  /// Returns the offset of a matrix in its tensor.
  std::int64_t first_of(std::int64_t matrix) const {
    return first + (tensors.size() > 1 ? 0 : matrix * matrix_stride);
  }
};

/// Returns the forms in which files may have each parameter, in their order. The first form is the one that
/// exports write, the last is a tensor of the parameter's own. architecture may be null: each parameter has
/// that form alone.
std::vector<std::vector<TensorPart>> tensor_forms(std::span<const NamedShape> parameters,
                                                  const config::Architecture* architecture);

/// Returns the first form of which a folder has a tensor, with or without the first part of its name
/// ("model." or "transformer."). Returns the first form if the folder has none.
TensorPart find_part(std::span<const TensorPart> forms, const std::map<std::string, Shape>& tensors);

/// Returns the row of a tensor that reading leaves out; null for others.
const config::FileBuffer* find_buffer(const std::string& tensor, const config::Architecture& architecture);

/// Returns the names and values of the buffers that an export writes, for the layers of the parameters.
std::vector<std::pair<std::string, double>> written_buffers(std::span<const NamedShape> parameters,
                                                            const config::Architecture& architecture);

}  // namespace ztrain::checkpoint
