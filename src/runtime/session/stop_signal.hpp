#pragma once
// SIGUSR1 asks a run to save and end: what SLURM sends ahead of a time limit with --signal.

#include <csignal>

namespace ztrain::runtime {

/// While it lives the signal is blocked in this thread and in those started after, and waits to be asked for.
/// Nothing runs in a signal handler. Afterwards it is ignored.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  /// True once the signal has arrived at this process.
  bool arrived();

 private:
  sigset_t watched_, before_;
  bool arrived_ = false;
};

}  // namespace ztrain::runtime
