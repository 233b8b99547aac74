#include "layout/layout.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace ztrain {

Layout::Layout(std::vector<ParameterShape> parameters, int units, int shards, int tensor_index)
    : parameters_(std::move(parameters)), tensor_index_(tensor_index) {
  units_.resize(static_cast<std::size_t>(units));
  by_parameter_.resize(parameters_.size());
  std::vector<std::int64_t> end(units_.size(), 0), largest(units_.size(), 0);
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    const ParameterShape& parameter = parameters_[p];
    const TensorSlice& slice = parameter.slice;
    REQUIRE(slice.whole() || !slice.begins.empty() ||
                parameter.shape[static_cast<std::size_t>(slice.dim)] % slice.parts == 0,
            "{}: dim {} of {} does not divide into {} slices over the tensor axis", parameter.name, slice.dim,
            to_string(parameter.shape), slice.parts);
    by_parameter_[p] = {static_cast<int>(p), 0, 0};
    if (parameter.unit < 0) continue;
    const auto u = static_cast<std::size_t>(parameter.unit);
    const Segment segment{static_cast<int>(p), end[u], ztrain::elements(slice_shape(static_cast<int>(p)))};
    end[u] = round_up(segment.begin + segment.count, quantum);
    largest[u] += round_up(ztrain::elements(slice.largest_part_of(parameter.shape)), quantum);
    units_[u].segments.push_back(segment);
    by_parameter_[p] = segment;
  }
  for (std::size_t u = 0; u < units_.size(); ++u) {
    units_[u].unit = static_cast<int>(u);
    units_[u].shards = shards;
    units_[u].shard_elements = round_up(ceil_div(end[u], shards), quantum);
    units_[u].largest_elements = round_up(ceil_div(largest[u], shards), quantum) * shards;
  }
}

const Segment& Layout::segment_of(int parameter) const {
  return by_parameter_[static_cast<std::size_t>(parameter)];
}

Shape Layout::slice_shape(int parameter) const {
  const ParameterShape& p = parameters_[static_cast<std::size_t>(parameter)];
  return p.slice.part_of(p.shape, tensor_index_);
}

std::vector<Piece> Layout::pieces(int unit, std::int64_t begin, std::int64_t end) const {
  std::vector<Piece> found;
  for (const Segment& s : this->unit(unit).segments) {
    const std::int64_t from = std::max(begin, s.begin), to = std::min(end, s.begin + s.count);
    if (from < to) found.push_back({s.parameter, from, from - s.begin, to - from});
  }
  return found;
}

std::vector<LogicalRun> Layout::logical_runs(int parameter, int tensor_index, std::int64_t begin,
                                             std::int64_t count) const {
  const ParameterShape& p = parameters_[static_cast<std::size_t>(parameter)];
  const SliceIndex index = slice_index(p.shape, p.slice, tensor_index);
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

SliceIndex slice_index(const Shape& shape, const TensorSlice& slice, int tensor_index) {
  if (slice.whole()) return {};
  const auto dim = static_cast<std::size_t>(slice.dim);
  std::int64_t inner = 1;
  for (std::size_t d = dim + 1; d < shape.size(); ++d) inner *= shape[d];
  const std::int64_t begin = slice.begin(shape[dim], tensor_index);
  const std::int64_t rows = slice.begin(shape[dim], tensor_index + 1) - begin;
  return {std::max<std::int64_t>(1, rows * inner), shape[dim] * inner, begin * inner};
}

std::int64_t Layout::parameter_count() const {
  std::int64_t n = 0;
  for (const auto& p : parameters_) n += ztrain::elements(p.shape);
  return n;
}

std::int64_t Layout::trained_count() const {
  std::int64_t n = 0;
  for (const auto& p : parameters_) n += p.trainable ? ztrain::elements(p.shape) : 0;
  return n;
}

bool owns(const Coordinate& at) {
  return at[Axis::replicate] == 0;
}

bool owns(const Coordinate& at, const ParameterShape& parameter) {
  const bool first_stage = parameter.other_rank < 0 || at[Axis::pipeline] < parameter.other_rank;
  return first_stage && owns(at) && (!parameter.slice.whole() || at[Axis::tensor] == 0);
}

}  // namespace ztrain
