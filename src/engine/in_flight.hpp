#pragma once
// Communications that the host drives, of one stream, several of which may be under way at once. A stream is
// an order of what it does: others rely on it that whoever comes later finds it done. So they end in the
// order in which they were started, and one starts while another is under way only where neither writes what
// the other touches.

#include <array>
#include <vector>

#include "base/shape.hpp"
#include "program/ir/program.hpp"
#include "program/loops/repeat.hpp"

namespace ztrain::engine {

class InFlight {
 public:
  /// Of the communications of one stream, this one among them.
  static constexpr int at_most = 4;

  /// What the executor knows of an issue of the Program.
  struct Site {
    bool host_driven = false;
    /// One binding is one set of messages, which is not started again before it is over.
    int bound = -1;
    bool shares_memory = false;  ///< that it is staged through: it is under way alone
  };

  /// sites: by issue. program: with addresses.
  InFlight(const program::Program& program, const program::Issues& issues, const std::vector<Site>& sites);

  /// Under way on this stream, the first to have been started first.
  const std::vector<program::OpId>& on(program::Stream stream) const { return under_way_[at(stream)]; }
  bool contains(program::OpId issue) const { return pending_[static_cast<std::size_t>(issue)]; }
  /// How many of its stream have to end before this issue starts.
  int surplus(program::OpId issue, program::Stream stream) const;

  void start(program::OpId issue, program::Stream stream);
  /// The first of the stream has ended.
  void end_first(program::Stream stream);

 private:
  std::vector<int> beside_;    ///< by issue: how many started just before it may be under way beside it
  std::vector<bool> pending_;  ///< by issue
  std::array<std::vector<program::OpId>, program::stream_count> under_way_;
};

}  // namespace ztrain::engine
