#pragma once
// Safetensors files, in which Hugging Face models are kept. A file begins with 8 bytes, the little-endian
// length of its header. The header is JSON: {"name": {"dtype": "BF16", "shape": [2, 3], "data_offsets":
// [begin, end]}, ...}, with offsets counted from the end of the header, and "__metadata__", strings by name.
// Then follow the bytes of the tensors, row-major, little-endian, without gaps.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.hpp"
#include "base/shape.hpp"
#include "files/posix_file.hpp"

namespace ztrain {

inline constexpr std::int64_t largest_safetensors_header = 100'000'000;  ///< bytes; the format's limit

struct SafeTensor {
  std::string name;
  std::string dtype_name;      ///< name in the file, such as "BF16"
  std::optional<DType> dtype;  ///< empty for a type that ztrain lacks
  Shape shape;
  std::int64_t begin = 0, bytes = 0;  ///< begin is the offset in the file
};

/// Returns the tensors of a header, in the order of their bytes. The data begin at data_begin in the file and
/// have data_bytes. For an invalid header throws Error that begins with `file`: it is not JSON, is nested
/// deeper than the format, has a name twice, unknown dtypes, negative or overflowing shapes, or bytes that
/// are not shape times dtype, lie outside the file, overlap or leave gaps.
std::vector<SafeTensor> parse_safetensors(std::string_view header, std::int64_t data_begin,
                                          std::int64_t data_bytes, const std::string& file);

/// Returns the tensors of a file. Also throws Error if the file is shorter than it says.
std::vector<SafeTensor> read_safetensors(const PosixFile& file);

/// Returns the first bytes of a file that holds these tensors in this order, up to the first byte of data;
/// `begin` is not read. Throws Error for a dtype that the format lacks.
std::string safetensors_header(std::span<const SafeTensor> tensors);

/// Returns the format's name of a dtype, such as "BF16".
std::string safetensors_dtype(DType dtype);

/// Returns the file of a folder that holds each tensor, from the text of its model.safetensors.index.json.
/// Throws Error that begins with `file`, also for names that lead out of the folder.
std::map<std::string, std::string> parse_safetensors_index(std::string_view text, const std::string& file);

/// Returns the text of such a file. total_bytes is the size of all tensors.
std::string safetensors_index(const std::map<std::string, std::string>& file_of, std::int64_t total_bytes);

inline constexpr const char* single_safetensors = "model.safetensors";
inline constexpr const char* safetensors_index_name = "model.safetensors.index.json";

}  // namespace ztrain
