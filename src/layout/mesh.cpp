#include "layout/mesh.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.hpp"

namespace ztrain {
namespace {
constexpr Axis axis_at(int i) {
  return static_cast<Axis>(i);
}

/// The members of a group along one axis: first, first + stride, and so on.
struct Members {
  int count, stride, first;
};

/// Returns the members, along an axis, of the group over `axes` of a rank whose index on the axis is `own`.
Members members_along(const MeshShape& mesh, AxisSet axes, Axis axis, int own) {
  const int inner = mesh.inner_of(axis);
  if (axes.contains_inner(axis)) return {inner, 1, own / inner * inner};
  if (axes.contains_outer(axis)) return {mesh[axis] / inner, inner, own % inner};
  return axes.contains(axis) ? Members{mesh[axis], 1, 0} : Members{1, 1, own};
}
}  // namespace

std::string to_string(AxisSet axes) {
  std::string text;
  const auto add = [&](std::string_view name) { text += fmt::format("{}{}", text.empty() ? "" : "*", name); };
  for (int i = 0; i < axis_count; ++i) {
    if (axes.contains(axis_at(i))) add(name_of(axis_at(i)));
    if (axes.contains_inner(axis_at(i))) add(fmt::format("{}_inner", name_of(axis_at(i))));
    if (axes.contains_outer(axis_at(i))) add(fmt::format("{}_outer", name_of(axis_at(i))));
  }
  return text.empty() ? "none" : text;
}

std::string to_string(AxisSet axes, const MeshShape& mesh) {
  return to_string(mesh[Axis::expert] > 1 ? axes : axes.without(Axis::expert));
}

int MeshShape::ranks() const {
  return size(AxisSet::all());
}

int MeshShape::size(AxisSet axes) const {
  int n = 1;
  for (int i = 0; i < axis_count; ++i) n *= factor(axes, axis_at(i));
  return n;
}

int MeshShape::factor(AxisSet axes, Axis axis) const {
  return members_along(*this, axes, axis, 0).count;
}

std::string MeshShape::describe() const {
  std::vector<int> degrees;
  std::vector<std::string_view> names;
  for (int i = 0; i < axis_count; ++i) {
    const AxisRow& row = axis_table[i];
    if (row.follows && (*this)[axis_at(i)] == 1) continue;
    degrees.push_back((*this)[axis_at(i)]);
    names.push_back(row.name);
  }
  return fmt::format("{} ({})", fmt::join(degrees, " x "), fmt::join(names, " x "));
}

Coordinate::Coordinate(const MeshShape& mesh, int rank) : mesh_(mesh), rank_(rank) {
  ASSERT(rank >= 0 && rank < mesh.ranks(), "rank {} is outside a mesh of {} ranks", rank, mesh.ranks());
  for (int i = axis_count - 1; i >= 0; --i) {
    const int degree = mesh.degree[static_cast<std::size_t>(i)];
    position_[static_cast<std::size_t>(i)] = rank % degree;
    rank /= degree;
  }
}

int Coordinate::index_in(AxisSet axes) const {
  int index = 0;
  for (int i = 0; i < axis_count; ++i) {
    const int own = (*this)[axis_at(i)];
    const Members members = members_along(mesh_, axes, axis_at(i), own);
    index = index * members.count + (own - members.first) / members.stride;
  }
  return index;
}

int Coordinate::group_id(AxisSet axes) const {
  int first = 0;
  for (int i = 0; i < axis_count; ++i)
    first = first * mesh_[axis_at(i)] + members_along(mesh_, axes, axis_at(i), (*this)[axis_at(i)]).first;
  return first;
}

std::vector<int> Coordinate::group(AxisSet axes) const {
  std::vector<int> members{0};
  for (int i = 0; i < axis_count; ++i) {
    const Members here = members_along(mesh_, axes, axis_at(i), (*this)[axis_at(i)]);
    std::vector<int> next;
    for (int base : members)
      for (int k = 0; k < here.count; ++k)
        next.push_back(base * mesh_[axis_at(i)] + here.first + k * here.stride);
    members = std::move(next);
  }
  return members;
}

AxisSet axes_across_nodes(const MeshShape& mesh, const std::function<int(int)>& node_of) {
  AxisSet across;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const Coordinate here(mesh, rank);
    for (int i = 0; i < axis_count; ++i) {
      const Axis axis = axis_at(i);
      if (here[axis] != 0 || mesh[axis] == 1 || across.contains(axis)) continue;
      for (const int member : here.group(axis))
        if (node_of(member) != node_of(rank)) across = across | axis;
    }
  }
  return across;
}

std::string note_on_nodes(AxisSet across) {
  if (across.empty()) return "";
  std::vector<std::string_view> names;
  for (const AxisRow& row : axis_table)
    if (across.contains(axis_at(static_cast<int>(&row - axis_table)))) names.push_back(row.name);
  const std::string text =
      fmt::format("{} cross{} nodes", fmt::join(names, " and "), names.size() == 1 ? "es" : "");
  if (!across.contains(Axis::tensor)) return text;
  return fmt::format(
      "warning: {}: ranks that share layers exchange activations in each of them; let mesh.tensor "
      "be at most the ranks of a node, and number ranks node by node",
      text);
}

}  // namespace ztrain
