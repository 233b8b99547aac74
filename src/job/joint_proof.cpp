#include "job/joint_proof.hpp"

#include <atomic>
#include <map>

#include "base/hash.hpp"
#include "base/parallel.hpp"
#include "base/shape.hpp"
#include "program/jobs/prove.hpp"
#include "program/passes/final_passes.hpp"

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
    const std::int64_t repeat[] = {p->repeat.begin, p->repeat.end, p->repeat.times, p->repeat.stride,
                                   p->repeat.warm_up};
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

}  // namespace

void prove_together(const runtime::Session& session, telemetry::Phase& phase, const Programs& own,
                    const Compile& compile, const program::JobSpec& spec) {
  const std::uint64_t mine = fingerprint(own);
  const std::vector<std::uint64_t> all = runtime::of_all(session, mine);
  std::map<std::uint64_t, std::vector<int>> ranks_of;
  for (std::size_t r = 0; r < all.size(); ++r) ranks_of[all[r]].push_back(static_cast<int>(r));
  std::vector<std::vector<int>> classes;
  for (const auto& [print, ranks] : ranks_of) classes.push_back(ranks);
  std::vector<std::vector<Program>> compiled(classes.size());
  std::atomic<int> begun = 0;
  session.agree("compiling the programs of other ranks", [&] {
    if (session.rank() != 0) return;
    in_parallel(static_cast<int>(classes.size()), [&](int c) {
      phase.at(fmt::format("class {} of {}", ++begun, classes.size()));
      const int rank = classes[at(c)].front();
      if (all[at(rank)] != mine) compiled[at(c)] = compile(rank);
    });
  });
  for (std::size_t which = 0; which < own.size(); ++which) {
    phase.at(fmt::format("program {} of {}", which + 1, own.size()));
    session.agree("verifying the programs", [&] {
      if (session.rank() != 0) return;
      Programs one;
      for (const std::vector<Program>& of_class : compiled)
        one.push_back(of_class.empty() ? own[which] : &of_class[which]);
      program::prove(spec, [&] { program::verify_no_deadlock(one, classes); });
    });
  }
}

}  // namespace ztrain::job
