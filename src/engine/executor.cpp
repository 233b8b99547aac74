#include "engine/executor.hpp"

#include <chrono>

#include "base/error.hpp"
#include "kernels/bytes.hpp"

namespace ztrain::engine {

using program::OpId;
using program::TensorId;

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Executor::Executor(const program::Program& program, const JobMemory& memory, runtime::Mesh& mesh,
                   kernels::Exec& exec, ExecutorOptions options)
    : program_(program), memory_(memory), exec_(exec), options_(options) {
  bound_.reserve(program.ops.size());
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    try {
      bound_.push_back(bind({program, program.ops[i], memory, mesh, exec}));
    } catch (const Error& e) {
      fail("{}, {}: {}", program.name, describe(program, static_cast<OpId>(i)), e.what());
    }
  }
  pending_.assign(program.ops.size(), false);
  in_flight_.fill(-1);
  ends_.resize(options.poison ? program.ops.size() : 0);
  if (options.poison)
    for (std::size_t t = 0; t < program.tensors.size(); ++t) {
      const program::Tensor& tensor = program.tensors[t];
      if (!tensor.persistent && tensor.base == program::no_tensor && tensor.last >= 0)
        ends_[static_cast<std::size_t>(tensor.last)].push_back(static_cast<TensorId>(t));
    }
}

void Executor::run() {
  OpId id = 0;
  try {
    for (; id < static_cast<OpId>(program_.ops.size()); ++id) {
      current_.store(id, std::memory_order_relaxed);
      issue(id);
      progress();
      if (options_.poison) poison_after(id);
    }
    for (OpId pending : in_flight_)
      if (pending >= 0) finish(pending);
  } catch (const Error& e) {
    fail("{}, {}: {}", program_.name, describe(program_, id), e.what());
  }
  current_.store(-1, std::memory_order_relaxed);
}

void Executor::issue(OpId id) {
  const program::Op& op = program_.op(id);
  for (OpId earlier : op.after)
    if (pending_[static_cast<std::size_t>(earlier)]) finish(earlier);
  const auto stream = static_cast<std::size_t>(op.stream);
  if (in_flight_[stream] >= 0) finish(in_flight_[stream]);
  Bound& bound = bound_[static_cast<std::size_t>(id)];
  const double start = now();
  if (bound.collective) {
    bound.collective->start();
    pending_[static_cast<std::size_t>(id)] = true;
    in_flight_[stream] = id;
  } else {
    bound.launch();
  }
  timings_.seconds[static_cast<std::size_t>(op.action.kind)] += now() - start;
}

void Executor::finish(OpId id) {
  const double start = now();
  bound_[static_cast<std::size_t>(id)].collective->wait();
  timings_.exposed_communication += now() - start;
  pending_[static_cast<std::size_t>(id)] = false;
  in_flight_[static_cast<std::size_t>(program_.op(id).stream)] = -1;
}

/// Moves messages along between kernels, since nothing else does on CPU ranks.
void Executor::progress() {
  for (OpId& id : in_flight_) {
    if (id < 0) continue;
    const program::ActionKind kind = program_.op(id).action.kind;
    const double start = now();
    const bool done = bound_[static_cast<std::size_t>(id)].collective->test();
    timings_.seconds[static_cast<std::size_t>(kind)] += now() - start;
    if (!done) continue;
    pending_[static_cast<std::size_t>(id)] = false;
    id = -1;
  }
}

void Executor::poison_after(OpId id) {
  if (ends_[static_cast<std::size_t>(id)].empty()) return;
  // A communication issued earlier may still be sending from what this op was the last to be issued on.
  for (OpId pending : in_flight_)
    if (pending >= 0) finish(pending);
  for (TensorId t : ends_[static_cast<std::size_t>(id)])
    kernels::fill_poison(exec_, memory_.address(program_, t), program_.tensor(t).bytes());
}

}  // namespace ztrain::engine
