// What an Executor prepares before the first run.

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.hpp"
#include "base/index.hpp"
#include "engine/executor.hpp"
#include "kernels/bytes.hpp"
#include "program/order.hpp"

namespace ztrain::engine {

using program::OpId;
using program::TensorId;

namespace {

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
      timer_(device_) {
  bind_ops(mesh);
  pending_.assign(program.ops.size(), false);
  in_flight_.fill(-1);
  if (!device_.captures()) options_.graphs = Graphs::none;
  if (asynchronous_) make_events();
  make_segments();
  if (asynchronous_) make_stretches();
  if (options_.poison) find_ends();
}

void Executor::bind_ops(runtime::Mesh& mesh) {
  bound_.reserve(program_.ops.size());
  for (std::size_t i = 0; i < program_.ops.size(); ++i) {
    const program::Op& op = program_.ops[i];
    try {
      bound_.push_back(options_.bind({program_, op, memory_, mesh, queues_.exec(queue_of(op.stream))}));
    } catch (const Error& e) {
      fail("{}, {}: {}", program_.name, describe(program_, static_cast<OpId>(i)), e.what());
    }
    for (Note& note : bound_.back().notes)
      if (std::ranges::find(notes_, note) == notes_.end()) notes_.push_back(std::move(note));
    const auto& collective = bound_.back().collective;
    host_driven_.push_back(collective && !collective->on_device());
  }
}

void Executor::make_events() {
  order_ = order_ops(program_, host_driven_);
  const std::size_t count = program_.ops.size();
  events_.assign(count, 0);
  timed_waits_.assign(count, EventTimer::none);
  std::array<bool, runtime::queue_count> used{};
  for (std::size_t i = 0; i < count; ++i) {
    const program::Op& op = program_.ops[i];
    const runtime::Queue queue = queue_of(op.stream);
    if (order_.signals[i] || (host_driven_[i] && bound_[i].launch)) events_[i] = device_.make_event();
    used[static_cast<std::size_t>(queue)] |= !host_driven_[i] || bound_[i].launch;
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
  std::vector<Site> sites(program_.ops.size());
  for (std::size_t i = 0; i < sites.size() && options_.graphs != Graphs::none; ++i) {
    const program::Op& op = program_.ops[i];
    sites[i].kernel = queue_of(op.stream) == runtime::compute_queue && !bound_[i].collective;
    sites[i].signals = order_.signals[i];
    sites[i].waits = waits(static_cast<OpId>(i));
  }
  segments_ = segments_of(options_.graphs, sites);
  graphs_.assign(segments_.size(), -1);
}

/// Whether the op begins once work of another queue, or of the host, is done.
bool Executor::waits(OpId id) const {
  const auto by_host = [&](OpId earlier) { return static_cast<bool>(host_driven_[at(earlier)]); };
  return !order_.waits[at(id)].empty() || std::ranges::any_of(program_.op(id).after, by_host);
}

/// Ops of one kind that a queue runs one after the other, without a wait for others, communication that the
/// host drives or a captured segment in between, have one clock: two events cost little then.
void Executor::make_stretches() {
  timed_begins_.assign(program_.ops.size(), EventTimer::none);
  timed_ends_ = timed_begins_;
  for (const Segment& segment : segments_) {
    std::array<OpId, runtime::queue_count> last;  // of each queue in this segment, or -1
    last.fill(-1);
    for (OpId id = segment.begin; id < segment.end; ++id) {
      const program::Op& op = program_.op(id);
      OpId& before = last[static_cast<std::size_t>(queue_of(op.stream))];
      const bool goes_on =
          !options_.timed && before >= 0 && !waits(id) && program_.op(before).action.kind == op.action.kind;
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
  for (std::size_t i = 0; i < host_driven_.size() && options_.graphs == Graphs::step; ++i)
    REQUIRE(!host_driven_[i],
            "device.cuda_graphs = \"step\": the host drives the communication of {}, so the step cannot be "
            "one graph: set device.communicator = \"nccl\", or device.cuda_graphs = \"compute\"",
            describe(program_, static_cast<OpId>(i)));
}

/// A fill is work of the queue of the tensor's last op, right after it: who waits for that op, as all who use
/// the bytes next do, then waits for the fill. Where another queue may still use the tensor, it is left.
void Executor::find_ends() {
  const std::size_t count = program_.ops.size();
  poison_.resize(count);
  program::Order order(program_);
  std::vector<std::vector<OpId>> accesses(program_.tensors.size());
  for (OpId id = 0; id < static_cast<OpId>(count); ++id) {
    order.append(id);
    for (const auto* operands : {&program_.op(id).inputs, &program_.op(id).outputs})
      for (const TensorId t : *operands)
        accesses[static_cast<std::size_t>(program_.storage(t))].push_back(id);
  }
  for (std::size_t t = 0; t < program_.tensors.size(); ++t) {
    const program::Tensor& tensor = program_.tensors[t];
    if (tensor.persistent || tensor.base != program::no_tensor || tensor.last < 0) continue;
    if (asynchronous_ && !all_before(order, tensor.last, accesses[t])) continue;
    kernels::Exec& exec = queues_.exec(queue_of(program_.op(tensor.last).stream));
    poison_[at(tensor.last)].push_back([&exec, to = memory_.address(program_, static_cast<TensorId>(t)),
                                        bytes = tensor.bytes()] { kernels::fill_poison(exec, to, bytes); });
  }
}

}  // namespace ztrain::engine
