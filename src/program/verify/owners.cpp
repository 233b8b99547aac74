#include "program/verify/owners.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/index.hpp"

namespace ztrain::program {
namespace {

/// Elements [begin, end) of a unit's flat range.
struct Run {
  std::int64_t begin, end;
};

std::int64_t common(Run a, Run b) {
  return std::max<std::int64_t>(0, std::min(a.end, b.end) - std::max(a.begin, b.begin));
}

void check_norm(const Program& program, OpId id, const Coordinate& own) {
  const Op& op = program.op(id);
  const int unit = program.tensor(program.storage(op.inputs[0])).unit;
  const std::int64_t count = elements(program.tensor(op.inputs[0]).shape);
  const bool shard = count < program.unit_elements[at(unit)];
  const std::int64_t first = shard ? own.index_in(Axis::shard | Axis::context) * count : 0;
  const std::vector<std::int64_t>& pieces = op.attributes.integers("pieces");
  for (const ParameterPlace& p : program.parameters) {
    if (p.unit != unit || !p.trainable) continue;
    const Run all{p.begin, p.begin + p.count};
    std::int64_t counted = 0;
    for (std::size_t i = 0; i < pieces.size(); i += 2)
      counted += common(all, {first + pieces[i], first + pieces[i] + pieces[i + 1]});
    const bool copy = own[Axis::replicate] > 0 || (p.split < 0 && own[Axis::tensor] > 0);
    const std::int64_t wanted = copy ? 0 : common(all, {first, first + count});
    REQUIRE(counted == wanted, "{}: this rank's norm counts {} elements of {}, and it speaks for {}",
            describe(program, id), counted, p.name, wanted);
  }
}

}  // namespace

void verify_owners(const Program& program) {
  const Coordinate own(program.mesh, program.rank);
  for (OpId id = 0; id < static_cast<OpId>(program.ops.size()); ++id)
    if (program.op(id).type == "sum_squares") check_norm(program, id, own);
}

}  // namespace ztrain::program
