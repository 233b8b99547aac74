#pragma once
// Audits look for silent corruption, bits that changed on their own in a memory or on a device: copies of the
// state that differ, and steps that differ if computed twice.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "job/held_pieces.hpp"
#include "job/step_twice.hpp"
#include "runtime/session/session.hpp"
#include "train/run_output.hpp"

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

/// Compares the ranks' copies of the state, and goes back to a state whose copies agreed if they differ. Owns
/// what is known of the copy in the host's memory, from which saves and snapshots write. Run and output
/// outlive it.
class Audits {
 public:
  Audits(Run& run, RunOutput& output) : run_(run), output_(output) {}

  bool are_on() const { return run_.deck.watchdog.audit_interval > 0; }
  /// Returns whether an audit is due: after every watchdog.audit_interval-th step, and at the end.
  bool is_due() const;
  /// Collective. Returns whether all ranks that hold copies hold the same. Training may then go on from this
  /// state, and it may be saved. Otherwise the run has gone back.
  bool copies_agree();
  /// Returns whether the copy that is kept is that of the present step.
  bool has_kept() const { return kept_ && kept_->step == run_.progress.step; }
  /// Collective. Copies the state, whose copies agree, keeps the copy and returns it. Nobody may still write
  /// from the previous copy. Throws NotSaved on all ranks if a rank cannot copy its state, so that the others
  /// do not wait for it.
  std::vector<checkpoint::StateShard> copied_state();
  /// Returns whether the next step is computed twice: after an audit, from the state that is kept.
  bool is_taken_twice() const;
  /// Collective. Computes the next step until two results in a row agree.
  void step_twice();

 private:
  void restore_kept();
  void go_back(std::int64_t at, const Corruption& found);

  Run& run_;
  RunOutput& output_;
  std::optional<job::Progress> kept_;  ///< Progress of the copy of the state, if the copy is complete.
  std::uint64_t kept_hash_ = 0;        ///< Hash of that copy, if there are audits.
  std::int64_t audited_step_ = -1;     ///< The step whose copies were found to agree.
  std::int64_t times_back_ = 0;
};

}  // namespace ztrain::train
