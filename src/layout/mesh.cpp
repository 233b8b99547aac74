#include "layout/mesh.hpp"

#include <fmt/format.h>

#include "base/error.hpp"

namespace ztrain {
namespace {
constexpr std::array<std::string_view, axis_count> axis_names{"pipeline", "replicate", "shard", "context",
                                                              "tensor"};
constexpr Axis axis_at(int i) {
  return static_cast<Axis>(i);
}
}  // namespace

std::string_view name_of(Axis axis) {
  return axis_names[static_cast<std::size_t>(axis)];
}

std::string to_string(AxisSet axes) {
  std::string text;
  const auto add = [&](std::string_view name) { text += fmt::format("{}{}", text.empty() ? "" : "*", name); };
  for (int i = 0; i < axis_count; ++i) {
    if (axes.contains(axis_at(i))) add(name_of(axis_at(i)));
    if (axis_at(i) == Axis::shard && axes.has_shard_inner()) add("shard_inner");
  }
  return text.empty() ? "none" : text;
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
  if (axes.contains(axis)) return (*this)[axis];
  return axis == Axis::shard && axes.has_shard_inner() ? shard_inner : 1;
}

std::string MeshShape::describe() const {
  return fmt::format("{} x {} x {} x {} x {} (pipeline x replicate x shard x context x tensor)", degree[0],
                     degree[1], degree[2], degree[3], degree[4]);
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
    const int members = mesh_.factor(axes, axis_at(i));
    index = index * members + (*this)[axis_at(i)] % members;
  }
  return index;
}

int Coordinate::group_id(AxisSet axes) const {
  int first = 0;
  for (int i = 0; i < axis_count; ++i) {
    const int count = mesh_.factor(axes, axis_at(i)), own = (*this)[axis_at(i)];
    first = first * mesh_[axis_at(i)] + own / count * count;
  }
  return first;
}

std::vector<int> Coordinate::group(AxisSet axes) const {
  std::vector<int> members{0};
  for (int i = 0; i < axis_count; ++i) {
    const int count = mesh_.factor(axes, axis_at(i)), own = (*this)[axis_at(i)];
    std::vector<int> next;
    for (int base : members)
      for (int k = 0; k < count; ++k) next.push_back(base * mesh_[axis_at(i)] + own / count * count + k);
    members = std::move(next);
  }
  return members;
}

}  // namespace ztrain
