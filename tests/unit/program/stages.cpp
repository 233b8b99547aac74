// The joint proof of Programs that differ: stages of a pipeline, each with messages of its own. Every message
// of every stage is left out, doubled, sent elsewhere, sent over another axis or sent out of turn: each is
// refused.

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "tests/support/joint_ranks.hpp"

namespace ztrain::test::stages_test {
namespace {

constexpr int stages = 8, micro_batches = 4;

enum class Order : std::uint8_t { forwards_first, one_forward_one_backward };

/// What one stage does: forward of micro-batch m, or its backward.
struct Turn {
  bool forward;
  int micro;
};

std::vector<Turn> turns_of(Order order, int stage) {
  const int ahead = order == Order::forwards_first ? micro_batches : std::min(micro_batches, stages - stage);
  std::vector<Turn> turns;
  for (int f = 0, b = 0; b < micro_batches;) {
    if (f < micro_batches && f - b < ahead)
      turns.push_back({true, f++});
    else
      turns.push_back({false, b++});
  }
  return turns;
}

class Pipeline {
 public:
  /// back: the stream of the messages that go back.
  explicit Pipeline(Order order, Stream back = Stream::p2p) : back_(back) {
    for (int rank = 0; rank < 2 * stages; ++rank) {
      builders.emplace_back("train step", rank);
      builders.back().program.mesh[Axis::pipeline] = stages;
      builders.back().program.mesh[Axis::context] = 2;
      for (const Turn& turn : turns_of(order, rank / 2)) add(builders.back(), rank / 2, turn);
    }
  }

  std::string verdict() {
    std::vector<const Program*> programs;
    std::vector<std::vector<int>> classes;
    try {
      for (Builder& b : builders) {
        b.finish();
        verify_rank(b.program);
        programs.push_back(&b.program);
        classes.push_back({b.program.rank});
      }
    } catch (const Error& error) {
      return error.what();
    }
    return joint_verdict(programs, classes);
  }

  std::vector<Builder> builders;

 private:
  /// Receives from the stage before (or behind, of a backward), works, and sends on.
  void add(Builder& b, int stage, const Turn& turn) {
    const int from = turn.forward ? stage - 1 : stage + 1, to = turn.forward ? stage + 1 : stage - 1;
    const Stream stream = turn.forward ? Stream::p2p : back_;
    const std::string what = (turn.forward ? "forward " : "backward ") + std::to_string(turn.micro);
    const TensorId made = b.transient("made by " + what, 64);
    std::vector<TensorId> reads;
    if (from >= 0 && from < stages) {
      reads.push_back(b.transient("received for " + what, 64));
      message(b, CommKind::recv, stream, {}, reads, from, turn.micro);
    }
    b.op("work", Stream::compute, reads, {made});
    if (to >= 0 && to < stages) message(b, CommKind::send, stream, {made}, {}, to, turn.micro);
  }
  static void message(Builder& b, CommKind kind, Stream stream, std::vector<TensorId> in,
                      std::vector<TensorId> out, int peer, int micro) {
    const OpId id = b.communicate(kind, Axis::pipeline, stream, std::move(in), std::move(out), peer);
    b.program.op(id).action.micro = micro;
  }

  Stream back_;
};

TEST(Stages, OfEightAreProven) {
  EXPECT_EQ(Pipeline(Order::forwards_first).verdict(), "accepted");
  EXPECT_EQ(Pipeline(Order::one_forward_one_backward, Stream::exchange).verdict(), "accepted");
}

/// Neighbours that send to each other at once must not do so on one stream: each waits for the other's
/// receive.
TEST(Stages, ThatWaitForEachOtherAreRefused) {
  expect_says(Pipeline(Order::one_forward_one_backward).verdict(), {"deadlock", "recv"});
}

struct Fault {
  const char* name;
  void (*plant)(std::vector<Op>&, std::size_t at);
};

/// The next message to, or from, the same stage; the end where there is none.
std::size_t next_of(const std::vector<Op>& ops, std::size_t at) {
  for (std::size_t i = at + 1; i < ops.size(); ++i)
    if (ops[i].comm.kind == ops[at].comm.kind && ops[i].comm.peer == ops[at].comm.peer) return i;
  return ops.size();
}

constexpr Fault faults[] = {
    {"left out",
     [](std::vector<Op>& ops, std::size_t at) { ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(at)); }},
    {"doubled",
     [](std::vector<Op>& ops, std::size_t at) {
       const Op twice = ops[at];
       ops.insert(ops.begin() + static_cast<std::ptrdiff_t>(at), twice);
     }},
    {"elsewhere",
     [](std::vector<Op>& ops, std::size_t at) { ops[at].comm.peer = (ops[at].comm.peer + 3) % stages; }},
    {"over context",
     [](std::vector<Op>& ops, std::size_t at) {
       ops[at].comm.axes = Axis::context;
       ops[at].comm.peer = 1;
     }},
    {"of another micro-batch",
     [](std::vector<Op>& ops, std::size_t at) {
       if (const std::size_t next = next_of(ops, at); next < ops.size())
         std::swap(ops[at].action.micro, ops[next].action.micro);
       else
         ops[at].action.micro = -1;
     }},
};

TEST(Stages, AFaultInAnyMessageIsRefused) {
  int planted = 0;
  for (const Order order : {Order::forwards_first, Order::one_forward_one_backward}) {
    const Pipeline sound(order, Stream::exchange);
    for (const int rank : {0, 4, 14})
      for (std::size_t i = 0; i < sound.builders[static_cast<std::size_t>(rank)].program.ops.size(); ++i)
        for (const Fault& fault : faults) {
          Pipeline broken = sound;
          std::vector<Op>& ops = broken.builders[static_cast<std::size_t>(rank)].program.ops;
          if (!ops[i].communicates()) continue;
          ++planted;
          const std::string where =
              describe(broken.builders[static_cast<std::size_t>(rank)].program, static_cast<OpId>(i));
          fault.plant(ops, i);
          const std::string said = broken.verdict();
          EXPECT_NE(said, "accepted") << fault.name << ": " << where << " of rank " << rank;
          const bool names = said.find("pipeline") != said.npos || said.find("context") != said.npos ||
                             said.find("received for") != said.npos;
          EXPECT_TRUE(names) << fault.name << ": " << said;
        }
  }
  EXPECT_GT(planted, 300);
}

}  // namespace
}  // namespace ztrain::test::stages_test
