// Rows on their way to other ranks' experts and back, of all members of a group in one process, against maps
// of rows: each comes to its expert, once, in the order of members, and comes back where it was.

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <utility>

#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/dispatch/routes.hpp"
#include "tests/support/kernel_arrays.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::kernels::kernels_dispatch_test {
namespace {

using namespace ztrain::test;
using Numbers = Array<std::int32_t>;

/// Rows of each member's tokens by expert.
struct Counts {
  std::int64_t members, experts;
  std::vector<std::vector<std::int32_t>> of_member;

  std::int64_t own() const { return experts / members; }
  std::int32_t rows(std::int64_t member) const {
    return std::accumulate(at(member).begin(), at(member).end(), 0);
  }
  const std::vector<std::int32_t>& at(std::int64_t member) const {
    return of_member[static_cast<std::size_t>(member)];
  }
  /// What one member has for the experts of another.
  std::int32_t between(std::int64_t from, std::int64_t to) const {
    const auto begin = at(from).begin() + to * own();
    return std::accumulate(begin, begin + own(), 0);
  }
  std::int64_t largest() const {
    std::int64_t most = 0;
    for (std::int64_t a = 0; a < members; ++a)
      for (std::int64_t b = 0; b < members; ++b) most = std::max<std::int64_t>(most, between(a, b));
    return most;
  }
  Numbers offsets() const {
    Numbers all;
    for (const auto& counts : of_member) {
      all.push_back(0);
      for (const std::int32_t n : counts) all.push_back(all.back() + n);
    }
    return all;
  }
};

const std::vector<Counts> all_counts{
    {1, 3, {{2, 0, 5}}},
    {2, 4, {{1, 2, 3, 4}, {0, 7, 0, 3}}},
    {2, 2, {{0, 0}, {6, 0}}},                   // a member without a row, an expert without one
    {3, 3, {{0, 9, 0}, {0, 9, 0}, {0, 9, 0}}},  // all to one
    {4,
     8,
     {{1, 0, 0, 2, 1, 1, 3, 0},
      {0, 0, 4, 0, 0, 0, 0, 4},
      {8, 0, 0, 0, 0, 0, 0, 0},
      {1, 1, 1, 1, 1, 1, 1, 1}}},
};

template <class T>
struct Dispatch : ::testing::Test {
  /// What a member holds of one exchange.
  struct Member {
    Numbers routes, own_offsets;
    Array<double> overflow = Array<double>(1, 7);
    Array<T> rows, slots, arrived, by_expert;
    Routes view(const Counts& c) const { return {routes.data(), c.members, c.own()}; }
  };

  /// Elements that no kernel wrote are 100.
  Array<T> filled(std::int64_t count) { return Array<T>(static_cast<std::size_t>(count), T(100)); }

  /// Each row tells of its member, expert and number.
  static T value(std::int64_t member, std::int64_t expert, std::int64_t number, std::int64_t col) {
    return static_cast<T>(static_cast<float>(member + 4 * expert + 32 * number + 512 * col) / 64);
  }

  std::vector<Member> sent(const Counts& c, std::int64_t slot) {
    const Numbers offsets = c.offsets();
    std::vector<Member> all(static_cast<std::size_t>(c.members));
    for (std::int64_t m = 0; m < c.members; ++m) {
      Member& of = all[static_cast<std::size_t>(m)];
      of.routes.resize(static_cast<std::size_t>(route_elements(c.members, c.own())));
      of.own_offsets.resize(static_cast<std::size_t>(c.own() + 1));
      make_routes(*exec, matrix(offsets, c.members), m, slot, test::view(of.routes),
                  test::view(of.own_offsets), of.overflow.data());
      for (std::int64_t e = 0; e < c.experts; ++e)
        for (std::int64_t n = 0; n < c.at(m)[static_cast<std::size_t>(e)]; ++n)
          for (std::int64_t col = 0; col < cols; ++col) of.rows.push_back(value(m, e, n, col));
      of.slots = filled(c.members * slot * cols);
      of.arrived = filled(c.members * slot * cols);
      of.by_expert = filled(c.members * slot * cols);
      rows_to_slots<T>(*exec, Matrix<const T>{of.rows.data(), c.rows(m), cols}, of.view(c),
                       matrix(of.slots, c.members * slot));
    }
    return all;
  }

  /// Slot m of one goes to m, by the sizes that its routes say. back: what came goes back.
  void exchange(const Counts& c, std::int64_t slot, std::vector<Member>& all, bool back) {
    for (std::int64_t to = 0; to < c.members; ++to)
      for (std::int64_t from = 0; from < c.members; ++from) {
        Member &a = all[static_cast<std::size_t>(from)], &b = all[static_cast<std::size_t>(to)];
        const std::int64_t out = a.routes[static_cast<std::size_t>(to + (back ? c.members : 0))],
                           in = b.routes[static_cast<std::size_t>(from + (back ? 2 : 1) * c.members)];
        ASSERT_EQ(out, in);
        for (std::int64_t i = 0; i < out * cols; ++i)
          b.arrived[static_cast<std::size_t>(from * slot * cols + i)] =
              a.slots[static_cast<std::size_t>(to * slot * cols + i)];
      }
  }

  TestExec exec;
  std::int64_t cols = 3;
};
TYPED_TEST_SUITE(Dispatch, FloatTypes);

TYPED_TEST(Dispatch, BringsEachRowToItsExpertAndBack) {
  using T = TypeParam;
  for (const Counts& c : all_counts)
    for (const std::int64_t slot : {c.largest(), c.largest() + 5}) {
      SCOPED_TRACE(testing::Message() << c.members << " members, slots of " << slot);
      auto all = this->sent(c, slot);
      this->exchange(c, slot, all, false);
      for (std::int64_t m = 0; m < c.members; ++m) {
        auto& of = all[static_cast<std::size_t>(m)];
        slots_to_experts<T>(*this->exec, matrix(std::as_const(of.arrived), c.members * slot), of.view(c),
                            matrix(of.by_expert, c.members * slot));
        Array<T> wanted;
        for (std::int64_t e = m * c.own(); e < (m + 1) * c.own(); ++e) {
          EXPECT_EQ(of.own_offsets[static_cast<std::size_t>(e - m * c.own())],
                    std::ssize(wanted) / this->cols);
          for (std::int64_t from = 0; from < c.members; ++from)
            for (std::int64_t n = 0; n < c.at(from)[static_cast<std::size_t>(e)]; ++n)
              for (std::int64_t col = 0; col < this->cols; ++col)
                wanted.push_back(this->value(from, e, n, col));
        }
        EXPECT_EQ(of.own_offsets.back(), std::ssize(wanted) / this->cols);
        EXPECT_EQ(of.overflow[0], 0);
        wanted.resize(of.by_expert.size(), T(100));
        EXPECT_EQ(doubles(of.by_expert), doubles(wanted));
        of.slots = this->filled(c.members * slot * this->cols);
        experts_to_slots<T>(*this->exec, matrix(std::as_const(of.by_expert), c.members * slot), of.view(c),
                            matrix(of.slots, c.members * slot));
      }
      this->exchange(c, slot, all, true);
      for (std::int64_t m = 0; m < c.members; ++m) {
        auto& of = all[static_cast<std::size_t>(m)];
        Array<T> rows = this->filled(c.rows(m) * this->cols);
        slots_to_rows<T>(*this->exec, matrix(std::as_const(of.arrived), c.members * slot), of.view(c),
                         Matrix<T>{rows.data(), c.rows(m), this->cols});
        EXPECT_EQ(doubles(rows), doubles(of.rows));
      }
    }
}

/// What finds no place in a slot is not sent, and comes back as 0; the rest is as it was.
TYPED_TEST(Dispatch, LeavesOutWhatHasNoPlace) {
  using T = TypeParam;
  const Counts c = all_counts[1];
  auto all = this->sent(c, 4);
  this->exchange(c, 4, all, false);
  for (std::int64_t m = 0; m < 2; ++m) {
    auto& of = all[static_cast<std::size_t>(m)];
    slots_to_experts<T>(*this->exec, matrix(std::as_const(of.arrived), 8), of.view(c),
                        matrix(of.by_expert, 8));
    experts_to_slots<T>(*this->exec, matrix(std::as_const(of.by_expert), 8), of.view(c), matrix(of.slots, 8));
  }
  this->exchange(c, 4, all, true);
  EXPECT_EQ(all[0].overflow[0], 1);
  EXPECT_EQ(all[1].overflow[0], 1);
  const std::vector<std::vector<bool>> placed{{1, 1, 1, 1, 1, 1, 1, 0, 0, 0}, {1, 1, 1, 1, 0, 0, 0, 1, 1, 1}};
  for (std::int64_t m = 0; m < 2; ++m) {
    auto& of = all[static_cast<std::size_t>(m)];
    Array<T> rows = this->filled(10 * this->cols);
    slots_to_rows<T>(*this->exec, matrix(std::as_const(of.arrived), 8), of.view(c), matrix(rows, 10));
    for (std::size_t i = 0; i < rows.size(); ++i)
      EXPECT_EQ(static_cast<double>(rows[i]),
                placed[static_cast<std::size_t>(m)][i / 3] ? static_cast<double>(of.rows[i]) : 0.0)
          << m << " " << i;
  }
}

}  // namespace
}  // namespace ztrain::kernels::kernels_dispatch_test
