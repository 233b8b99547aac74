// The proof of a job over its ranks: what one rank's Programs do otherwise is found before any of them runs,
// and every rank is told.

#include "job/joint_proof.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "config/strategy.hpp"
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
      test::small_model(), test::spec_on(1, session().size(), config::find_strategy("FULL_SHARD")), rank);
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
  telemetry::Console silent;
  telemetry::Phase phase(silent, "proving");
  try {
    job::prove_together(session(), phase, {&own[0], &own[1], &own[2]}, compiled, {});
  } catch (const runtime::AgreedError& error) {
    return error.what();
  }
  return "proven";
}

TEST(RightJob, IsProven) {
  EXPECT_EQ(proof(nullptr), "proven");
}

/// A rank whose Programs have one op more, which changes nothing, is a class of its own.
TEST(LongProof, SaysHowFarItIsOnAllRanks) {
  const int last = session().size() - 1;
  std::FILE* lines = std::tmpfile();
  double now = 0;
  telemetry::Console console({.lines = lines, .progress = lines, .now = [&] { return now += 100; }});
  telemetry::Phase phase(console, "proving");
  const auto compiled = [&](int rank) {
    console.look();
    std::vector<Program> programs = programs_of(rank);
    if (rank != last) return programs;
    auto& ops = programs[1].ops;
    ops.push_back(*std::ranges::find_if(ops, [](const Op& op) { return !op.communicates(); }));
    return programs;
  };
  const std::vector<Program> own = compiled(session().rank());
  job::prove_together(session(), phase, {&own[0], &own[1], &own[2]}, compiled, {});
  console.look();
  std::string said(static_cast<std::size_t>(std::ftell(lines)), ' ');
  std::rewind(lines);
  EXPECT_EQ(std::fread(said.data(), 1, said.size(), lines), said.size());
  std::fclose(lines);
  EXPECT_NE(said.find("proving: program 3 of 3, "), said.npos) << said;
  const bool compiles = session().rank() == 0 && last > 0;
  EXPECT_EQ(said.find(" of 2, ") != said.npos, compiles) << said;
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
