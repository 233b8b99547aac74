// The proof of a job over its ranks: what one rank's Programs do otherwise is found before any of them runs,
// and every rank is told.

#include "job/joint_proof.hpp"

#include <gtest/gtest.h>

#include "program/jobs/compile.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/small_job.hpp"

namespace ztrain::joint_proof_test {
namespace {

using program::Op;
using program::Program;
using test::session;

/// Load, train step, evaluation.
std::vector<Program> programs_of(int rank) {
  program::Job job = program::compile(
      test::small_model(), test::spec_on(1, session().size(), program::find_strategy("FULL_SHARD")), rank);
  return job.programs.take();
}

std::vector<Op*> gathers_in(Program& program) {
  std::vector<Op*> found;
  for (Op& op : program.ops)
    if (op.comm.kind == program::CommKind::all_gather) found.push_back(&op);
  return found;
}

struct Fault {
  const char* name;
  const char* said;
  void (*plant)(std::vector<Program>&);
};

void swap_gathers(Program& program) {
  const std::vector<Op*> gathers = gathers_in(program);
  std::swap(*gathers.at(0), *gathers.at(1));
}

constexpr Fault faults[] = {
    {"order_in_the_step", "all_gather", [](std::vector<Program>& p) { swap_gathers(p[1]); }},
    {"order_in_the_evaluation", "all_gather", [](std::vector<Program>& p) { swap_gathers(p[2]); }},
    {"one_more_in_the_load", "all_gather",
     [](std::vector<Program>& p) {
       Op op = *gathers_in(p[1]).at(0);
       op.inputs = op.outputs = {0};
       p[0].ops.push_back(op);
     }},
    {"another_group", "all_gather",
     [](std::vector<Program>& p) { gathers_in(p[1]).at(0)->comm.axes = AxisSet::all(); }},
    {"another_type_of_the_same_size", "all_gather",
     [](std::vector<Program>& p) {
       const Op& op = *gathers_in(p[1]).at(0);
       for (const program::TensorId t : {op.inputs.at(0), op.outputs.at(0)})
         p[1].tensor(t).dtype = DType::f16;
     }},
};

class JointProof : public testing::TestWithParam<Fault> {};

/// As a job does it, where the last rank's Programs have a fault; none: nobody's have.
std::string proof(const Fault* fault) {
  const int last = session().size() - 1;
  const auto compiled = [&](int rank) {
    std::vector<Program> programs = programs_of(rank);
    if (fault && rank == last) fault->plant(programs);
    return programs;
  };
  const std::vector<Program> own = compiled(session().rank());
  try {
    job::prove_together(session(), {&own[0], &own[1], &own[2]}, compiled);
  } catch (const runtime::AgreedError& error) {
    return error.what();
  }
  return "proven";
}

TEST(RightJob, IsProven) {
  EXPECT_EQ(proof(nullptr), "proven");
}

TEST_P(JointProof, NamesTheRankThatDiffers) {
  const std::string message = proof(&GetParam());
  EXPECT_NE(message.find("rank " + std::to_string(session().size() - 1)), std::string::npos) << message;
  EXPECT_NE(message.find(GetParam().said), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(Faults, JointProof, testing::ValuesIn(faults),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace ztrain::joint_proof_test
