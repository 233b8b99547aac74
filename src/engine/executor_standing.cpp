// What an executor tells a watchdog that compares ranks.

#include <fmt/format.h>

#include "base/hash.hpp"
#include "engine/executor.hpp"

namespace ztrain::engine {

using program::OpId;

std::uint64_t fingerprint_of(const program::Program& program) {
  const std::int64_t repeat[] = {program.repeat.begin, program.repeat.end, program.repeat.times};
  std::uint64_t h = hash_bytes(repeat, sizeof repeat);
  for (const program::Op& op : program.ops) {
    h = hash_text(op.name, hash_text(op.type, h));
    const std::int64_t facts[] = {static_cast<std::int64_t>(op.stream),
                                  static_cast<std::int64_t>(op.comm.kind), op.comm.axes.bits()};
    h = hash_bytes(facts, sizeof facts, h);
  }
  return h;
}

Standing Executor::standing() const {
  Standing s;
  s.at = position();
  const std::vector<std::int64_t> begun = begun_.last();
  if (begun.empty()) return s;
  const std::int64_t issues = program_.issues();
  s.program = program_.name;
  s.fingerprint = fingerprint_;
  s.sequence = begun.back();
  if (const std::string device = current() < 0 ? where() : ""; !device.empty()) s.at = device;
  const OpId other = waits_for_.load(std::memory_order_relaxed);
  if (other >= 0) {
    const program::Op& op = issues_.op(other);
    s.waits_for = s.sequence - s.sequence % issues + other;
    s.waits_for_what = place_of_issue(program_, other);
    s.axes = op.comm.axes;
    const bool message = op.comm.kind == program::CommKind::send || op.comm.kind == program::CommKind::recv;
    if (message) s.peer = op.comm.peer;
  }
  s.under_way = !s.at.empty();
  std::string before;
  for (const std::int64_t sequence : begun) {
    std::string action = place_of_issue(program_, static_cast<OpId>(sequence % issues));
    if (action != before) s.last.push_back(fmt::format("{} {}", sequence, action));
    before = std::move(action);
  }
  return s;
}

}  // namespace ztrain::engine
