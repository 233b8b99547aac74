#pragma once
// What ranks have found of bits that changed on their own, in a memory or on a device: copies of the same
// that differ, and results of a step that is taken twice.

#include <cstdint>
#include <string>
#include <vector>

#include "job/held_pieces.hpp"
#include "job/step_twice.hpp"
#include "runtime/session/session.hpp"

namespace ztrain::train {

/// One rank's copies of pieces.
struct Copies {
  int rank = 0;
  std::string host;
  std::vector<std::uint64_t> hashes;  ///< in the order of the pieces' names
};

struct Corruption {
  std::string text;   ///< for people; "": none
  std::string nodes;  ///< "n1,n7": those that were wrong for certain; "" where that is not known
};

/// Which of the ranks that hold the same pieces differ, and in which first. Of three copies or more those are
/// named that differ from what most of them have.
Corruption describe_differing(const std::vector<std::string>& names, const std::vector<Copies>& copies);

/// Collective, the same on every rank: what ranks that hold the same pieces hold differently.
Corruption differing_copies(const runtime::Session& session, const std::vector<job::HeldPiece>& pieces);

/// Collective, the same on every rank: how two runs of one step differ, on any rank.
Corruption differing_steps(const runtime::Session& session, const job::StepDifference& own);

}  // namespace ztrain::train
