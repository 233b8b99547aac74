#pragma once
// Internal to checkpoint. Reads weights from a Hugging Face model's folder or a checkpoint.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.hpp"
#include "base/shape.hpp"
#include "checkpoint/hf/import.hpp"
#include "checkpoint/hf/tensor_parts.hpp"
#include "files/safetensors.hpp"
#include "layout/layout.hpp"

namespace ztrain::checkpoint {

struct ImportOptions;

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

/// Weights that are those of another source but for what a derived class changes.
class WrappedWeights : public WeightSource {
 public:
  explicit WrappedWeights(std::unique_ptr<WeightSource> source) : source_(std::move(source)) {}

  bool may_be_left(const std::string& name) const override { return source_->may_be_left(name); }
  const char* advice() const override { return source_->advice(); }
  std::int64_t element_size(const std::string& name, DType to) const override {
    return source_->element_size(name, to);
  }

 protected:
  std::unique_ptr<WeightSource> source_;
};

inline constexpr std::int64_t block_elements = std::int64_t{1} << 20;

/// Opens a folder and reads the headers or the index. Throws Error for a folder that is neither, and for
/// broken ones. base: as ImportOptions::base.
std::unique_ptr<WeightSource> open_weights(const std::filesystem::path& folder, const std::string& base = "",
                                           WeightValues values = WeightValues::trained);

/// single: name of the file if the folder has one file of tensors.
std::unique_ptr<WeightSource> open_safetensors_folder(const std::filesystem::path& folder,
                                                      const char* single = single_safetensors);
std::unique_ptr<WeightSource> open_checkpoint_weights(const std::filesystem::path& folder,
                                                      const std::string& base, WeightValues values);

/// Opens a folder that holds these parameters, as import_weights does, which says what it throws. The source
/// has them by their names.
std::unique_ptr<WeightSource> open_model_weights(const std::filesystem::path& folder,
                                                 std::span<const ParameterShape> parameters,
                                                 const ImportOptions& options);

/// Returns the weights of PEFT's folder: `base` with its adapters, and with the parameters of the model that
/// it holds instead. Throws Error that names tensors of adapters that are missing, of another shape, or of no
/// parameter.
std::unique_ptr<WeightSource> with_peft(const std::filesystem::path& folder,
                                        std::span<const ParameterShape> parameters,
                                        const config::Architecture* architecture,
                                        std::unique_ptr<WeightSource> base);

/// Returns a source whose tensors are the parameters, read as parts of the tensors of `files`, and those
/// tensors under their own names. Reads a transposed parameter by blocks, of which one is held.
std::unique_ptr<WeightSource> with_parts(std::unique_ptr<WeightSource> files,
                                         std::span<const NamedShape> parameters,
                                         std::span<const TensorPart> parts);

/// Returns a source whose elements of the parameters that are named are what their codes say.
std::unique_ptr<WeightSource> with_codes(std::unique_ptr<WeightSource> source,
                                         const QuantizedNames& quantized);

}  // namespace ztrain::checkpoint
