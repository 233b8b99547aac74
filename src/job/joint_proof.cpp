#include "job/joint_proof.hpp"

#include <map>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "program/jobs/program_set.hpp"

namespace ztrain::job {
namespace {

using program::Program;

std::uint64_t hash_operands(const Program& program, const program::Op& op, std::uint64_t h) {
  for (const auto* operands : {&op.inputs, &op.outputs})
    for (const program::TensorId id : *operands) {
      const program::Tensor& tensor = program.tensor(id);
      const std::int64_t facts[] = {static_cast<std::int64_t>(tensor.dtype), tensor.bytes()};
      h = hash_bytes(facts, sizeof facts, h);
    }
  return h;
}

/// Equal for ranks whose Programs have the same ops, order and communications.
std::uint64_t fingerprint(const Programs& programs) {
  std::uint64_t h = 0;
  for (const Program* p : programs) {
    const std::int64_t repeat[] = {p->repeat.begin, p->repeat.end, p->repeat.times};
    h = hash_bytes(repeat, sizeof repeat, h);
    for (const program::Op& op : p->ops) {
      h = hash_text(op.type, h);
      const std::int64_t facts[] = {static_cast<std::int64_t>(op.stream),
                                    static_cast<std::int64_t>(op.comm.kind), op.comm.axes.bits(),
                                    op.comm.peer};
      h = hash_bytes(facts, sizeof facts, h);
      if (op.communicates()) h = hash_operands(*p, op, h);
      h = hash_bytes(op.after.data(), op.after.size() * sizeof(program::OpId), h);
    }
  }
  return h;
}

void prove_classes(const Programs& own, const std::vector<std::uint64_t>& fingerprints,
                   const std::function<std::vector<Program>(int rank)>& compile) {
  std::map<std::uint64_t, std::vector<int>> ranks_of;
  for (std::size_t r = 0; r < fingerprints.size(); ++r)
    ranks_of[fingerprints[r]].push_back(static_cast<int>(r));
  std::vector<std::vector<Program>> others;
  others.reserve(ranks_of.size());
  std::vector<Programs> jobs;
  std::vector<std::vector<int>> classes;
  for (const auto& [print, ranks] : ranks_of) {
    classes.push_back(ranks);
    if (ranks.front() == own.front()->rank) {
      jobs.push_back(own);
    } else {
      others.push_back(compile(ranks.front()));
      jobs.emplace_back();
      for (const Program& p : others.back()) jobs.back().push_back(&p);
    }
  }
  program::verify_together(jobs, classes);
}

}  // namespace

void prove_together(const runtime::Session& session, const Programs& own,
                    const std::function<std::vector<Program>(int rank)>& compile) {
  const std::uint64_t mine = fingerprint(own);
  std::vector<std::uint64_t> all(static_cast<std::size_t>(session.size()));
  REQUIRE(MPI_Allgather(&mine, 1, MPI_UINT64_T, all.data(), 1, MPI_UINT64_T, session.world()) == MPI_SUCCESS,
          "MPI_Allgather failed while the ranks compared their programs");
  session.agree("verifying the programs", [&] {
    if (session.rank() == 0) prove_classes(own, all, compile);
  });
}

}  // namespace ztrain::job
