#pragma once
// What one rank's Program looks like to the other ranks: its communications, and where its host thread waits
// for them.

#include <array>
#include <string>
#include <vector>

#include "program/ir/program.hpp"

namespace ztrain::program {

/// The collectives over one set of axes, or the messages to or from one peer: matched in order with the other
/// members.
struct Channel {
  enum class Kind : std::uint8_t { collective, send, recv };
  Kind kind = Kind::collective;
  AxisSet axes;
  int peer = -1;  ///< index within the group; -1 for collectives
  bool operator==(const Channel&) const = default;
};

/// What all members of a communication must agree on; -1 where it does not apply.
struct Signature {
  CommKind kind = CommKind::none;
  int input_type = -1, output_type = -1;
  std::int64_t input_elements = -1, output_elements = -1;
  int root = -1;   ///< of a shift: its distance
  int part = 0;    ///< 0: before what is repeated, 1: in it, 2: behind it
  int times = 1;   ///< how often it is issued in a row with the rest of that
  int micro = -1;  ///< of a message: the micro-batch that it belongs to
  std::int64_t boundary = 0, split_over = 0, partial_over = 0;  ///< of a message between stages: Message
  bool operator==(const Signature&) const = default;
};
std::string to_string(const Signature& signature);

struct Issue {
  OpId op = -1;
  int channel = 0;  ///< index into Trace::channels
  int ordinal = 0;  ///< position within that channel
  int step = 0;     ///< index into Trace::steps of its start
  Signature signature;
  int waited_in = 2;  ///< the part (as Signature::part) of the first op that waits for it
};

/// The host thread starts a communication, or waits until one is complete before it goes on with op `before`.
struct Step {
  int issue = 0;
  OpId before = -1;  ///< -1: a start
};

/// Steps of one rank's host thread: it issues the ops in order. Before it issues an op, it waits for the
/// communications among Op::after and for one that is the op's predecessor on its stream. That is how the CPU
/// backend runs every op; streams that queue work on a device wait for less, so what is free of deadlock here
/// is so there.
struct Trace {
  std::vector<Channel> channels;
  std::vector<std::vector<int>> sequence;  ///< per channel: its issues in order
  std::vector<Issue> issues;
  std::vector<Step> steps;

  /// Index of the channel, or -1.
  int find(const Channel& channel) const;
};
Trace trace_of(const Program& program);

}  // namespace ztrain::program
