#include <algorithm>
#include <cstring>
#include <utility>

#include "checkpoint/hf/weight_source.hpp"

namespace ztrain::checkpoint {
namespace {

/// Parameters that are parts of the tensors of a folder.
class PartWeights : public WrappedWeights {
 public:
  PartWeights(std::unique_ptr<WeightSource> files, std::span<const NamedShape> parameters,
              std::span<const TensorPart> parts)
      : WrappedWeights(std::move(files)) {
    for (const auto& [name, shape] : source_->shapes())
      add(name, shape, {.tensors = {name}, .shape = shape, .rows = elements(shape)});
    for (std::size_t i = 0; i < parts.size(); ++i)
      if (source_->shapes().contains(parts[i].tensors.front()))
        add(parameters[i].name, parameters[i].shape, parts[i]);
  }

  /// Experts may be stored in several dtypes. Returns the bytes of the widest.
  std::int64_t element_size(const std::string& name, DType to) const override {
    std::int64_t& size = sizes_[{name, to}];
    if (size == 0)
      for (const std::string& tensor : parts_.at(name).tensors)
        size = std::max(size, source_->element_size(tensor, to));
    return size;
  }

  void read(const std::string& name, std::int64_t begin, std::int64_t count, std::byte* data,
            DType to) override {
    const TensorPart& part = parts_.at(name);
    for (std::int64_t done = 0, n = 0; done < count; done += n) {
      const std::int64_t matrix = (begin + done) / part.matrix_elements(),
                         at = (begin + done) % part.matrix_elements();
      n = std::min(part.matrix_elements() - at, count - done);
      std::byte* const place = data + done * size_of(to);
      if (part.is_consecutive())
        source_->read(part.tensor_of(matrix), part.first_of(matrix) + at, n, place, to);
      else
        read_scattered({name, matrix, to}, at, n, place);
    }
  }

 private:
  /// A matrix of a parameter in a dtype.
  struct Matrix {
    std::string name;
    std::int64_t index = 0;
    DType type = DType::f32;
    bool operator==(const Matrix&) const = default;
  };
  /// Rows and columns of a matrix.
  struct Block {
    std::int64_t row = 0, rows = 0, column = 0, columns = 0;
  };

  void add(const std::string& name, const Shape& shape, TensorPart part) {
    shapes_[name] = shape;
    parts_.insert_or_assign(name, std::move(part));
  }

  /// Reads elements [begin, begin + count) of a matrix row by row.
  void read_scattered(const Matrix& matrix, std::int64_t begin, std::int64_t count, std::byte* data) {
    const TensorPart& part = parts_.at(matrix.name);
    const std::int64_t columns = part.columns, size = size_of(matrix.type);
    for (std::int64_t done = 0, n = 0; done < count; done += n) {
      const std::int64_t row = (begin + done) / columns, column = (begin + done) % columns;
      n = std::min(columns - column, count - done);
      if (columns > 1 && !part.is_transposed()) {
        source_->read(part.tensor_of(matrix.index),
                      part.first_of(matrix.index) + row * part.row_stride + column, n, data + done * size,
                      matrix.type);
        continue;
      }
      if (!holds(matrix, row, column, n)) {
        // A call for part of one row reads a slice of inputs. Later calls read that slice of more rows.
        const bool sliced = n == count && n < columns;
        const std::int64_t last = (begin + count - 1) / columns;
        hold(matrix, {row, sliced ? std::max<std::int64_t>(1, block_elements / n) : last + 1 - row,
                      sliced ? column : 0, sliced ? n : columns});
      }
      const std::int64_t at = (row - held_.row) * held_.columns + column - held_.column;
      std::memcpy(data + done * size, block_.data() + at * size, static_cast<std::size_t>(n * size));
    }
  }

  bool holds(const Matrix& matrix, std::int64_t row, std::int64_t column, std::int64_t count) const {
    return held_matrix_ == matrix && row >= held_.row && row < held_.row + held_.rows &&
           column >= held_.column && column + count <= held_.column + held_.columns;
  }

  /// Reads a block of a matrix, column by column. The file has the rows next to each other.
  void hold(const Matrix& matrix, Block block) {
    const TensorPart& part = parts_.at(matrix.name);
    const std::int64_t stride = part.row_stride, size = size_of(matrix.type);
    block.rows =
        std::min({block.rows, part.rows - block.row, std::max<std::int64_t>(1, block_elements / stride)});
    held_matrix_ = {};
    block_.resize(static_cast<std::size_t>(block.rows * block.columns * size));
    line_.resize(static_cast<std::size_t>(block.rows * stride * size));
    for (std::int64_t c = 0; c < block.columns; ++c) {
      source_->read(
          part.tensor_of(matrix.index),
          part.first_of(matrix.index) + block.row * stride + (block.column + c) * part.column_stride,
          (block.rows - 1) * stride + 1, line_.data(), matrix.type);
      for (std::int64_t r = 0; r < block.rows; ++r)
        copy_element(line_.data() + r * stride * size, block_.data() + (r * block.columns + c) * size, size);
    }
    held_matrix_ = matrix;
    held_ = block;
  }

  static void copy_element(const std::byte* from, std::byte* to, std::int64_t size) {
    if (size == 2)
      std::memcpy(to, from, 2);
    else if (size == 4)
      std::memcpy(to, from, 4);
    else
      std::memcpy(to, from, static_cast<std::size_t>(size));
  }

  std::map<std::string, TensorPart> parts_;
  mutable std::map<std::pair<std::string, DType>, std::int64_t> sizes_;  ///< what element_size returns
  Matrix held_matrix_;  ///< matrix of the block that is held; without a name: none
  Block held_;
  std::vector<std::byte> block_, line_;
};

}  // namespace

std::unique_ptr<WeightSource> with_parts(std::unique_ptr<WeightSource> files,
                                         std::span<const NamedShape> parameters,
                                         std::span<const TensorPart> parts) {
  return std::make_unique<PartWeights>(std::move(files), parameters, parts);
}

}  // namespace ztrain::checkpoint
