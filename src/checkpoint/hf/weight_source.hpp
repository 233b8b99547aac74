#pragma once
// Internal to checkpoint. Reads weights from a Hugging Face model's folder or a checkpoint.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "base/shape.hpp"
#include "checkpoint/hf/tensor_parts.hpp"

namespace ztrain::checkpoint {

class WeightSource {
 public:
  virtual ~WeightSource() = default;

  /// Returns the shapes of the tensors, by name.
  const std::map<std::string, Shape>& shapes() const { return shapes_; }
  /// Returns whether the model need not have a tensor of this name.
  virtual bool may_be_left(const std::string& name) const = 0;
  /// Returns what to do about a folder that is wrong.
  virtual const char* advice() const = 0;
  /// Returns the bytes of an element as it is stored. Throws Error for a tensor whose elements do not convert
  /// to `to`.
  virtual std::int64_t element_size(const std::string& name, DType to) const = 0;
  /// Reads row-major elements [begin, begin + count) of a tensor, at most block_elements of them, as `to`,
  /// rounded to nearest even. Throws Error that names the file.
  virtual void read(const std::string& name, std::int64_t begin, std::int64_t count, std::byte* data,
                    DType to) = 0;

 protected:
  std::map<std::string, Shape> shapes_;
};

inline constexpr std::int64_t block_elements = std::int64_t{1} << 20;

/// Opens a folder and reads the headers or the index. Throws Error for a folder that is neither, and for
/// broken ones.
std::unique_ptr<WeightSource> open_weights(const std::filesystem::path& folder);

std::unique_ptr<WeightSource> open_safetensors_folder(const std::filesystem::path& folder);
std::unique_ptr<WeightSource> open_checkpoint_weights(const std::filesystem::path& folder);

/// Returns a source whose tensors are the parameters, read as parts of the tensors of `files`, and those
/// tensors under their own names. Reads a transposed parameter by blocks, of which one is held.
std::unique_ptr<WeightSource> with_parts(std::unique_ptr<WeightSource> files,
                                         std::span<const NamedShape> parameters,
                                         std::span<const TensorPart> parts);

}  // namespace ztrain::checkpoint
