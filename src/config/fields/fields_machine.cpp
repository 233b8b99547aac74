#include "config/fields/fields_rows.hpp"

#include "config/fields/presets.hpp"

namespace ztrain::config::rows {

std::vector<Field> size_of_machine() {
  return {
      free({KEY_OF(cluster, preset), R"("custom")", "", one_of(cluster_preset_names()),
            "Named machine whose published figures are taken, per GPU: 8 to a node, dense peak in 16 bits or "
            "fp32, nominal bandwidths, one network port each; keys given below win over it."}),
      free(read_path(
          {KEY_OF(cluster, machine), R"("")", "", any(),
           "Machine file with the rates of which a plan's time is (docs/plan.md). Empty: that of the "
           "preset, if it has one."})),
      free({KEY_OF(cluster, ranks_per_node), "0", "ranks", between(0, 1 << 16),
            "Ranks on one node. 0: as launched. A preset's number serves plans; a run takes what was "
            "launched. Sums of 16-bit elements over several nodes are formed within each node first. To keep "
            "a "
            "run's bits when it resumes with another number of ranks per node, give this key."}),
      free({KEY_OF(cluster, device_memory), "0", "GB per rank", between(0, 1e9),
            "Memory of the device; GB are 1e9 bytes. 0: unknown."}),
      free({KEY_OF(cluster, host_memory), "0", "GB per node", between(0, 1e9),
            "Memory of a node's host. 0: unknown."}),
      free({KEY_OF(cluster, outside_memory), "0", "GB per rank", between(0, 1e9),
            "Device memory that the plan cannot see: the context of the driver, buffers of the communication "
            "library, workspaces of libraries."}),
  };
}

std::vector<Field> speed_of_machine() {
  return {
      free({KEY_OF(cluster, peak_tflops), "0", "TFLOP/s per rank", between(0, 1e9),
            "Dense peak at the dtype of the parameters, for simulation and for the utilisation printed. 0: "
            "unknown, none is printed."}),
      free({KEY_OF(cluster, compute_efficiency), "0.7", "", share(),
            "Share of the peak that matrix products reach."}),
      free({KEY_OF(cluster, memory_bandwidth), "0", "GB/s per rank", between(0, 1e9),
            "Nominal bandwidth of the device's memory. 0: unknown."}),
      free({KEY_OF(cluster, memory_efficiency), "0.85", "", share(),
            "Share of it that element-wise kernels reach."}),
      free({KEY_OF(cluster, intra_node_bandwidth), "0", "GB/s per rank and direction", between(0, 1e9),
            "Between ranks of one node. 0: unknown."}),
      free({KEY_OF(cluster, inter_node_bandwidth), "0", "GB/s per rank and direction", between(0, 1e9),
            "Between nodes. 0: unknown."}),
      free({KEY_OF(cluster, host_bandwidth), "0", "GB/s per rank", between(0, 1e9),
            "Between a device and its node's memory, in each direction, with all ranks of the node at work. "
            "0: unknown."}),
      free({KEY_OF(cluster, host_memory_bandwidth), "0", "GB/s per rank", between(0, 1e9),
            "Of the node's memory for what the host steps there (offload.optimizer_on), read and written, "
            "with all ranks of the node at work. 0: unknown, as cluster.host_bandwidth."}),
      free({KEY_OF(cluster, nvme_bandwidth), "0", "GB/s per rank", between(0, 1e9),
            "Of the node's drives, for each of its ranks. 0: unknown."}),
      free({KEY_OF(cluster, latency), "10", "microseconds per message", between(0, 1e9),
            "Time of a message besides that of its bytes."}),
      free({KEY_OF(cluster, launch), "0", "microseconds per op", between(0, 1e9),
            "Time in which the host issues an op of a device. 0: unknown, none is counted."}),
      free({KEY_OF(cluster, multiprocessors), "0", "per rank", between(0, 1 << 16),
            "Number of multiprocessors of the device. In the plan, those that communication takes "
            "(device.nccl_max_ctas) compute nothing. 0: unknown, all compute."}),
  };
}

std::vector<Field> device() {
  return {
      on_gpus(free(
          {KEY_OF(device, communicator), R"("auto")", "", one_of({"auto", "nccl", "mpi"}),
           "nccl: GPUs exchange data themselves. mpi: through the hosts' memory, for sites without NCCL and "
           "for several ranks on one GPU. auto: nccl where each rank of a node has a GPU of its own."})),
      on_request(numeric(
          {KEY_OF(device, reduction), R"("fp32_sum")", "", one_of({"fp32_sum", "nccl"}),
           "How NCCL reduces gradients that travel in 16 bits. fp32_sum: an exchange, then a sum in fp32 "
           "in rank order, as CPU ranks do it; over several nodes within each node first, then over the "
           "nodes. nccl: its own reduction, which rounds at every hop; CPU ranks then sum in rank order "
           "whatever "
           "the nodes. fp32 gradients are reduced by NCCL either way."})),
      on_gpus(free(
          {KEY_OF(device, nccl_max_ctas), "16", "multiprocessors", between(0, 64),
           "Multiprocessors that a collective of NCCL's may take from products (NCCL_MAX_CTAS); products are "
           "chosen for those that are left. 0: NCCL's choice, and products count on all. The order in which "
           "NCCL adds fp32 gradients may depend on it."})),
      on_gpus(free(
          {KEY_OF(device, nccl_max_ctas_pairs), "4", "multiprocessors", between(0, 64),
           "Multiprocessors that a message between pipeline stages may take. Its kernel may wait long for "
           "the "
           "other stage. 0: NCCL's choice."})),
      on_gpus(free(
          {KEY_OF(device, cuda_graphs), R"("none")", "", one_of({"none", "compute", "step"}),
           "Capture the step once and replay it. compute: the stretches between communications. step: all "
           "of it, NCCL inside; between nodes its messages may then wait for optimizer steps on "
           "the host (offload.optimizer_on)."})),
      on_cpus(free(numeric(
          {KEY_OF(device, bf16_products), R"("auto")", "", one_of({"auto", "native", "fp32"}),
           "How CPUs form products of bf16 matrices, attention's among them. native: by "
           "instructions for them (AVX512-BF16, "
           "AMX). fp32: from panels widened to fp32, which any processor has, multiplied as "
           "fp32_products says. auto: what is faster "
           "on rank 0's kind of processor, for all ranks. Results differ in the last bits, and a "
           "resumed run says where the way is another than that of the run before. GPUs take no notice."}))),
      on_cpus(free(numeric(
          {KEY_OF(device, fp32_products), R"("auto")", "", one_of({"auto", "native", "bf16x6"}),
           "How CPUs form products of fp32 matrices. native: by fused multiply-adds. bf16x6: by AMX: "
           "each number is the sum of three bf16, and six products of these are added, with errors "
           "like native's; up to 1.5 times as fast where a job has its processors to itself. On a "
           "shared machine others may hold AMX back: compare with native (ztrain bench). auto: "
           "bf16x6 where rank 0's "
           "processor has AMX, for all ranks that have it. Results differ in the last bits, and a "
           "resumed run says where the way is another than that of the run before. GPUs take no notice."}))),
      on_gpus(on_request(
          numeric({KEY_OF(device, tf32), "false", "", any(),
                   "Products of fp32 matrices round their inputs to tf32 and are several times as fast."}))),
      on_gpus(on_request(numeric(
          {KEY_OF(device, deterministic), "true", "", any(),
           "Attention's backward sums in a fixed order: the same bits on every run, at some cost."}))),
      on_gpus(free(written_path(
          {KEY_OF(device, algorithms), R"("")", "", any(),
           "File that keeps, per GPU model, which algorithm was the fastest for each matrix product, so that "
           "only the first start measures. Empty: ztrain/algorithms.json in $XDG_CACHE_HOME or ~/.cache."}))),
  };
}

std::vector<Field> debug() {
  return {
      free({KEY_OF(debug, asynchronous), "false", "", any(),
            "CPU ranks issue work as to a GPU: it runs as late as dependencies allow, in an order drawn from "
            "run.seed, and the host may not touch its memory. No result may change."}),
      numeric({KEY_OF(debug, balanced_routing), "false", "", any(),
               "Tokens go to all experts in turn, whatever the router says. For timing alone: such a model "
               "learns nothing of use."}),
      free({KEY_OF(debug, poison), "false", "", any(),
            "Fill memory with NaN when it is released, so that a use after release shows."}),
  };
}

}  // namespace ztrain::config::rows
