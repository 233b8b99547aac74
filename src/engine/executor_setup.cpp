// What an Executor prepares before the first run.

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "config/validate/refusals.hpp"
#include "engine/executor.hpp"
#include "program/ir/order.hpp"

namespace ztrain::engine {

using program::OpId;
using program::TensorId;

namespace {

/// Whether an op that is repeated is another one each time.
bool moves_on(const program::Program& program, OpId id) {
  const program::Op& op = program.op(id);
  const auto elsewhere = [&](TensorId t) { return moves(program, t); };
  return std::ranges::any_of(op.inputs, elsewhere) || std::ranges::any_of(op.outputs, elsewhere) ||
         std::ranges::any_of(program.repeat.attributes, [&](const auto& step) { return step.op == id; });
}

/// Every access comes before `last` starts, or is `last`.
bool all_before(const program::Order& order, OpId last, const std::vector<OpId>& accesses) {
  return std::ranges::all_of(accesses,
                             [&](OpId access) { return access == last || order.before(access, last); });
}

}  // namespace

Executor::Executor(const program::Program& program, const JobMemory& memory, runtime::Mesh& mesh,
                   Queues& queues, ExecutorOptions options)
    : program_(program),
      memory_(memory),
      queues_(queues),
      device_(queues.device()),
      options_(std::move(options)),
      asynchronous_(device_.asynchronous()),
      fingerprint_(fingerprint_of(program)),
      issues_(program),
      timer_(device_) {
  bind_ops(mesh);
  make_in_flight();
  if (!device_.captures()) options_.graphs = Graphs::none;
  if (asynchronous_) make_events();
  make_segments();
  if (asynchronous_) make_stretches();
  if (options_.poison) find_ends();
}

void Executor::bind_ops(runtime::Mesh& mesh) {
  std::vector<int> bound_as(program_.ops.size(), -1);  // by index into Program::ops
  for (OpId issue = 0; issue < issues_.size(); ++issue) {
    int& index = bound_as[at(issues_.id(issue))];
    if (index < 0 || (issues_.time(issue) > 0 && moves_on(program_, issues_.id(issue))))
      index = bind_op(issue, mesh);
    bound_of_.push_back(index);
    const auto& collective = bound(issue).collective;
    host_driven_.push_back(collective && !collective->on_device());
  }
}

void Executor::make_in_flight() {
  std::vector<InFlight::Site> sites;
  for (OpId issue = 0; issue < issues_.size(); ++issue) {
    const auto& collective = bound(issue).collective;
    sites.push_back(
        {host_driven_[at(issue)], bound_of_[at(issue)], collective && collective->shares_memory()});
  }
  in_flight_.emplace(program_, issues_, sites);
}

/// The index of what is bound.
int Executor::bind_op(OpId issue, runtime::Mesh& mesh) {
  const int time = issues_.time(issue);
  if (time > 0) moved_.push_back(op_at(program_, issues_.id(issue), time));
  const program::Op& op = time > 0 ? moved_.back() : issues_.op(issue);
  try {
    bound_.push_back(options_.bind({program_, op, memory_, mesh, device_, queues_.exec(queue_of(op.stream)),
                                    issues_.id(issue), time, &queues_}));
  } catch (const Error& e) {
    fail("{}, {}: {}", program_.name, describe_issue(program_, issue), e.what());
  }
  for (Note& note : bound_.back().notes)
    if (std::ranges::find(notes_, note) == notes_.end()) notes_.push_back(std::move(note));
  return static_cast<int>(bound_.size()) - 1;
}

void Executor::make_events() {
  order_ = order_ops(unrolled(program_), host_driven_);
  const std::size_t count = at(issues_.size());
  events_.assign(count, 0);
  timed_waits_.assign(count, EventTimer::none);
  std::array<bool, runtime::queue_count> used{};
  for (std::size_t i = 0; i < count; ++i) {
    const auto id = static_cast<OpId>(i);
    const runtime::Queue queue = queue_of(issues_.op(id).stream);
    if (order_.signals[i] || (host_driven_[i] && bound(id).launch)) events_[i] = device_.make_event();
    used[static_cast<std::size_t>(queue)] |= !host_driven_[i] || bound(id).launch;
    if (queue == runtime::compute_queue && !order_.waits[i].empty()) timed_waits_[i] = timer_.add(queue);
  }
  fork_ = device_.make_event();
  end_ = device_.make_event();
  for (runtime::Queue q = 0; q < runtime::queue_count; ++q)
    if (q != runtime::compute_queue && used[static_cast<std::size_t>(q)]) {
      others_.push_back(q);
      joins_.push_back(device_.make_event());
    }
  if (!others_.empty()) timed_join_ = timer_.add(runtime::compute_queue);
}

void Executor::make_segments() {
  std::vector<Site> sites(at(issues_.size()));
  for (std::size_t i = 0; i < sites.size() && options_.graphs != Graphs::none; ++i) {
    const auto id = static_cast<OpId>(i);
    sites[i].kernel = queue_of(issues_.op(id).stream) == runtime::compute_queue && !bound(id).collective;
    sites[i].signals = order_.signals[i];
    sites[i].waits = waits(id);
  }
  segments_ = segments_of(options_.graphs, sites);
  graphs_.assign(segments_.size(), -1);
}

/// Whether the op begins once work of another queue, or of the host, is done.
bool Executor::waits(OpId id) const {
  bool found = !order_.waits[at(id)].empty();
  issues_.each_before(id, [&](OpId earlier) { found = found || host_driven_[at(earlier)]; });
  return found;
}

/// Ops of one kind that a queue runs one after the other, without a wait for others, communication that the
/// host drives or a captured segment in between, have one clock: two events cost little then.
void Executor::make_stretches() {
  timed_begins_.assign(at(issues_.size()), EventTimer::none);
  timed_ends_ = timed_begins_;
  for (const Segment& segment : segments_) {
    std::array<OpId, runtime::queue_count> last;  // of each queue in this segment, or -1
    last.fill(-1);
    for (OpId id = segment.begin; id < segment.end; ++id) {
      const program::Op& op = issues_.op(id);
      OpId& before = last[static_cast<std::size_t>(queue_of(op.stream))];
      const bool goes_on =
          !options_.timed && before >= 0 && !waits(id) && issues_.op(before).action.kind == op.action.kind;
      if (host_driven_[at(id)]) {
        last.fill(-1);
        continue;
      }
      const runtime::Queue queue = queue_of(op.stream);
      timed_begins_[at(id)] = goes_on ? EventTimer::none : timer_.add(queue, op.action.kind);
      timed_ends_[at(id)] =
          goes_on ? std::exchange(timed_ends_[at(before)], EventTimer::none) : timed_begins_[at(id)];
      if (goes_on)
        progress_.extend(queue, id);
      else
        progress_.begin(timed_begins_[at(id)], queue, id);
      before = id;
    }
  }
}

void Executor::require_capturable() const {
  for (std::size_t i = 0; i < host_driven_.size() && options_.graphs == Graphs::step; ++i) {
    if (!host_driven_[i]) continue;
    const bool communicates = issues_.op(static_cast<OpId>(i)).communicates();
    config::refuse(communicates ? "device.cuda_graphs device.communicator" : "device.cuda_graphs offload.*",
                   {{"op", describe_issue(program_, static_cast<OpId>(i))}});
  }
}

/// Of the host's memory NaN in every float type, too.
Executor::Fill Executor::fill_of(const program::Tensor& tensor, std::byte* to, runtime::Queue queue) {
  const std::int64_t bytes = tensor.bytes();
  if (tensor.tier == program::Tier::host)
    return {true, [to, bytes] { std::memset(to, 0xFF, static_cast<std::size_t>(bytes)); }};
  kernels::Exec& exec = queues_.exec(queue);
  // Of workspaces a line of each page: a library's reservation is as large for the smallest product, and to
  // fill all of it would take longer than a small model's step. Tests of kernels fill theirs wholly.
  const std::int64_t every =
      tensor.category == program::Category::workspace ? kernels::poison_page : kernels::poison_line;
  return {false, [this, &exec, to, bytes, every] { options_.fill(exec, to, bytes, every); }};
}

/// A fill is work of the queue of the tensor's last op, right after it: who waits for that op, as all who use
/// the bytes next do, then waits for the fill. Where another queue may still use the tensor, it is left.
void Executor::find_ends() {
  const program::Program step = unrolled(program_);
  const std::size_t count = step.ops.size();
  poison_.resize(count);
  poison_behind_.resize(count);
  program::Order order(step);
  std::vector<std::vector<OpId>> accesses(step.tensors.size());
  for (OpId id = 0; id < static_cast<OpId>(count); ++id) {
    order.append(id);
    for (const auto* operands : {&step.op(id).inputs, &step.op(id).outputs})
      for (const TensorId t : *operands) accesses[static_cast<std::size_t>(step.storage(t))].push_back(id);
  }
  for (std::size_t t = 0; t < step.tensors.size(); ++t) {
    const program::Tensor& tensor = step.tensors[t];
    if (tensor.persistent || tensor.base != program::no_tensor || tensor.last < 0) continue;
    if (tensor.tier == program::Tier::nvme) continue;
    if (asynchronous_ && !all_before(order, tensor.last, accesses[t])) continue;
    for (const OpId access : accesses[t])
      if (host_driven_[at(access)]) poison_behind_[at(tensor.last)].push_back(access);
    std::byte* const to = memory_.address(step, static_cast<TensorId>(t));
    poison_[at(tensor.last)].push_back(fill_of(tensor, to, queue_of(step.op(tensor.last).stream)));
  }
}

}  // namespace ztrain::engine
