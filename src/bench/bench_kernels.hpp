#pragma once
// Runs each kernel of a train step alone: how long it takes, how near it comes to the machine's best, and
// what it adds up to in a step.

#include <string>
#include <vector>

#include "bench/bench_worker.hpp"

namespace ztrain::bench {

/// One kernel at one shape: all ops of the step with this type and these operands.
struct KernelTime {
  std::string type;  ///< type in the op table
  /// Such as "[1024, 896] x [4864, 896] bf16"; a trailing + means that it adds to its output.
  std::string shape;
  std::string example;  ///< name of one of the ops
  std::string action;   ///< kind of that op's action
  std::string way;      ///< for products on CPUs: Gemm::implementation()
  bool communicates = false;
  int count = 0;       ///< ops in a step
  double seconds = 0;  ///< seconds of one launch, the mean over back-to-back launches
  double flops = 0;    ///< FLOPs of one launch; 0: it moves data
  double bytes = 0;    ///< bytes of one launch that are read and written, or sent
  double total() const { return count * seconds; }
  double flops_per_second() const { return flops / seconds; }
  double bytes_per_second() const { return bytes / seconds; }
};

/// Best rates of the machine, measured with ztrain's own kernels.
struct Ceiling {
  std::string product;          ///< name and shape of the largest product of a step
  double flops_per_second = 0;  ///< rate of the fastest among that product and its gradients
  double bytes_per_second = 0;  ///< bytes that a copy reads and writes per second
};

/// Collective over the mesh. Runs kernels out of order on the worker's memory, and so destroys its state.
Ceiling measure_ceiling(job::Worker& worker);

/// Collective over the mesh. Returns the time of every kernel of the step, the largest total first. First
/// fills floating-point operands that live within the step with random numbers; those that fit the caches
/// stay there. `phase` shows the kernel in progress.
std::vector<KernelTime> measure_kernels(const runtime::Session& session, job::Worker& worker,
                                        telemetry::Phase& phase);

}  // namespace ztrain::bench
