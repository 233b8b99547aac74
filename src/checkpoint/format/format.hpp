#pragma once
// A checkpoint on disk, of format version 8 if each copy of a shard has values of its own in some state, else
// of version 7 if an optimizer steps some parameters by whole matrices, else of version 6 if frozen
// parameters are elsewhere, else of version 5. Versions 1 to 4 are the same without frozen parameters,
// without states of granules above 1, without parts of a parameter that differ in size, and without checksums
// of frames and of metadata.json.
//
//   step_<N>/             complete: it is renamed from step_<N>.tmp after everything in it was synced
//     shard_0000.h5 ...   the bytes
//     index.h5            what lies where
//     metadata.json       the metadata once more, for those who do not read HDF5, and the checksums of
//                         index.h5 and of itself (metadata_file.hpp)
//   step_<N>.tmp/         a save in progress, the remains of one that died, or of a removal that did
//   step_<N>.old/         what a repeated save of step N is about to replace; counts as step_<N> while that
//   is missing
//
// Shard file f serves a contiguous range of the ranks that write. Per (state, unit) it has one contiguous 1-D
// dataset
// "<state>/unit_<u>": the pieces of its ranks, by tensor rank, then in flat order, without padding. <u> is
// the place of the unit's first parameter in the table of parameters, so it names the same unit on every
// rank. In checkpoints of older programs it may be the unit's number on its stage of a pipeline. Readers take
// it as a part of a name. A dataset that would exceed 2^31 items goes on in "<state>/unit_<u>.<part>",
// because HDF5 1.10 stores selections in 32 bits. Little endian; bf16 is a custom float (sign 1, exponent 8
// with bias 127, mantissa 7).
//
// What is counted are a state's items. A state has a granule g: one item for each element (g = 1), or for
// each block of g elements of a tensor-parallel slice, whose last block may be short. g divides the quantum
// on which shards are cut, so a block belongs to one rank.
//
// index.h5:
//   attribute "format_version"  "5", "6", "7" or "8"
//   attribute "metadata"        the JSON text that the saver gave
//   attribute "tables"          JSON: "states" [name], "granules" [elements per item of each state],
//                               "parameters" [{name, shape, frozen: true where it is, elsewhere: true where
//                               the checkpoint does not hold its weights,
//                               by_matrix: true if the optimizer steps whole matrices of it,
//                               copies: number of copies that have values of their own (copy_name),
//                               begins: where its slices begin, and last where they end, if they differ in
//                               size}],
//                               "dtypes" [name], "files" [{name, bytes, frame: the checksum of those bytes
//                               that no piece has (metadata_file.hpp)}], "block_bytes"
//   "ztrain/pieces"             int64 [pieces, 14], columns as PieceRow, sorted by its first six
//   "ztrain/checksums"          int64 [blocks]: the bits of XXH3-64 of each block of block_bytes of a piece
//                               (the last of a piece may be short), a piece's blocks one after the other
//   "<state>/<parameter>"       virtual dataset over the shard files by name relative to index.h5, for people
//                               and tools. Its shape is stored_form(): the logical one (a scalar: [1]) at
//                               granule 1, else [items], or [slices, items of a slice]
//                               where they are as many in each. ztrain itself never
//                               reads through these.
//
// A virtual dataset hides failures: where a shard file is missing, or truncated so that HDF5 refuses it, HDF5
// reports success and gives the fill value, which is NaN here, and 0 for integers. (Seen with 1.10.8: fp32
// and bf16 both read as NaN, not zero.)

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "base/shape.hpp"
#include "files/hdf5_file.hpp"
#include "layout/layout.hpp"

namespace ztrain::checkpoint {

inline constexpr int newest_version = 8;
inline constexpr std::int64_t checksum_block = std::int64_t{1}
                                               << 20;  ///< bytes; a multiple of every element size
inline constexpr std::int64_t largest_dataset = std::int64_t{1} << 31;  ///< items
inline constexpr const char* index_name = "index.h5";

/// A run of items of one tensor-parallel slice of one parameter, as one rank wrote it. One line of
/// "ztrain/pieces".
struct PieceRow {
  std::int64_t state = 0, parameter = 0;  ///< indices into the tables
  /// Index of the slice; dim -1: the whole tensor.
  std::int64_t tensor_dim = -1, tensor_parts = 1, tensor_index = 0;
  std::int64_t slice_begin = 0, count = 0;             ///< items of the slice, which is row-major
  std::int64_t dtype = 0;                              ///< index into the tables
  std::int64_t file = 0, byte_offset = 0;              ///< place of the bytes
  std::int64_t unit = 0, part = 0, dataset_begin = 0;  ///< the same place as HDF5 names it
  std::int64_t first_checksum = 0;  ///< first of this piece's ceil(bytes / block) checksums

  DType type() const { return static_cast<DType>(dtype); }
  std::int64_t bytes() const { return count * size_of(type()); }
};
inline constexpr std::int64_t piece_columns = 14;
static_assert(sizeof(PieceRow) == piece_columns * sizeof(std::int64_t));

struct ParameterEntry {
  std::string name;
  Shape shape;
  bool frozen = false;                 ///< whether it is not trained, so that "model" is its only state
  std::vector<std::int64_t> begins{};  ///< begins of slices, as TensorSlice::begins, of all its pieces
  bool elsewhere = false;              ///< whether it is frozen and the checkpoint does not hold its weights
  /// Whether the optimizer steps whole matrices of it. Such parameters have states that others have not.
  bool by_matrix = false;
  /// Number of copies of its shards, each of which has values of its own in some state. 0: no state is such.
  std::int64_t copies = 0;
  bool operator==(const ParameterEntry&) const = default;
};

struct FileEntry {
  std::string name;
  std::int64_t bytes = 0;
  std::string frame = {};  ///< checksum of its frame (metadata_file.hpp); "": the version did not have it
};

struct StateEntry {
  std::string name;
  std::int64_t granule = 1;  ///< elements per item
};

/// Tables that give the rows' numbers their meaning.
struct Catalog {
  std::vector<StateEntry> states;
  std::vector<ParameterEntry> parameters;
};

struct Index {
  Catalog catalog;
  std::vector<FileEntry> files;
  std::vector<PieceRow> pieces;  ///< sorted by state, parameter, slice, slice_begin
  std::vector<std::int64_t> checksums;
};

std::string file_name(std::int64_t file);  ///< returns "shard_0003.h5"
std::string dataset_name(const std::string& state, const PieceRow& piece);

/// Returns the name of the state that holds the values of one copy of each shard: "optimizer/error.copy1".
std::string copy_name(const std::string& state, std::int64_t copy);
/// Returns the number of the copy in such a name, or -1 for the name of another state.
std::int64_t copy_in(const std::string& name);

/// Returns the slices of the parameter of which the piece is one.
TensorSlice slices_of(const ParameterEntry& parameter, const PieceRow& piece);

/// Form of one state of one parameter as a tensor, and how it is cut into slices.
struct StoredForm {
  Shape shape;
  TensorSlice slice;
  /// Return the items of a slice, and of those before it.
  std::int64_t items(int index) const { return elements(slice.part_of(shape, index)); }
  std::int64_t items_before(int index) const;
};
StoredForm stored_form(const ParameterEntry& parameter, std::int64_t granule, const TensorSlice& slice);

/// Throws Error unless blocks of `granule` elements fit between the cuts of any layout.
void require_granule(const std::string& state, std::int64_t granule);

/// Orders rows as "ztrain/pieces" does.
bool piece_before(const PieceRow& a, const PieceRow& b);

inline constexpr const char *weights_state = "model", *averages_state = "optimizer/ema";

/// Throws Error unless the sorted pieces hold every item of every state of every parameter exactly once, in
/// one dtype per state and parameter. Frozen parameters have the weights alone, or nothing if these are
/// elsewhere.
void require_complete(const Index& index);

/// Writes a file that holds the index and the virtual datasets. Does not sync.
void write_index(const std::filesystem::path& path, const Index& index, const std::string& metadata,
                 const char* key = "checkpoint.folder");
/// Reads an index. Throws Error naming the file, also if the tables contradict each other or the sizes of the
/// files.
Index read_index(const std::filesystem::path& path);
std::string read_metadata_text(const std::filesystem::path& path);

// Converts flat row-major ranges of a tensor to boxes, which HDF5 takes as selections.

/// Returns elements [begin, end) of a row-major tensor with N dims, as at most 2 N - 1 disjoint boxes in
/// row-major order. A scalar counts as one dim of extent 1.
std::vector<Box> boxes_of_range(const Shape& shape, std::int64_t begin, std::int64_t end);

/// Does the same for a range of the slice that tensor rank `index` holds, in coordinates of the whole tensor.
std::vector<Box> boxes_of_slice(const Shape& shape, const TensorSlice& slice, int index, std::int64_t begin,
                                std::int64_t end);

}  // namespace ztrain::checkpoint
