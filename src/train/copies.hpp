#pragma once
// Finds bits that changed on their own, in a memory or on a device: by copies that differ, and by a step that
// is computed twice.

#include <cstdint>
#include <string>
#include <vector>

#include "job/held_pieces.hpp"
#include "job/step_twice.hpp"
#include "runtime/session/session.hpp"

namespace ztrain::train {

/// Hashes of the pieces that one rank holds copies of.
struct Copies {
  int rank = 0;
  std::string host;
  std::vector<std::uint64_t> hashes;  ///< hashes in the order of the pieces' names
};

struct Corruption {
  std::string text;   ///< message for people; "" if nothing was found
  std::string nodes;  ///< nodes that were certainly wrong, such as "n1,n7"; "" if that is not known
};

/// Describes which ranks hold different copies of the same pieces, and of which piece first. Among three
/// copies or more, the ranks are named that differ from the majority.
Corruption describe_differing(const std::vector<std::string>& names, const std::vector<Copies>& copies);

/// Collective. Returns on every rank which copies of the same pieces differ.
Corruption differing_copies(const runtime::Session& session, const std::vector<job::HeldPiece>& pieces);

/// Collective. Returns on every rank how two runs of one step differ on any rank.
Corruption differing_steps(const runtime::Session& session, const job::StepDifference& own);

}  // namespace ztrain::train
