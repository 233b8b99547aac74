#pragma once
// Plans a save without communication: which rank writes what, into which dataset of which file. A save calls
// the same functions for its own rank, so its files are the planned ones. Ranks that differ in their shard or
// replica alone have the same part, so one layout for each stage, and for each unequal slice,
// plans any number of ranks.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/format/format.hpp"
#include "layout/layout.hpp"
#include "layout/mesh.hpp"

namespace ztrain::checkpoint {

/// One state of one unit of a rank.
struct StateForm {
  std::string state;
  int unit = 0;
  DType dtype = DType::f32;
  std::int64_t granule = 1;
  bool of_each_copy = false;  ///< as in StateShard
};
std::vector<StateForm> forms_of(std::span<const StateShard> states);

/// Returns the states and parameters that one rank names, with those of all copies. Throws Error if it names
/// two granules for one state.
Catalog catalog_of(const Layout& layout, const MeshShape& mesh, std::span<const StateForm> states);
/// Adds what `other` names to the catalog. Throws Error if both describe one state or parameter differently.
/// The weights of a parameter are elsewhere if they are so for both.
void merge(Catalog& catalog, const Catalog& other);

/// A row without its place in a file.
struct FormRow {
  PieceRow row;
  std::size_t form = 0;         ///< index of the state's form
  std::int64_t flat_begin = 0;  ///< begin of the piece, in elements of its unit's flat range
};

/// Makes the index rows of a save, for ranks that share a layout and the forms of their states.
class PartRows {
 public:
  /// layout and states must outlive this.
  PartRows(const Layout& layout, std::span<const StateForm> states, const Catalog& catalog);

  /// Returns the rows of shards [begin, end) of every unit that is cut over `axes`, as far as the rank at
  /// `place` owns them. A piece that several of these shards hold is one row.
  std::vector<FormRow> of_shards(const Coordinate& place, AxisSet axes, int begin, int end) const;

 private:
  const Layout& layout_;
  std::span<const StateForm> states_;
  std::vector<std::vector<std::int64_t>> state_numbers_;  ///< places in the catalog, by form and copy
  std::vector<std::int64_t> parameter_numbers_;  ///< place in the catalog, by parameter of the layout
};

/// Says which shard file each rank of a save writes.
struct DealtFiles {
  int count = 0;
  std::vector<int> of_rank;  ///< -1: the rank writes nothing
};
/// Deals files out to the ranks that write, node by node. writers is by rank, 0 for ranks that write nothing;
/// nodes is by rank, any numbers. wanted is the number of files; 0: one for each node that writes, as long as
/// these are not more than max_files.
DealtFiles deal_files(const std::vector<std::int64_t>& writers, const std::vector<std::int64_t>& nodes,
                      int wanted);

struct PlannedDataset {
  std::string name;
  DType dtype = DType::f32;
  std::int64_t items = 0;
  std::size_t rows = 0;  ///< number of its pieces
};
/// Sorts the rows of one shard file by their places in it, and sets PieceRow::part and dataset_begin. Returns
/// the file's datasets in the order of their rows. Throws Error if a dataset would have two dtypes.
std::vector<PlannedDataset> lay_out(const Catalog& catalog, std::vector<PieceRow*>& rows);

/// Describes what a rank saves. Ranks that differ in their shard or replica alone have the same part, whose
/// states may be of each copy.
struct SavePart {
  Layout layout;
  std::vector<StateForm> states;
};
/// Returns lines that describe everything of a part on which a save depends.
std::vector<std::string> lines_of(const SavePart& part);

struct PlannedShardFile {
  std::string name;
  std::int64_t bytes = 0;   ///< bytes of its datasets
  std::int64_t pieces = 0;  ///< number of pieces of all its ranks
  std::vector<PlannedDataset> datasets;
};
/// Returns the most bytes that a shard file takes. Datasets begin on pages, and HDF5's description of each is
/// far smaller.
std::int64_t largest_size(std::int64_t bytes, std::int64_t pieces);
/// End of the message about a shard file that is too large.
inline constexpr const char* more_files =
    ", or let more files share the bytes (more ranks, and checkpoint.files up to their number)";

struct SavePlan {
  Catalog catalog;
  std::vector<PlannedShardFile> files;

  std::int64_t bytes() const;
  std::int64_t datasets() const;
};

/// Axes over which parameters may be sliced.
inline constexpr AxisSet slice_axes = Axis::expert | Axis::tensor;
/// Axes along which ranks have different parts.
inline constexpr AxisSet part_axes = slice_axes | Axis::pipeline;

/// Plans the save of all ranks of a mesh. parts is by index over part_axes; nodes and files are as for
/// deal_files. Throws Error that says what disagrees, unless the ranks together save every item of every
/// parameter exactly once, with one shape, granule and dtype.
SavePlan plan_save(const MeshShape& mesh, const std::vector<const SavePart*>& parts,
                   const std::vector<std::int64_t>& nodes, int files);

}  // namespace ztrain::checkpoint
