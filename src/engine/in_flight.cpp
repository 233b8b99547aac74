#include "engine/in_flight.hpp"

#include <algorithm>

#include "engine/kernel_table.hpp"

namespace ztrain::engine {
namespace {

using program::OpId;
using program::Program;
using program::Tensor;
using program::TensorId;

/// Whether two operands may share bytes. What moves on from time to time is not looked at more closely.
bool overlap(const Program& program, TensorId a, TensorId b) {
  const Tensor &first = program.tensor(program.storage(a)), &second = program.tensor(program.storage(b));
  if (first.tier != second.tier || first.persistent != second.persistent) return false;
  const auto begin = [&](TensorId t, const Tensor& base) {
    return base.address + (t == program.storage(t) ? 0 : program.tensor(t).offset);
  };
  if (moves(program, a) || moves(program, b)) return true;
  return begin(a, first) < begin(b, second) + program.tensor(b).bytes() &&
         begin(b, second) < begin(a, first) + program.tensor(a).bytes();
}

bool touches(const Program& program, const std::vector<TensorId>& written, const program::Op& other) {
  const auto meets = [&](TensorId w) {
    const auto shared = [&](TensorId t) { return overlap(program, w, t); };
    return std::ranges::any_of(other.inputs, shared) || std::ranges::any_of(other.outputs, shared);
  };
  return std::ranges::any_of(written, meets);
}

}  // namespace

InFlight::InFlight(const Program& program, const program::Issues& issues, const std::vector<Site>& sites)
    : beside_(sites.size(), 0), pending_(sites.size(), false) {
  std::array<std::vector<OpId>, program::stream_count> started;  // since the stream last did something else
  for (OpId issue = 0; issue < issues.size(); ++issue) {
    const Site& site = sites[static_cast<std::size_t>(issue)];
    const program::Op& op = issues.op(issue);
    std::vector<OpId>& before = started[at(op.stream)];
    if (!site.host_driven) {
      before.clear();
      continue;
    }
    int& count = beside_[static_cast<std::size_t>(issue)];
    for (auto it = before.rbegin(); it != before.rend() && count + 1 < at_most; ++it, ++count) {
      const Site& other = sites[static_cast<std::size_t>(*it)];
      if (other.bound == site.bound || other.shares_memory || site.shares_memory) break;
      if (touches(program, op.outputs, issues.op(*it)) || touches(program, issues.op(*it).outputs, op)) break;
    }
    before.push_back(issue);
    if (before.size() > at_most) before.erase(before.begin());
  }
  for (auto& of_stream : under_way_) of_stream.reserve(at_most);
}

int InFlight::surplus(OpId issue, program::Stream stream) const {
  const int now = static_cast<int>(on(stream).size());
  return std::max(0, now - beside_[static_cast<std::size_t>(issue)]);
}

void InFlight::start(OpId issue, program::Stream stream) {
  pending_[static_cast<std::size_t>(issue)] = true;
  under_way_[at(stream)].push_back(issue);
}

void InFlight::end_first(program::Stream stream) {
  auto& of_stream = under_way_[at(stream)];
  pending_[static_cast<std::size_t>(of_stream.front())] = false;
  of_stream.erase(of_stream.begin());
}

}  // namespace ztrain::engine
