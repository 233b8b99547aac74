// Ops that send messages, in Programs that differ from rank to rank, on real ranks.

#include <gtest/gtest.h>

#include "engine/executor.hpp"
#include "engine/groups.hpp"
#include "kernels/launch/exec.hpp"
#include "program/ops/emit.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/programs.hpp"

namespace ztrain::messages_test {
namespace {

using program::Program;
using program::TensorId;
using test::Builder;
using test::session;

constexpr program::Action action{program::ActionKind::send, -1, -1};

class Messages : public testing::Test {
 protected:
  static void SetUpTestSuite() { kernels::initialize_backend(); }

  Messages() : b_("messages", session().rank()) { b_.program.mesh[Axis::pipeline] = session().size(); }

  int rank() const { return session().rank(); }
  int ranks() const { return session().size(); }

  /// Persistent, of as many values.
  TensorId values(const char* name, std::int64_t count) { return b_.persistent(name, count); }

  /// Runs the Program twice, with value i of `in` set to 100 rank + i.
  std::vector<float> run(TensorId in, TensorId out) {
    b_.finish();
    program::verify_rank(b_.program);
    const std::unique_ptr<runtime::Device> device = runtime::make_host_device();
    const engine::JobMemory memory({&b_.program}, memory::Arena::Guards::off, device->memory(),
                                   device->staging());
    engine::Queues queues(*device);
    runtime::Mesh mesh(session(), b_.program.mesh);
    engine::Executor executor(b_.program, memory, engine::with_groups(mesh, {&b_.program}), queues);
    float* const from = memory.data<float>(b_.program, in);
    for (std::int64_t i = 0; i < elements(b_.program.tensor(in).shape); ++i)
      from[i] = static_cast<float>(100 * rank() + i);
    for (int i = 0; i < 2; ++i) executor.run();
    std::int64_t planned = 0;
    for (const program::Op& op : b_.program.ops) planned += 2 * op.comm.sent_bytes;
    std::int64_t sent = 0;
    for (const runtime::Mesh::Sent& s : mesh.bytes_sent()) sent += s.bytes;
    EXPECT_EQ(sent, planned);
    const float* const to = memory.data<float>(b_.program, out);
    return {to, to + elements(b_.program.tensor(out).shape)};
  }

  Builder b_;
};

TEST_F(Messages, AShiftGoesRoundTheRing) {
  const TensorId in = values("in", 5), there = values("there", 5), out = values("out", 5);
  emit_shift(b_.program, "on", in, there, Axis::pipeline, 1, action);
  emit_shift(b_.program, "back", there, out, Axis::pipeline, ranks() - 1, action);
  const std::vector<float> found = run(in, there);
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_EQ(found[i], static_cast<float>(100 * ((rank() + ranks() - 1) % ranks())) + static_cast<float>(i));
}

TEST_F(Messages, AllToAllTransposes) {
  const TensorId in = values("in", 3 * ranks()), out = values("out", 3 * ranks());
  emit_all_to_all(b_.program, "transpose", in, out, Axis::pipeline, action);
  const std::vector<float> found = run(in, out);
  for (int from = 0; from < ranks(); ++from)
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(found[static_cast<std::size_t>(3 * from + i)],
                static_cast<float>(100 * from + 3 * rank() + i));
}

TEST_F(Messages, ABroadcastComesFromItsRoot) {
  const TensorId in = values("in", 4);
  emit_broadcast(b_.program, "all", in, Axis::pipeline, ranks() - 1, action);
  const std::vector<float> found = run(in, in);
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(found[static_cast<std::size_t>(i)], static_cast<float>(100 * (ranks() - 1) + i));
}

/// Each stage hands on what it got, in Programs of its own; the last one hands it back to the first, over a
/// communicator that the others do not ask for.
TEST_F(Messages, StagesHandOn) {
  const TensorId in = values("in", 6), out = values("out", 6);
  if (rank() > 0) emit_recv(b_.program, "before", out, Axis::pipeline, rank() - 1, action);
  emit_send(b_.program, "after", rank() == 0 ? in : out, Axis::pipeline, (rank() + 1) % ranks(), action);
  if (rank() == 0) emit_recv(b_.program, "last", out, Axis::pipeline, ranks() - 1, action);
  const std::vector<float> found = run(in, out);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(found[static_cast<std::size_t>(i)], static_cast<float>(i));
}

}  // namespace
}  // namespace ztrain::messages_test
