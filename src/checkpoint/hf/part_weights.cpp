#include <algorithm>
#include <cstring>
#include <utility>

#include "checkpoint/hf/weight_source.hpp"

namespace ztrain::checkpoint {
namespace {

/// Parameters that are parts of the tensors of a folder.
class PartWeights : public WeightSource {
 public:
  PartWeights(std::unique_ptr<WeightSource> files, std::span<const NamedShape> parameters,
              std::span<const TensorPart> parts)
      : files_(std::move(files)) {
    for (const auto& [name, shape] : files_->shapes()) add(name, shape, {name, shape});
    for (std::size_t i = 0; i < parts.size(); ++i)
      if (files_->shapes().contains(parts[i].tensor)) add(parameters[i].name, parameters[i].shape, parts[i]);
  }

  bool may_be_left(const std::string& name) const override { return files_->may_be_left(name); }
  const char* advice() const override { return files_->advice(); }
  std::int64_t element_size(const std::string& name, DType to) const override {
    return files_->element_size(parts_.at(name).tensor, to);
  }

  void read(const std::string& name, std::int64_t begin, std::int64_t count, std::byte* data,
            DType to) override {
    const TensorPart& part = parts_.at(name);
    if (!part.transposed) {
      const Shape& shape = shapes_.at(name);
      const std::int64_t width = shape.empty() || shape[0] == 0 ? 1 : elements(shape) / shape[0];
      files_->read(part.tensor, part.first * width + begin, count, data, to);
      return;
    }
    const std::int64_t inputs = part.shape[0], size = size_of(to);
    for (std::int64_t done = 0, n = 0; done < count; done += n) {
      const std::int64_t row = (begin + done) / inputs, column = (begin + done) % inputs;
      n = std::min(inputs - column, count - done);
      if (!holds(name, to, row, column, n)) {
        // A call for part of one row reads a slice of inputs. Later calls read that slice of more rows.
        const bool sliced = n == count && n < inputs;
        const std::int64_t last = (begin + count - 1) / inputs;
        hold(name, to,
             {row, sliced ? std::max<std::int64_t>(1, block_elements / n) : last + 1 - row,
              sliced ? column : 0, sliced ? n : inputs});
      }
      const std::int64_t at = (row - held_.row) * held_.columns + column - held_.column;
      std::memcpy(data + done * size, block_.data() + at * size, static_cast<std::size_t>(n * size));
    }
  }

 private:
  /// Rows and columns of a parameter.
  struct Block {
    std::int64_t row = 0, rows = 0, column = 0, columns = 0;
  };

  void add(const std::string& name, const Shape& shape, TensorPart part) {
    shapes_[name] = shape;
    parts_.insert_or_assign(name, std::move(part));
  }

  bool holds(const std::string& name, DType type, std::int64_t row, std::int64_t column,
             std::int64_t count) const {
    return held_name_ == name && held_type_ == type && row >= held_.row && row < held_.row + held_.rows &&
           column >= held_.column && column + count <= held_.column + held_.columns;
  }

  /// Reads a block of a transposed parameter. The file has the rows as columns.
  void hold(const std::string& name, DType type, Block block) {
    const TensorPart& part = parts_.at(name);
    const std::int64_t outputs = part.shape[1], size = size_of(type);
    block.rows = std::min(block.rows, shapes_.at(name)[0] - block.row);
    held_name_ = "";
    block_.resize(static_cast<std::size_t>(block.rows * block.columns * size));
    line_.resize(static_cast<std::size_t>(block.rows * size));
    for (std::int64_t c = 0; c < block.columns; ++c) {
      files_->read(part.tensor, (block.column + c) * outputs + part.first + block.row, block.rows,
                   line_.data(), type);
      for (std::int64_t r = 0; r < block.rows; ++r)
        copy_element(line_.data() + r * size, block_.data() + (r * block.columns + c) * size, size);
    }
    held_name_ = name;
    held_type_ = type;
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

  std::unique_ptr<WeightSource> files_;
  std::map<std::string, TensorPart> parts_;
  std::string held_name_;  ///< parameter of the block that is held; "": none
  DType held_type_ = DType::f32;
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
