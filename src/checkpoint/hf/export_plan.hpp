#pragma once
// Internal to checkpoint. Plans which tensors an export writes into which files, and what they are made of.
// Says what an export reads these from.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/format/format.hpp"
#include "checkpoint/hf/export.hpp"
#include "files/safetensors.hpp"

namespace ztrain::checkpoint {

/// The weights that an export reads.
class ExportSource {
 public:
  virtual ~ExportSource() = default;
  virtual const Catalog& catalog() const = 0;
  /// Reads row-major elements [begin, begin + count) of a parameter, at most block_elements of them, as
  /// `dtype`. parameter: its place in the catalog. Throws Error that names the folder.
  virtual void read(std::int64_t parameter, std::int64_t begin, std::int64_t count, std::byte* to,
                    DType dtype) = 0;
};

/// Places in the catalog of a layer's weight and of its adapter: A [rank, k], B [n, rank], and magnitudes
/// [n].
struct AdapterPair {
  std::int64_t weight = 0, a = 0, b = 0;
  std::int64_t magnitude = -1;  ///< -1: it has none
};

/// A matrix of a parameter in a tensor. Element (r, c) of the matrix is element first + r * row_stride +
/// c * column_stride of the tensor.
struct SourcePart {
  std::int64_t parameter = 0;          ///< its place in the catalog
  std::optional<AdapterPair> added{};  ///< adapter that is merged into it
  std::int64_t from = 0;               ///< offset of the matrix in the parameter, in elements
  std::int64_t count = 0, columns = 1;
  std::int64_t first = 0, row_stride = 1, column_stride = 1;
};

/// Source of a tensor.
struct TensorSource {
  std::vector<SourcePart> parts{};  ///< none: the tensor is a constant
  /// Elements that are made together, because those of a part do not lie one after the other; 0: they do.
  std::int64_t unit = 0;
  double value = 0;  ///< of a constant
};

/// A range of tensors that share a file.
struct PlannedFile {
  std::string name;
  std::size_t first = 0, count = 0;
};

struct ExportPlan {
  std::vector<SafeTensor> tensors;  ///< their `begin` is not set
  std::vector<TensorSource> sources;
  std::vector<PlannedFile> files;
  std::int64_t rank = 0;  ///< rank of the adapters; 0: there are none
  std::int64_t bytes = 0;
  std::string adapter_config;  ///< text of adapter_config.json; "": none is written
};

/// Plans an export. Throws Error naming the folder for what cannot be exported.
ExportPlan plan_export(const Catalog& catalog, const std::string& checkpoint, const ExportOptions& options);

}  // namespace ztrain::checkpoint
