#pragma once
// Compares two runs of a Program op by op: one that was given the same twice and has made different things of
// it was computed wrongly.

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/job_memory.hpp"
#include "engine/op_observer.hpp"
#include "program/loops/repeat.hpp"

namespace ztrain::engine {

/// What results held before counts as given: an op may write a part of one. So both runs are to begin with
/// the same bytes in all that no Program keeps. Scratch memory is not looked at, nor ops that
/// communicate or read or write NVMe.
class OpHashes : public OpObserver {
 public:
  /// Both outlive it.
  OpHashes(const program::Program& program, const JobMemory& memory);

  void look_before(program::OpId issue) override;
  void look_after(program::OpId issue) override;
  /// The next run is the second.
  void begin_second() { second_ = true; }
  /// Of the second run the first op that had the same operands as in the first run, and has other results.
  const std::optional<FoundOp>& found() const { return found_; }

 private:
  bool is_under_way(const program::Op& op) const;
  std::uint64_t hash_of(const std::vector<program::TensorId>& tensors, program::OpId issue,
                        std::uint64_t seed) const;

  const program::Program& program_;
  program::Issues issues_;
  const JobMemory& memory_;
  std::vector<std::uint64_t> given_, made_;  ///< by issue, in the first run
  bool second_ = false, given_alike_ = false;
  std::optional<FoundOp> found_;
};

}  // namespace ztrain::engine
