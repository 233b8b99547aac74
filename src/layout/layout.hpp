#pragma once
// Where every parameter element lives: logical tensor -> a rank's slice -> flat range of its unit -> shard,
// and back. Pure arithmetic that initialisation, optimizer, norm, checkpoint, import and byte counts
// all share.
//
// A unit is what is gathered at once. Its parameters are laid one after the other in a flat range; each
// starts on a multiple of the quantum and so do shard cuts, so nothing "must divide". Padding holds zeros and
// has no logical index. Unless cuts leave rows or matrices whole, flat positions of parameters do not depend
// on the number of shards: only the padding at the end does.

#include <cstdint>
#include <string>
#include <vector>

#include "base/axes.hpp"
#include "base/shape.hpp"
#include "layout/mesh.hpp"

namespace ztrain {

inline constexpr std::int64_t quantum = 256;  ///< elements

/// What layout needs to know of a parameter.
struct ParameterShape {
  std::string name;  ///< Hugging Face name
  Shape shape;       ///< logical, whole
  TensorSlice slice;
  int unit = 0;       ///< -1: other stages of the pipeline have it, and this rank has nothing of it
  bool decay = true;  ///< takes weight decay
  bool trainable = true;
  bool adapter = false;    ///< no model that is read has it: it is drawn
  int other_rank = -1;     ///< of the pipeline, that has the same part of it; -1: none
  int joined = -1;         ///< the first of the parameters that it follows without a gap; -1: none
  bool quantized = false;  ///< it is kept in 4 or 8 bits, so no checkpoint holds it
  bool by_matrix = false;  ///< the optimizer steps whole matrices of it
};

/// One parameter's place in its unit's flat range. Offsets and counts in elements.
struct Segment {
  int parameter = 0;
  std::int64_t begin = 0;
  std::int64_t count = 0;  ///< elements of the slice
};

/// How the state of a unit is cut into shards, and over which ranks its gradients are summed.
struct UnitCut {
  int shards = 1;                    ///< number of ranks over shard_axes
  AxisSet shard_axes = state_axes;   ///< ranks that differ in other axes of tokens hold the same shard
  AxisSet reduce_axes = token_axes;  ///< each rank of these has a term of the gradients
  Whole whole = Whole::element;      ///< what no cut between shards divides
};

/// The flat range of one unit, cut into `shards` equal shards.
struct FlatUnit : UnitCut {
  int unit = 0;
  std::vector<Segment> segments;
  std::int64_t shard_elements = 0;  ///< multiple of the quantum
  /// elements() of a rank that has the largest part of every parameter. Ranks that share layers may have
  /// parts of different sizes; what they must decide alike, they decide by this number.
  std::int64_t largest_elements = 0;
  std::int64_t elements() const { return shard_elements * shards; }
  /// The first element of the shard of the rank at this place.
  std::int64_t shard_begin(const Coordinate& at) const { return at.index_in(shard_axes) * shard_elements; }
};

/// A run of one parameter inside some flat range [begin, end): all in elements.
struct Piece {
  int parameter = 0;
  std::int64_t flat_begin = 0;   ///< in the unit's flat range
  std::int64_t slice_begin = 0;  ///< row-major index within the slice
  std::int64_t count = 0;
};

/// A contiguous run in both the slice and the logical tensor. Indices are row-major elements.
struct LogicalRun {
  std::int64_t slice_begin = 0;
  std::int64_t logical_begin = 0;
  std::int64_t count = 0;
};

/// The logical index of element e of a rank's slice is (e / run) * stride + offset + e % run: for every index
/// of the outer dims the slice has one run out of each stride.
struct SliceIndex {
  std::int64_t run = 1, stride = 1, offset = 0;
};
SliceIndex slice_index(const Shape& shape, const TensorSlice& slice, int index);
/// Returns which of the slices the rank at this place has; 0 if it has the tensor whole.
inline int part_of(const TensorSlice& slice, const Coordinate& at) {
  return slice.whole() ? 0 : at.index_in(slice.axes);
}

class Layout {
 public:
  /// The place of the rank matters only for slices that are not equal. Throws Error if a dim that is cut into
  /// equal parts does not divide, naming the parameter.
  Layout(std::vector<ParameterShape> parameters, const std::vector<UnitCut>& units,
         const Coordinate& at = Coordinate({}, 0));

  const std::vector<ParameterShape>& parameters() const { return parameters_; }
  const std::vector<FlatUnit>& units() const { return units_; }
  const FlatUnit& unit(int u) const { return units_[static_cast<std::size_t>(u)]; }
  const Segment& segment_of(int parameter) const;

  /// Shape of the slice that this rank holds.
  Shape slice_shape(int parameter) const;
  /// The parameter runs in [begin, end) of a unit's flat range, in flat order.
  std::vector<Piece> pieces(int unit, std::int64_t begin, std::int64_t end) const;
  /// The parameter runs in the shard of the rank at this place.
  std::vector<Piece> pieces(int unit, const Coordinate& at) const;
  /// Runs of elements [begin, begin + count) of one of a parameter's slices (part_of).
  std::vector<LogicalRun> logical_runs(int parameter, int slice, std::int64_t begin,
                                       std::int64_t count) const;

  /// The number of logical parameters elements, padding not counted; and of those that are trained.
  std::int64_t parameter_count() const;
  std::int64_t trained_count() const;
  /// The number of elements that checkpoints hold: not those in 4 or 8 bits.
  std::int64_t saved_count() const;

 private:
  void lay_out(FlatUnit& unit, const std::vector<int>& members);

  std::vector<ParameterShape> parameters_;
  Coordinate at_;
  std::vector<FlatUnit> units_;
  std::vector<Segment> by_parameter_;
};

/// The axes over which units are cut, each set once, in the order of the units.
std::vector<AxisSet> axes_of_shards(const Layout& layout);

/// True where this rank is the one that speaks for the elements of a parameter it holds in its shard of a
/// unit: the copies over the axes of tokens and over `tensor` that cut neither the unit nor the parameter
/// (and over `pipeline`, for one that two stages use) are left to the first of them. The only rule of
/// ownership: norm, checkpoint and export use it. Ranks that differ in `own` alone have values of their own,
/// and each speaks for its values.
bool owns(const Coordinate& at, const UnitCut& unit, const ParameterShape& parameter, AxisSet own = {});
/// Whether the rank speaks for anything: a copy over axes that cut no state does not.
bool owns(const Coordinate& at);
/// The axes over which ranks have copies of a parameter's elements in a shard of a unit, `pipeline` aside.
AxisSet copied_over(AxisSet shard_axes, const TensorSlice& slice);
/// The axes of tokens among them: the ranks over these have values of their own in a state of each copy.
inline AxisSet values_over(AxisSet shard_axes, const TensorSlice& slice) {
  return copied_over(shard_axes, slice).without(Axis::tensor);
}

}  // namespace ztrain
