#include "program/passes/matrix_step.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "config/architectures.hpp"
#include "config/hf/reward_model.hpp"
#include "kernel_interface/orthogonal.hpp"
#include "kernels/elementwise/record.hpp"
#include "program/ops/emit.hpp"
#include "program/ops/op_type.hpp"

namespace ztrain::program {
namespace {

/// Assigns each matrix to one of `ranks` owners, the costliest first to the owner with the least. Owners are
/// in the order of their sums, the largest first: what is planned for the first rank is enough for all.
std::vector<int> owners_of(const std::vector<double>& costs, int ranks) {
  std::vector<std::size_t> order(costs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater<>{}, [&](std::size_t i) { return costs[i]; });
  std::vector<double> sums(at(ranks), 0);
  std::vector<int> owners(costs.size());
  for (const std::size_t i : order) {
    owners[i] = static_cast<int>(std::ranges::min_element(sums) - sums.begin());
    sums[at(owners[i])] += costs[i];
  }
  std::vector<int> by_sum(at(ranks)), place(at(ranks));
  std::iota(by_sum.begin(), by_sum.end(), 0);
  std::ranges::stable_sort(by_sum, std::greater<>{}, [&](int r) { return sums[at(r)]; });
  for (int r = 0; r < ranks; ++r) place[at(by_sum[at(r)])] = r;
  for (int& owner : owners) owner = place[at(owner)];
  return owners;
}

/// Returns the type in which matrices are gathered and orthogonalised: that of the parameters, but fp32 for
/// fp16, whose range is too short for gradients that are not scaled.
DType matrix_type(const Precision& precision) {
  return precision.parameters == DType::f16 ? DType::f32 : precision.parameters;
}

}  // namespace

void mark_matrices(model::Graph& graph, const OptimizerSpec& optimizer) {
  if (optim::find(optimizer.options.name).others.empty()) return;
  constexpr const char* outer[] = {config::embedding_weight, config::positions_weight, config::head_weight,
                                   config::score_weight};
  for (model::Parameter& p : graph.parameters)
    p.by_matrix = p.trainable && p.decay && p.shape.size() >= 2 && std::ranges::count(outer, p.name) == 0;
}

const Layout& MatrixSteps::layout_of(const Coordinate& at) {
  if (at[Axis::tensor] == cut_.at[Axis::tensor]) return cut_.layout;
  const std::vector<FlatUnit>& units = cut_.layout.units();
  return layouts_
      .try_emplace(at[Axis::tensor], cut_.layout.parameters(),
                   std::vector<UnitCut>(units.begin(), units.end()), at)
      .first->second;
}

MatrixSteps::Group MatrixSteps::group_of(const UnitState& state, int unit) {
  const FlatUnit& flat = cut_.layout.unit(unit);
  AxisSet cut = sharded() ? flat.shard_axes : AxisSet();
  for (const Segment& s : flat.segments) {
    const ParameterShape& p = cut_.layout.parameters()[at(s.parameter)];
    if (!p.slice.whole() && p.slice.dim >= std::ssize(p.shape) - 2) cut = cut | p.slice.axes;
  }
  Group group{.axes = {}, .members = {}, .block = state.step_count};
  const MeshShape& mesh = cut_.at.mesh();
  for (int a = 0; a < axis_count; ++a)
    if (const auto axis = static_cast<Axis>(a); cut.contains(axis) && mesh[axis] > 1)
      group.axes = group.axes | axis;
  for (const int rank : cut_.at.group(group.axes)) {
    if (rank == cut_.at.rank()) group.own = static_cast<int>(group.members.size());
    group.members.emplace_back(mesh, rank);
    const FlatUnit& theirs = layout_of(group.members.back()).unit(unit);
    group.block = std::max(group.block, sharded() ? theirs.shard_elements : theirs.elements());
  }
  return group;
}

/// Adds a run of a parameter in a member's block to the matrices in which the run lies. index: places of the
/// parameter's matrices in `matrices`, by their number in the whole parameter.
void MatrixSteps::find_in(const Group& group, int member, const Piece& piece, std::vector<Found>& matrices,
                          std::map<std::int64_t, std::size_t>& index) {
  const Coordinate& there = group.members[at(member)];
  const Layout& layout = layout_of(there);
  const FlatUnit& flat = layout.unit(layout.parameters()[at(piece.parameter)].unit);
  const ParameterShape& p = layout.parameters()[at(piece.parameter)];
  const std::int64_t cols = p.shape.back(), rows = p.shape[p.shape.size() - 2], own = part_of(p.slice, there);
  const SliceIndex slice = slice_index(p.shape, p.slice, static_cast<int>(own));
  const Shape part = layout.slice_shape(piece.parameter);
  const std::int64_t size = part.back() * part[part.size() - 2];  // of the part of each matrix
  const std::int64_t begin =
      member * group.block + piece.flat_begin - (sharded() ? flat.shard_begin(there) : 0);
  // Copies over axes that cut neither the unit nor the parameter are read from the first of them.
  const AxisSet copied = group.axes.without(sharded() ? flat.shard_axes : AxisSet())
                             .without(p.slice.whole() ? AxisSet() : p.slice.axes);
  for (std::int64_t done = 0; done < piece.count;) {
    const std::int64_t first = piece.slice_begin + done;
    const std::int64_t count = std::min(piece.count - done, size - first % size);
    const std::int64_t logical = first / slice.run * slice.stride + slice.offset + first % slice.run;
    const std::int64_t number = logical / (rows * cols);
    const auto [it, fresh] = index.try_emplace(number, matrices.size());
    if (fresh) matrices.push_back({{.rows = rows, .cols = cols}, {}, {}});
    const MatrixPiece found{begin + done, count,        first,
                            slice.run,    slice.stride, slice.offset - number * rows * cols};
    Found& matrix = matrices[it->second];
    if (there.index_in(copied) == 0) matrix.sources.push_back(found);
    matrix.copies.push_back(found);
    done += count;
  }
}

std::vector<MatrixSteps::Found> MatrixSteps::matrices_of(const Group& group, int unit) {
  std::vector<Found> matrices;
  std::map<int, std::map<std::int64_t, std::size_t>> index;  // by parameter
  for (int member = 0; member < std::ssize(group.members); ++member) {
    const Coordinate& there = group.members[at(member)];
    const Layout& layout = layout_of(there);
    const FlatUnit& flat = layout.unit(unit);
    const std::int64_t begin = sharded() ? flat.shard_begin(there) : 0;
    for (const Piece& piece :
         layout.pieces(unit, begin, begin + (sharded() ? flat.shard_elements : flat.elements())))
      find_in(group, member, piece, matrices, index[piece.parameter]);
  }
  for (const Found& m : matrices) {
    std::int64_t found = 0;
    for (const MatrixPiece& piece : m.sources) found += piece.count;
    ASSERT(found == m.shape.rows * m.shape.cols, "the ranks over {} have {} elements of a {} x {} matrix",
           to_string(group.axes), found, m.shape.rows, m.shape.cols);
  }
  return matrices;
}

Orthogonalise MatrixSteps::record_of(const Group& group, int unit, DType type, Target target) {
  Orthogonalise record;
  record.over = group.axes.bits();
  const std::vector<Found> matrices = matrices_of(group, unit);
  std::vector<double> costs;
  for (const Found& m : matrices) {
    costs.push_back(orthogonal_flops(m.shape.rows, m.shape.cols));
    record.workspace_bytes =
        std::max(record.workspace_bytes, orthogonal_places(m.shape.rows, m.shape.cols, type, target).end);
  }
  const std::vector<int> owners = owners_of(costs, static_cast<int>(group.members.size()));
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    if (owners[i] != group.own) continue;
    const Found& m = matrices[i];
    record.matrices.push_back(
        {m.shape.rows, m.shape.cols, std::ssize(record.pieces), std::ssize(m.sources), std::ssize(m.copies)});
    record.pieces.insert(record.pieces.end(), m.sources.begin(), m.sources.end());
    record.pieces.insert(record.pieces.end(), m.copies.begin(), m.copies.end());
  }
  return record;
}

void append_matrix_step(Program& program, MatrixSteps& steps, const Cut& cut, const UnitState& state,
                        int unit, TensorId gradient, TensorId scalars, const OptimizerStep& first,
                        const OptimizerStep& second) {
  const std::string name = program.units[at(unit)];
  const Action action{ActionKind::optimize, unit, -1};
  const DType type = matrix_type(cut.precision);
  const MatrixSteps::Group group = steps.group_of(state, unit);
  const std::int64_t all = group.block * std::ssize(group.members);
  const auto add = [&](const char* what, DType dtype, std::int64_t count) {
    return program.add(
        {.name = what + name, .dtype = dtype, .shape = {count}, .category = Category::gradient});
  };
  const auto stepped_of = [&](TensorId block) {
    return program.add_view(program.tensor(block).name + ".stepped", block, 0, state.step_count);
  };
  if (type == DType::f32 && program.tensor(gradient).dtype != DType::f32) {
    const TensorId wide = add("gradient.wide.", DType::f32, elements(program.tensor(gradient).shape));
    program.tensor(wide).unit = unit;
    emit_cast(program, name, gradient, wide, action);
    gradient = wide;
  }
  const TensorId update = add("update.", type, group.block);
  std::vector<Elements> zeros{{0, state.step_count}};
  if (group.block > state.step_count) zeros.push_back({state.step_count, group.block - state.step_count});
  add_op(program, ZeroGaps{std::move(zeros)}, name, action, {}, {update});
  const TensorId own = stepped_of(update), momentum = state.optimizer.front().whole;
  add_op(program, first, name, action, {gradient, scalars, own, momentum}, {own, momentum});
  const bool shared = group.members.size() > 1;
  const TensorId gathered = shared ? add("update.gathered.", type, all) : update;
  const TensorId results = add("update.orthogonal.", type, all);
  if (shared) emit_all_gather(program, name, update, gathered, group.axes, action);
  complete(program, add_op(program, steps.record_of(group, unit, type, program.target), name, action,
                           {gathered}, {results}));
  TensorId result = results;
  if (shared) {
    result = add("update.own.", type, group.block);
    emit_reduce_scatter(program, name, {results, 0}, result, group.axes, false, action);
  }
  std::vector<TensorId> outputs{cut.strategy.optimizer_sharded ? state.parameters.slice
                                                               : state.parameters.whole};
  if (state.separate_master) outputs.push_back(state.master.whole);
  std::vector<TensorId> inputs{stepped_of(result), scalars};
  inputs.insert(inputs.end(), outputs.begin(), outputs.end());
  add_op(program, second, name, action, std::move(inputs), std::move(outputs));
}

}  // namespace ztrain::program
