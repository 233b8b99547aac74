// The arithmetic of the mesh, and that every parameter element has exactly one place in every layout.
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "base/error.hpp"
#include "layout/comm_cost.hpp"
#include "layout/layout.hpp"
#include "layout/mesh.hpp"
#include "layout/token_order.hpp"

namespace ztrain::mesh_layout_test {

namespace {

MeshShape shape(int pipeline, int replicate, int shard, int context, int tensor) {
  MeshShape s;
  s.degree = {pipeline, replicate, shard, 1, 1, context, tensor};
  return s;
}

/// Odd sizes, slices along both dims, two units and a scalar.
std::vector<ParameterShape> parameters(int parts) {
  return {{"embed.weight", {12, 7}, {0, parts}, 0, true},     {"embed.scale", {}, {}, 0, false},
          {"mlp.up.weight", {24, 33}, {0, parts}, 1, true},   {"mlp.up.bias", {24}, {0, parts}, 1, false},
          {"mlp.down.weight", {33, 24}, {1, parts}, 1, true}, {"norm.weight", {33}, {}, 1, false},
          {"cube.weight", {3, 12, 5}, {1, parts}, 1, true}};
}

TEST(MeshArithmetic, CoordinatesAreRowMajor) {
  const MeshShape mesh = shape(2, 3, 4, 1, 2);
  EXPECT_EQ(mesh.ranks(), 48);
  EXPECT_EQ(mesh.size(Axis::replicate | Axis::tensor), 6);
  EXPECT_EQ(mesh.size(AxisSet()), 1);
  std::set<std::array<int, 5>> seen;
  for (int rank = 0; rank < 48; ++rank) {
    const Coordinate at(mesh, rank);
    EXPECT_EQ(at.index_in(AxisSet::all()), rank);
    EXPECT_EQ(at.index_in(AxisSet()), 0);
    EXPECT_EQ(at[Axis::tensor], rank % 2) << "tensor is innermost";
    EXPECT_EQ(at[Axis::pipeline], rank / 24) << "pipeline is outermost";
    seen.insert(
        {at[Axis::pipeline], at[Axis::replicate], at[Axis::shard], at[Axis::context], at[Axis::tensor]});
  }
  EXPECT_EQ(seen.size(), 48u);
  EXPECT_THROW(Coordinate(mesh, 48), Error);
  EXPECT_THROW(Coordinate(mesh, -1), Error);
}

/// What else follows from the table is derived; a new axis is a row of it.
TEST(MeshArithmetic, TheTableSaysWhatAxesDivide) {
  EXPECT_EQ(to_string(sequence_axes), "replicate*shard*expert");
  EXPECT_EQ(to_string(token_axes), "replicate*shard*expert*ring*context");
  EXPECT_EQ(to_string(state_axes), "shard*expert*ring*context");
  MeshShape mesh = shape(1, 2, 3, 4, 5);
  EXPECT_EQ(mesh.describe(), "1 x 2 x 3 x 4 x 5 (pipeline x replicate x shard x context x tensor)");
  mesh[Axis::ring] = 6;
  EXPECT_EQ(mesh.describe(),
            "1 x 2 x 3 x 6 x 4 x 5 (pipeline x replicate x shard x ring x context x tensor)");
}

TEST(MeshArithmetic, AnyAxisMayBeCutIntoNeighbours) {
  for (int a = 0; a < axis_count; ++a) {
    const auto axis = static_cast<Axis>(a);
    MeshShape mesh = shape(1, 2, 1, 2, 1);
    mesh[axis] = 6;
    mesh.inner_of(axis) = 3;
    const AxisSet near = AxisSet::inner(axis), far = AxisSet(axis), apart = AxisSet::outer(axis);
    EXPECT_EQ(mesh.size(near), 3);
    EXPECT_EQ(mesh.size(apart), 2);
    EXPECT_EQ(to_string(apart), std::string(name_of(axis)) + "_outer");
    EXPECT_EQ(to_string(near), std::string(name_of(axis)) + "_inner");
    for (int rank = 0; rank < mesh.ranks(); ++rank) {
      const Coordinate at(mesh, rank);
      EXPECT_EQ(at.index_in(near), at[axis] % 3);
      std::vector<int> neighbours;
      for (const int member : at.group(far))
        if (Coordinate(mesh, member)[axis] / 3 == at[axis] / 3) neighbours.push_back(member);
      EXPECT_EQ(at.group(near), neighbours) << name_of(axis);
      EXPECT_EQ(at.group_id(near), neighbours.front());
      std::vector<int> counterparts;
      for (const int member : at.group(far))
        if (Coordinate(mesh, member)[axis] % 3 == at[axis] % 3) counterparts.push_back(member);
      EXPECT_EQ(at.group(apart), counterparts) << name_of(axis);
      EXPECT_EQ(at.index_in(apart), at[axis] / 3);
      EXPECT_EQ(at.group_id(apart), counterparts.front());
    }
  }
}

TEST(MeshArithmetic, GroupsPartitionTheRanks) {
  const MeshShape mesh = shape(2, 2, 3, 2, 2);
  for (std::uint8_t bits = 0; bits < 32; ++bits) {
    AxisSet axes;
    for (int a = 0; a < axis_count; ++a)
      if ((bits >> a) & 1) axes = axes | static_cast<Axis>(a);
    EXPECT_EQ(axes.bits(), bits);
    std::map<int, std::vector<int>> groups;
    for (int rank = 0; rank < mesh.ranks(); ++rank) {
      const Coordinate at(mesh, rank);
      const auto group = at.group(axes);
      ASSERT_EQ(static_cast<int>(group.size()), mesh.size(axes));
      ASSERT_EQ(group[static_cast<std::size_t>(at.index_in(axes))], rank) << to_string(axes);
      ASSERT_EQ(at.group_id(axes), group.front());
      const auto [known, added] = groups.emplace(group.front(), group);
      ASSERT_EQ(known->second, group) << "all members see the same group";
      for (const int member : group)
        for (int a = 0; a < axis_count; ++a)
          if (const Axis axis = static_cast<Axis>(a); !axes.contains(axis)) {
            ASSERT_EQ(Coordinate(mesh, member)[axis], at[axis]);
          }
    }
    EXPECT_EQ(static_cast<int>(groups.size()), mesh.ranks() / mesh.size(axes));
  }
}

TEST(MeshArithmetic, Names) {
  EXPECT_EQ(to_string(Axis::shard | Axis::context), "shard*context");
  EXPECT_EQ(to_string(AxisSet()), "none");
  EXPECT_EQ(to_string(AxisSet::all()), "pipeline*replicate*shard*expert*ring*context*tensor");
}

TEST(CommCost, AllReduceSlicesCoverTheCount) {
  for (int ranks = 1; ranks <= 7; ++ranks)
    for (std::int64_t count = 0; count < 40; ++count) {
      std::int64_t sum = 0, sent = 0;
      for (int r = 0; r < ranks; ++r) {
        const std::int64_t length = slice_length(ranks, count, r);
        EXPECT_EQ(length, std::max<std::int64_t>(0, std::min(all_reduce_slice(ranks, count), count - sum)));
        EXPECT_LE((ranks - 1) * length * 4, all_reduce_workspace(ranks, DType::f32, count));
        sum += length;
        sent += all_reduce_sent(ranks, r, DType::f32, count);
      }
      EXPECT_EQ(sum, count);
      EXPECT_EQ(sent, 2 * (ranks - 1) * count * 4)
          << "together: every element to every other rank, there and back";
    }
}

TEST(Layout, SegmentsAndShardsStartOnTheQuantum) {
  for (int shards = 1; shards <= 7; ++shards) {
    const Layout layout(parameters(3), {2, {shards}});
    for (const FlatUnit& unit : layout.units()) {
      std::int64_t end = 0;
      EXPECT_EQ(unit.shards, shards);
      EXPECT_EQ(unit.shard_elements % quantum, 0);
      for (const Segment& s : unit.segments) {
        EXPECT_EQ(s.begin % quantum, 0);
        EXPECT_GE(s.begin, end) << "segments do not overlap";
        EXPECT_LT(s.begin - end, quantum) << "no more padding than needed";
        EXPECT_EQ(s.begin, layout.segment_of(s.parameter).begin);
        end = s.begin + s.count;
      }
      EXPECT_GE(unit.elements(), end);
      EXPECT_LT(unit.elements() - end, quantum + shards * quantum);
    }
  }
}

/// A shard is a little more than a quantum here: rounded down, it would be one, and elements would be left
/// over.
TEST(Layout, HundredsOfShardsHoldAllElements) {
  const Layout layout({{"weight", {301 * quantum}, {}, 0, true}}, {{300}});
  EXPECT_GE(layout.unit(0).elements(), 301 * quantum);
}

TEST(Layout, FlatPositionsDoNotDependOnTheShards) {
  const Layout one(parameters(3), {2, {1}}), seven(parameters(3), {2, {7}});
  for (int p = 0; p < 7; ++p) EXPECT_EQ(one.segment_of(p).begin, seven.segment_of(p).begin);
  EXPECT_EQ(one.parameter_count(), 12 * 7 + 1 + 2 * 24 * 33 + 24 + 33 + 3 * 12 * 5);
}

TEST(Layout, PiecesOfARange) {
  // Elements 0..83 and 256 of unit 0; unit 1 starts with 24 x 33 = 792.
  const Layout layout(parameters(1), {2, {1}});
  EXPECT_TRUE(layout.pieces(0, 84, 256).empty()) << "padding belongs to nobody";
  const auto pieces = layout.pieces(0, 80, 300);
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0].parameter, 0);
  EXPECT_EQ(pieces[0].flat_begin, 80);
  EXPECT_EQ(pieces[0].slice_begin, 80);
  EXPECT_EQ(pieces[0].count, 4);
  EXPECT_EQ(pieces[1].parameter, 1);
  EXPECT_EQ(pieces[1].flat_begin, 256);
  EXPECT_EQ(pieces[1].slice_begin, 0);
  EXPECT_EQ(pieces[1].count, 1);
}

TEST(Layout, RunsOfASliceAlongDim0AreContiguous) {
  const Layout layout(parameters(2), {2, {1}});
  EXPECT_EQ(layout.slice_shape(2), (Shape{12, 33}));
  const auto runs = layout.logical_runs(2, 1, 5, 100);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].slice_begin, 5);
  EXPECT_EQ(runs[0].logical_begin, 12 * 33 + 5);
  EXPECT_EQ(runs[0].count, 100);
}

TEST(Layout, RunsOfASliceAlongDim1StrideOverTheOthersPart) {
  const Layout layout(parameters(2), {2, {1}});
  EXPECT_EQ(layout.slice_shape(4), (Shape{33, 12}));
  const auto runs = layout.logical_runs(4, 1, 10, 16);  // the ends of row 0, row 1 whole, two of row 2
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[0].logical_begin, 12 + 10);
  EXPECT_EQ(runs[0].count, 2);
  EXPECT_EQ(runs[1].slice_begin, 12);
  EXPECT_EQ(runs[1].logical_begin, 24 + 12);
  EXPECT_EQ(runs[1].count, 12);
  EXPECT_EQ(runs[2].logical_begin, 48 + 12);
  EXPECT_EQ(runs[2].count, 2);
}

TEST(Layout, WholeParametersMapToThemselves) {
  const Layout layout(parameters(2), {2, {1}});
  const auto runs = layout.logical_runs(5, 1, 3, 7);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].logical_begin, 3);
  EXPECT_EQ(runs[0].count, 7);
}

TEST(MeshArithmetic, AxesAcrossNodesFollowFromWhereRanksAre) {
  const auto across = [](const MeshShape& mesh, int per_node) {
    return axes_across_nodes(mesh, [&](int rank) { return rank / per_node; });
  };
  const MeshShape mesh = shape(1, 2, 2, 1, 4);
  EXPECT_EQ(across(mesh, 16), AxisSet());
  EXPECT_EQ(across(mesh, 8), Axis::replicate);
  EXPECT_EQ(across(mesh, 4), Axis::replicate | Axis::shard);
  EXPECT_EQ(across(mesh, 2), Axis::replicate | Axis::shard | Axis::tensor);
  // Of 6 ranks a node some groups of the tensor axis are on one node, and some on two.
  EXPECT_TRUE(across(mesh, 6).contains(Axis::tensor));
  // Dealt one by one over two nodes.
  EXPECT_EQ(axes_across_nodes(shape(1, 1, 4, 1, 2), [](int rank) { return rank % 2; }), Axis::tensor);
  EXPECT_EQ(note_on_nodes({}), "");
  EXPECT_EQ(note_on_nodes(Axis::shard), "shard crosses nodes");
  EXPECT_EQ(note_on_nodes(Axis::replicate | Axis::shard), "replicate and shard cross nodes");
  EXPECT_EQ(note_on_nodes(Axis::tensor).find("warning: tensor crosses nodes: "), 0u);
}

TEST(Layout, EveryElementIsOwnedExactlyOnce) {
  for (const int tensor : {1, 2, 3})
    for (const AxisSet axes : {state_axes, AxisSet(Axis::shard), AxisSet(Axis::context)})
      for (int shards = 1; shards <= 7; ++shards) {
        MeshShape mesh = shape(1, 2, shards, 2, tensor);
        mesh[Axis::expert] = 2;
        const Whole whole = static_cast<Whole>(shards % 4);
        std::vector<ParameterShape> all = parameters(tensor);
        for (const AxisSet over : {AxisSet(Axis::expert), Axis::expert | Axis::tensor})
          all.push_back({"experts.weight", {12, 5}, {0, mesh.size(over), {}, over}, 2, true});
        const AxisSet of_experts = axes.without(Axis::expert);
        const UnitCut dense{mesh.size(axes), axes, token_axes, whole},
            experts{mesh.size(of_experts), of_experts, token_axes, whole};
        const Layout layout(all, {dense, dense, experts});
        std::vector<std::vector<int>> owners;
        for (const auto& p : layout.parameters())
          owners.emplace_back(static_cast<std::size_t>(elements(p.shape)), 0);
        for (int rank = 0; rank < mesh.ranks(); ++rank) {
          const Coordinate at(mesh, rank);
          for (const FlatUnit& unit : layout.units())
            for (const Piece& piece : layout.pieces(unit.unit, at)) {
              const auto p = static_cast<std::size_t>(piece.parameter);
              if (!owns(at, unit, layout.parameters()[p])) continue;
              const int slice = part_of(layout.parameters()[p].slice, at);
              for (const LogicalRun& run :
                   layout.logical_runs(piece.parameter, slice, piece.slice_begin, piece.count))
                for (std::int64_t i = 0; i < run.count; ++i)
                  ++owners[p][static_cast<std::size_t>(run.logical_begin + i)];
            }
        }
        for (std::size_t p = 0; p < owners.size(); ++p)
          for (std::size_t i = 0; i < owners[p].size(); ++i)
            ASSERT_EQ(owners[p][i], 1) << layout.parameters()[p].name << " element " << i << ", "
                                       << to_string(axes) << " of " << mesh.describe();
      }
}

/// Elements that no cut may divide.
std::int64_t granule_of(const Shape& shape, Whole whole) {
  if (shape.size() < 2) return 1;
  return whole == Whole::row ? shape.back() : shape.back() * shape[shape.size() - 2];
}

/// No shard is larger than what an even cut and the largest granule take, or is cut where it may not be.
TEST(Layout, CutsLeaveRowsAndMatricesWhole) {
  std::vector<ParameterShape> all = parameters(1);
  all.push_back({"wide.weight", {40, 512}, {}, 1, true});
  for (const Whole whole : {Whole::row, Whole::matrix})
    for (int shards = 1; shards <= 9; ++shards) {
      const Layout layout(all, {2, {shards, state_axes, token_axes, whole}});
      for (const FlatUnit& unit : layout.units()) {
        std::int64_t end = 0, filled = 0, largest = 0;
        for (const Segment& s : unit.segments) {
          EXPECT_EQ(s.begin % quantum, 0);
          EXPECT_GE(s.begin, end) << "segments do not overlap";
          end = s.begin + s.count;
          filled += round_up(s.count, quantum);
          const std::int64_t granule = granule_of(layout.slice_shape(s.parameter), whole);
          largest = std::max(largest, std::lcm(granule, whole == Whole::row ? quantum : 1));
          for (std::int64_t cut = unit.shard_elements; cut < end; cut += unit.shard_elements)
            EXPECT_TRUE(cut <= s.begin || (cut - s.begin) % granule == 0)
                << layout.parameters()[static_cast<std::size_t>(s.parameter)].name << ", " << shards;
        }
        EXPECT_LE(end, unit.elements());
        EXPECT_LT(unit.shard_elements, filled / shards + largest + 2 * quantum);
        EXPECT_EQ(unit.largest_elements, unit.elements());
      }
    }
}

/// One product takes them all.
TEST(Layout, WhatIsJoinedIsCutButNotParted) {
  const std::vector<ParameterShape> joined{{"q", {8, 64}, {}, 0},
                                           {"k", {4, 64}, {}, 0, true, true, false, -1, 0},
                                           {"v", {4, 64}, {}, 0, true, true, false, -1, 0},
                                           {"o", {64, 8}, {}, 0}};
  for (const Whole whole : {Whole::element, Whole::row, Whole::matrix})
    for (const int shards : {2, 3}) {
      const FlatUnit unit = Layout(joined, {{shards, state_axes, token_axes, whole}}).unit(0);
      EXPECT_EQ(unit.segments[1].begin, 8 * 64);
      EXPECT_EQ(unit.segments[2].begin, 12 * 64);
      EXPECT_EQ(unit.shard_elements, whole == Whole::matrix ? 1024 : shards == 2 ? 768 : 512);
    }
}

TEST(Layout, ADimThatDoesNotDivideNamesTheParameter) {
  try {
    Layout(parameters(5), {2, {1}});
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("embed.weight"), std::string::npos) << error.what();
  }
}

TEST(TokenOrder, EveryTokenIsOnOneRank) {
  for (const auto& [ranks, groups] :
       {std::pair{1, 1}, {4, 1}, {4, 4}, {4, 2}, {6, 2}, {6, 3}, {8, 4}, {8, 2}}) {
    const TokenOrder order(ranks, groups);
    for (const std::int64_t tokens : {1, 24, 50}) {
      const std::int64_t all = order.padded(tokens);
      EXPECT_GE(all, tokens);
      EXPECT_LT(all - tokens, 2 * ranks);
      std::set<std::int64_t> found;
      for (int rank = 0; rank < ranks; ++rank) {
        std::int64_t own = 0;
        for (const TokenRun& run : order.part(all, ranks, rank)) {
          own += run.count;
          for (std::int64_t i = 0; i < run.count; ++i) found.insert(run.token + i);
        }
        EXPECT_EQ(own, all / ranks);
      }
      EXPECT_EQ(std::ssize(found), all);
      EXPECT_EQ(*found.rbegin(), all - 1);
    }
  }
}

TEST(TokenOrder, AGroupHasAChunkFromEitherEnd) {
  EXPECT_EQ(to_string(TokenOrder(4, 1).part(16, 4, 1)), "4 to 7");
  EXPECT_EQ(to_string(TokenOrder(4, 4).part(16, 4, 1)), "2 to 3 and 12 to 13");
  EXPECT_EQ(to_string(TokenOrder(4, 4).part(16, 4, 3)), "6 to 9") << "which are neighbours";
  EXPECT_EQ(to_string(TokenOrder(4, 4).runs(16, 5, 7)), "3 to 3 and 12 to 12");
  EXPECT_EQ(to_string(TokenOrder(4, 2).part(16, 2, 0)), "0 to 3 and 12 to 15");
  EXPECT_EQ(to_string(TokenOrder(4, 2).part(16, 4, 1)), "12 to 15") << "the second of a group of two";
  EXPECT_EQ(TokenOrder(3, 3).padded(7), 12);
  EXPECT_EQ(TokenOrder(2, 2, 16).padded(48), 64) << "multiples of 16 on each rank";
  EXPECT_EQ(TokenOrder(4, 2).padded(7), 8);
}

TEST(Layout, FrozenParametersCountAsParametersAlone) {
  std::vector<ParameterShape> some = parameters(1);
  const std::int64_t all = Layout(some, {2, {1}}).parameter_count();
  EXPECT_EQ(Layout(some, {2, {1}}).trained_count(), all);
  some[2].trainable = false;  // 24 x 33
  EXPECT_EQ(Layout(some, {2, {4}}).parameter_count(), all);
  EXPECT_EQ(Layout(some, {2, {4}}).trained_count(), all - 24 * 33);
}

}  // namespace
}  // namespace ztrain::mesh_layout_test
