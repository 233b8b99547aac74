#pragma once
// Programs of several ranks, and what the proof of their joint graph says.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.hpp"
#include "tests/support/programs.hpp"

namespace ztrain::test {

inline std::string joint_verdict(const std::vector<const Program*>& programs,
                                 const std::vector<std::vector<int>>& classes) {
  try {
    verify_no_deadlock(programs, classes);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

/// A hand-built Program for each rank of a mesh of one axis.
struct Ranks {
  std::vector<Builder> builders;
  explicit Ranks(int count, Axis axis) {
    for (int rank = 0; rank < count; ++rank) {
      builders.emplace_back("train step", rank);
      builders.back().program.mesh[axis] = count;
    }
  }
  Builder& operator[](int rank) { return builders[static_cast<std::size_t>(rank)]; }

  std::string verdict() {
    std::vector<const Program*> programs;
    std::vector<std::vector<int>> classes;
    for (Builder& b : builders) {
      b.finish();
      verify_rank(b.program);
      programs.push_back(&b.program);
      classes.push_back({b.program.rank});
    }
    return joint_verdict(programs, classes);
  }
};

inline void expect_says(const std::string& said, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(said.find(part), std::string::npos) << "'" << part << "' is not in\n  " << said;
}

}  // namespace ztrain::test
