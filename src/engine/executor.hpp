#pragma once
// Runs a Program: issues its ops in order from one host thread. On CPU ranks a kernel runs when it is issued;
// a communication is started, and its dependents wait for it.

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "engine/kernel_table.hpp"

namespace ztrain::engine {

struct ExecutorOptions {
  bool poison = false;  ///< fill transient tensors with NaN once their life is over
};

/// Seconds spent since the last clear, by kind of action. Waiting is not part of an action's seconds.
struct Timings {
  std::array<double, program::action_kind_count> seconds{};
  double exposed_communication = 0;  ///< the host waited for a communication to finish
  double of(program::ActionKind kind) const { return seconds[static_cast<std::size_t>(kind)]; }
};

class Executor {
 public:
  /// Binds every op. program, memory, mesh and exec must outlive the executor. Collective over the mesh:
  /// communicators are made in program order.
  Executor(const program::Program& program, const JobMemory& memory, runtime::Mesh& mesh, kernels::Exec& exec,
           ExecutorOptions options = {});

  /// One pass over the program; every communication is complete on return. Allocates nothing. Throws Error
  /// naming the op when one fails.
  void run();

  const program::Program& program() const { return program_; }
  const Timings& timings() const { return timings_; }
  void clear_timings() { timings_ = {}; }
  /// The op in progress, for a watchdog on another thread; -1 when idle.
  program::OpId current() const { return current_.load(std::memory_order_relaxed); }

 private:
  void issue(program::OpId id);
  void finish(program::OpId id);
  void progress();
  void poison_after(program::OpId id);

  const program::Program& program_;
  const JobMemory& memory_;
  kernels::Exec& exec_;
  ExecutorOptions options_;
  std::vector<Bound> bound_;
  std::vector<bool> pending_;
  std::array<program::OpId, program::stream_count>
      in_flight_{};                                   ///< the pending communication of each stream, or -1
  std::vector<std::vector<program::TensorId>> ends_;  ///< by op: transient tensors that end there
  Timings timings_;
  std::atomic<program::OpId> current_{-1};
};

}  // namespace ztrain::engine
