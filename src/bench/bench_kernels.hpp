#pragma once
// The kernels of a train step, each run alone: how long it takes, how near it comes to what the machine does,
// and what it adds up to in a step.

#include <string>
#include <vector>

#include "bench/bench_worker.hpp"

namespace ztrain::bench {

/// One kernel at one shape: all ops of the step with this type and these operands.
struct KernelTime {
  std::string type;     ///< of the op table
  std::string shape;    ///< "[1024, 896] x [4864, 896] bf16"; + behind: adds to what is there
  std::string example;  ///< name of one of the ops
  std::string action;   ///< kind of that op's action
  std::string way;      ///< of products on CPUs: Gemm::implementation()
  bool communicates = false;
  int count = 0;       ///< ops in a step
  double seconds = 0;  ///< of one, mean over back-to-back launches
  double flops = 0;    ///< of one; 0: it moves data
  double bytes = 0;    ///< of one: read and written, or sent
  double total() const { return count * seconds; }
  double flops_per_second() const { return flops / seconds; }
  double bytes_per_second() const { return bytes / seconds; }
};

/// What the machine does at best, by ztrain's own kernels.
struct Ceiling {
  std::string product;          ///< name and shape of the largest product of a step
  double flops_per_second = 0;  ///< of the fastest of that product and its gradients
  double bytes_per_second = 0;  ///< of a copy, read and written
};

/// Collective over the mesh. Runs kernels out of order on the worker's memory: its state is worth nothing
/// afterwards.
Ceiling measure_ceiling(job::Worker& worker);

/// Collective over the mesh. Every kernel of the step, the largest total first. Floating-point operands that
/// live within the step are filled with random numbers first; those that fit the caches stay there. phase is
/// told which kernel it is at.
std::vector<KernelTime> measure_kernels(const runtime::Session& session, job::Worker& worker,
                                        telemetry::Phase& phase);

}  // namespace ztrain::bench
