#include "layout/layout.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.hpp"

namespace ztrain {

namespace {

/// Parameters that follow one another, each on a multiple of the quantum, and where a shard may end among
/// them: on multiples of `granule` from the first.
struct Item {
  std::vector<std::int64_t> counts;  ///< elements, by parameter
  std::int64_t count = 0;            ///< to the end of the last
  std::int64_t granule = quantum;

  void add(std::int64_t elements) {
    count = round_up(count, quantum) + elements;
    counts.push_back(elements);
  }
};

std::int64_t granule_of(const Shape& shape, Whole whole) {
  if (whole < Whole::row || shape.size() < 2) return quantum;
  const std::int64_t row = shape.back(), rows = whole == Whole::matrix ? shape[shape.size() - 2] : 1;
  return std::max<std::int64_t>(1, row * rows);
}

/// shapes: by member. What is joined is one item; where its parameters do not have equal rows, or matrices
/// are left whole, it lies in one shard.
std::vector<Item> items_of(const std::vector<int>& members, const std::vector<Shape>& shapes, Whole whole,
                           const std::vector<ParameterShape>& parameters) {
  std::vector<Item> items;
  int last = -1;
  for (std::size_t m = 0; m < members.size(); ++m) {
    const int joined = parameters[static_cast<std::size_t>(members[m])].joined;
    const int first = joined < 0 ? members[m] : joined;
    const std::int64_t granule = granule_of(shapes[m], whole);
    const bool alone = std::exchange(last, first) != first;
    if (alone) items.push_back({.counts = {}, .granule = granule});
    Item& item = items.back();
    item.add(elements(shapes[m]));
    if (!alone && (whole == Whole::matrix || item.granule != granule)) item.granule = item.count;
  }
  return items;
}

/// The first place from `begin` on where no shard of this size ends within a granule of the item, or nothing.
std::optional<std::int64_t> place_of(const Item& item, std::int64_t begin, std::int64_t shard) {
  if (item.count == 0) return begin;
  for (const bool again : {true, false}) {
    const std::int64_t cut = (begin / shard + 1) * shard, step = std::lcm(item.granule, quantum);
    if (begin + item.count <= cut) return begin;
    const std::int64_t before = (cut - begin) / step * step, behind = item.count - before;
    if (before > 0 && (behind <= shard || shard % item.granule == 0)) return cut - before;
    if (again) begin = cut;
  }
  return std::nullopt;
}

bool fits(const std::vector<Item>& items, std::int64_t shard, int shards) {
  std::int64_t end = 0;
  for (const Item& item : items) {
    const auto begin = place_of(item, round_up(end, quantum), shard);
    if (!begin) return false;
    end = *begin + item.count;
  }
  return end <= shard * shards;
}

/// The elements of each of so many shards: the fewest multiples of the step that hold all items, as far as
/// halving finds them.
std::int64_t shard_size(const std::vector<Item>& items, int shards, std::int64_t step) {
  std::int64_t all = 0;
  for (const Item& item : items) all += round_up(item.count, quantum);
  std::int64_t least = round_up(ceil_div(all, shards), step), most = round_up(all, step);
  if (fits(items, least, shards)) return least;
  while (least < most) {
    const std::int64_t middle = (least + most) / 2 / step * step;
    fits(items, middle, shards) ? most = middle : least = middle + step;
  }
  return most;
}

/// The same for any step. Shards of whole rows are tried too, since items may then go on over many of them.
std::int64_t shard_size(const std::vector<Item>& items, int shards) {
  std::int64_t size = shard_size(items, shards, quantum);
  for (std::int64_t rows = quantum; const Item& item : items) {
    if (item.granule >= item.count || rows > size) continue;
    const std::int64_t step = std::lcm(rows, item.granule);
    if (step == rows) continue;
    rows = step;
    size = std::min(size, shard_size(items, shards, rows));
  }
  return size;
}

}  // namespace

Layout::Layout(std::vector<ParameterShape> parameters, const std::vector<UnitCut>& units,
               const Coordinate& at)
    : parameters_(std::move(parameters)), at_(at) {
  by_parameter_.resize(parameters_.size());
  std::vector<std::vector<int>> members(units.size());
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    const ParameterShape& parameter = parameters_[p];
    const TensorSlice& slice = parameter.slice;
    REQUIRE(slice.whole() || !slice.begins.empty() ||
                parameter.shape[static_cast<std::size_t>(slice.dim)] % slice.parts == 0,
            "{}: dim {} of {} does not divide into {} slices over the {} axis", parameter.name, slice.dim,
            to_string(parameter.shape), slice.parts, to_string(slice.axes));
    by_parameter_[p] = {static_cast<int>(p), 0, 0};
    if (parameter.unit >= 0) members[static_cast<std::size_t>(parameter.unit)].push_back(static_cast<int>(p));
  }
  for (std::size_t u = 0; u < units.size(); ++u) {
    units_.push_back({units[u], static_cast<int>(u), {}});
    lay_out(units_.back(), members[u]);
  }
}

void Layout::lay_out(FlatUnit& unit, const std::vector<int>& members) {
  std::vector<Shape> own, largest;
  for (const int p : members) {
    const ParameterShape& parameter = parameters_[static_cast<std::size_t>(p)];
    own.push_back(slice_shape(p));
    largest.push_back(parameter.slice.largest_part_of(parameter.shape));
  }
  const std::vector<Item> items = items_of(members, own, unit.whole, parameters_);
  unit.shard_elements = shard_size(items, unit.shards);
  unit.largest_elements =
      shard_size(items_of(members, largest, unit.whole, parameters_), unit.shards) * unit.shards;
  auto member = members.begin();
  std::int64_t end = 0;
  for (const Item& item : items) {
    end = *place_of(item, round_up(end, quantum), unit.shard_elements);
    for (const std::int64_t count : item.counts) {
      end = round_up(end, quantum);
      const Segment segment{*member++, end, count};
      end += count;
      unit.segments.push_back(segment);
      by_parameter_[static_cast<std::size_t>(segment.parameter)] = segment;
    }
  }
}

const Segment& Layout::segment_of(int parameter) const {
  return by_parameter_[static_cast<std::size_t>(parameter)];
}

Shape Layout::slice_shape(int parameter) const {
  const ParameterShape& p = parameters_[static_cast<std::size_t>(parameter)];
  return p.slice.part_of(p.shape, part_of(p.slice, at_));
}

std::vector<Piece> Layout::pieces(int unit, std::int64_t begin, std::int64_t end) const {
  std::vector<Piece> found;
  for (const Segment& s : this->unit(unit).segments) {
    const std::int64_t from = std::max(begin, s.begin), to = std::min(end, s.begin + s.count);
    if (from < to) found.push_back({s.parameter, from, from - s.begin, to - from});
  }
  return found;
}

std::vector<Piece> Layout::pieces(int unit, const Coordinate& at) const {
  const std::int64_t begin = this->unit(unit).shard_begin(at);
  return pieces(unit, begin, begin + this->unit(unit).shard_elements);
}

std::vector<LogicalRun> Layout::logical_runs(int parameter, int slice, std::int64_t begin,
                                             std::int64_t count) const {
  const ParameterShape& p = parameters_[static_cast<std::size_t>(parameter)];
  const SliceIndex index = slice_index(p.shape, p.slice, slice);
  if (p.slice.whole()) return {{begin, begin, count}};
  std::vector<LogicalRun> runs;
  for (std::int64_t at = begin; at < begin + count;) {
    const std::int64_t outer = at / index.run, inner = at % index.run;
    const std::int64_t n = std::min(index.run - inner, begin + count - at);
    runs.push_back({at, outer * index.stride + index.offset + inner, n});
    at += n;
  }
  return runs;
}

SliceIndex slice_index(const Shape& shape, const TensorSlice& slice, int index) {
  if (slice.whole()) return {};
  const auto dim = static_cast<std::size_t>(slice.dim);
  std::int64_t inner = 1;
  for (std::size_t d = dim + 1; d < shape.size(); ++d) inner *= shape[d];
  const std::int64_t begin = slice.begin(shape[dim], index);
  const std::int64_t rows = slice.begin(shape[dim], index + 1) - begin;
  return {std::max<std::int64_t>(1, rows * inner), shape[dim] * inner, begin * inner};
}

std::int64_t Layout::parameter_count() const {
  std::int64_t n = 0;
  for (const auto& p : parameters_) n += ztrain::elements(p.shape);
  return n;
}

std::int64_t Layout::saved_count() const {
  std::int64_t n = 0;
  for (const auto& p : parameters_) n += p.quantized ? 0 : ztrain::elements(p.shape);
  return n;
}

std::int64_t Layout::trained_count() const {
  std::int64_t n = 0;
  for (const auto& p : parameters_) n += p.trainable ? ztrain::elements(p.shape) : 0;
  return n;
}

std::vector<AxisSet> axes_of_shards(const Layout& layout) {
  std::vector<AxisSet> all;
  for (const FlatUnit& unit : layout.units())
    if (std::ranges::find(all, unit.shard_axes) == all.end()) all.push_back(unit.shard_axes);
  return all;
}

bool owns(const Coordinate& at) {
  return at.index_in(token_axes.without(state_axes)) == 0;
}

AxisSet copied_over(AxisSet shard_axes, const TensorSlice& slice) {
  const AxisSet axes = token_axes.without(shard_axes) | Axis::tensor;
  return slice.whole() ? axes : axes.without(slice.axes);
}

bool owns(const Coordinate& at, const UnitCut& unit, const ParameterShape& parameter, AxisSet own) {
  const bool first_stage = parameter.other_rank < 0 || at[Axis::pipeline] < parameter.other_rank;
  return first_stage && at.index_in(copied_over(unit.shard_axes, parameter.slice).without(own)) == 0;
}

}  // namespace ztrain
