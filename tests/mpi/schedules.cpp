// Whatever the order of a step's turns, its losses, norms and weights are those of one micro-batch after the
// other, bit for bit.

#include <gtest/gtest.h>

#include "kernels/launch/exec.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/schedules.hpp"
#include "tests/support/tiny_job.hpp"

namespace ztrain::schedules_test {
namespace {

using test::session;
using test::TinyModel;

TEST(Schedules, GiveTheSameBits) {
  kernels::initialize_backend();
  TinyModel m;
  m.dims.num_hidden_layers = 4;
  m.dims.attention_bias = true;
  m.global = 4 * session().size();
  for (const char* strategy : {"zero2", "FULL_SHARD"})
    for (const bool every_micro : {false, true}) {
      MeshShape mesh;
      mesh[Axis::shard] = session().size();
      program::JobSpec spec =
          test::spec_for(m, mesh, strategy, {DType::bf16, DType::f32, DType::f32, DType::f32, DType::f32});
      spec.sharding.reduce.every_micro = every_micro;
      spec.recompute.every = every_micro ? 2 : 0;
      const std::vector<double> expected = test::losses_of(session(), m, spec, 2);
      for (const program::Schedule& schedule : test::other_schedules) {
        spec.schedule = schedule;
        EXPECT_EQ(test::losses_of(session(), m, spec, 2, true), expected)
            << strategy << ", " << schedule.name << ", every micro-batch reduced " << every_micro;
      }
    }
}

}  // namespace
}  // namespace ztrain::schedules_test
