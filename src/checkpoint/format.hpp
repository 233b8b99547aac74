#pragma once
// A checkpoint on disk, format version 1.
//
//   step_<N>/             complete: it is renamed from step_<N>.tmp after everything in it was synced
//     shard_0000.h5 ...   the bytes
//     index.h5            what lies where
//   step_<N>.tmp/         a save in progress, the remains of one that died, or of a removal that did
//   step_<N>.old/         what a repeated save of step N is about to replace; counts as step_<N> while that
//   is missing
//
// Shard file f serves a contiguous range of the ranks that write. Per (state, unit) it has one contiguous 1-D
// dataset
// "<state>/unit_<u>": the pieces of its ranks, by tensor rank, then in flat order, without padding. A dataset
// that would exceed 2^31 elements goes on in "<state>/unit_<u>.<part>", because HDF5 1.10 stores selections
// in 32 bits. Little endian; bf16 is a custom float (sign 1, exponent 8 with bias 127, mantissa 7).
//
// index.h5:
//   attribute "format_version"  "1"
//   attribute "metadata"        the JSON text that the saver gave
//   attribute "tables"          JSON: "states" [name], "parameters" [{name, shape}], "dtypes" [name],
//                               "files" [{name, bytes}], "block_bytes"
//   "ztrain/pieces"             int64 [pieces, 14], columns as PieceRow, sorted by its first six
//   "ztrain/checksums"          int64 [blocks]: the bits of XXH3-64 of each block of block_bytes of each
//   piece (the last
//                               block of a piece may be short), a piece's blocks one after the other
//   "<state>/<parameter>"       virtual dataset of the logical shape (a scalar: [1]), over the shard files by
//   name
//                               relative to index.h5, for people and tools. ztrain itself never reads through
//                               these.
//
// A virtual dataset hides failures: where a shard file is missing, or truncated so that HDF5 refuses it, HDF5
// reports success and gives the fill value, which is NaN here. (Seen with 1.10.8: fp32 and bf16 both read as
// NaN, not zero.)

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "base/shape.hpp"
#include "layout/layout.hpp"

namespace ztrain::checkpoint {

inline constexpr int format_version = 1;
inline constexpr std::int64_t checksum_block = std::int64_t{1}
                                               << 20;  ///< bytes; a multiple of every element size
inline constexpr std::int64_t largest_dataset = std::int64_t{1} << 31;  ///< elements
inline constexpr const char* index_name = "index.h5";

/// A run of elements of one tensor-parallel slice of one parameter, as one rank wrote it. One line of
/// "ztrain/pieces".
struct PieceRow {
  std::int64_t state = 0, parameter = 0;  ///< indices into the tables
  std::int64_t tensor_dim = -1, tensor_parts = 1,
               tensor_index = 0;                       ///< which slice; dim -1: the whole tensor
  std::int64_t slice_begin = 0, count = 0;             ///< row-major elements of the slice
  std::int64_t dtype = 0;                              ///< index into the tables
  std::int64_t file = 0, byte_offset = 0;              ///< where the bytes are
  std::int64_t unit = 0, part = 0, dataset_begin = 0;  ///< the same place as HDF5 names it
  std::int64_t first_checksum = 0;                     ///< of this piece's ceil(bytes / block) checksums

  TensorSlice slice() const { return {static_cast<int>(tensor_dim), static_cast<int>(tensor_parts)}; }
  DType type() const { return static_cast<DType>(dtype); }
  std::int64_t bytes() const { return count * size_of(type()); }
};
inline constexpr std::int64_t piece_columns = 14;
static_assert(sizeof(PieceRow) == piece_columns * sizeof(std::int64_t));

struct ParameterEntry {
  std::string name;
  Shape shape;
  bool operator==(const ParameterEntry&) const = default;
};

struct FileEntry {
  std::string name;
  std::int64_t bytes = 0;
};

/// What the rows' numbers mean.
struct Catalog {
  std::vector<std::string> states;
  std::vector<ParameterEntry> parameters;
};

struct Index {
  Catalog catalog;
  std::vector<FileEntry> files;
  std::vector<PieceRow> pieces;  ///< sorted by state, parameter, slice, slice_begin
  std::vector<std::int64_t> checksums;
};

std::string file_name(std::int64_t file);  ///< "shard_0003.h5"
std::string dataset_name(const std::string& state, const PieceRow& piece);

/// Order of "ztrain/pieces".
bool piece_before(const PieceRow& a, const PieceRow& b);

/// Throws Error unless the pieces (sorted) hold every element of every parameter exactly once, in one dtype
/// per state and parameter.
void require_complete(const Index& index);

/// Writes a file that holds everything of the index and the virtual datasets; syncs nothing.
void write_index(const std::filesystem::path& path, const Index& index, const std::string& metadata);
Index read_index(const std::filesystem::path& path);
std::string read_metadata_text(const std::filesystem::path& path);

}  // namespace ztrain::checkpoint
