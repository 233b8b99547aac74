#include "config/fields/fields_rows.hpp"

#include "config/presets.hpp"

namespace ztrain::config::rows {
namespace {

std::vector<Field> size_of_machine() {
  return {
      free({"cluster.preset", &at<&Deck::cluster, &Cluster::preset>, R"("custom")", "",
            one_of(cluster_preset_names()),
            "Named machine whose published figures are taken, per GPU: 8 to a node, dense peak in 16 bits or "
            "fp32, nominal bandwidths, one network port each; keys given below win over it."}),
      free({"cluster.ranks_per_node", &at<&Deck::cluster, &Cluster::ranks_per_node>, "0", "ranks",
            between(0, 1 << 16),
            "Ranks on one node. 0: as launched. A preset's number serves plans; a run takes what was "
            "launched."}),
      free({"cluster.device_memory", &at<&Deck::cluster, &Cluster::device_memory>, "0", "GB per rank",
            between(0, 1e9), "Memory of the device; GB are 1e9 bytes. 0: unknown."}),
      free({"cluster.host_memory", &at<&Deck::cluster, &Cluster::host_memory>, "0", "GB per node",
            between(0, 1e9), "Memory of a node's host. 0: unknown."}),
      free({"cluster.outside_memory", &at<&Deck::cluster, &Cluster::outside_memory>, "0", "GB per rank",
            between(0, 1e9),
            "Device memory that the plan cannot see: the context of the driver, buffers of the communication "
            "library, workspaces of libraries."}),
  };
}

std::vector<Field> speed_of_machine() {
  return {
      free({"cluster.peak_tflops", &at<&Deck::cluster, &Cluster::peak_tflops>, "0", "TFLOP/s per rank",
            between(0, 1e9),
            "Dense peak at the dtype of the parameters, for simulation and for the utilisation printed. 0: "
            "unknown, none is printed."}),
      free({"cluster.compute_efficiency", &at<&Deck::cluster, &Cluster::compute_efficiency>, "0.7", "",
            share(), "Share of the peak that matrix products reach."}),
      free({"cluster.memory_bandwidth", &at<&Deck::cluster, &Cluster::memory_bandwidth>, "0", "GB/s per rank",
            between(0, 1e9), "Nominal bandwidth of the device's memory. 0: unknown."}),
      free({"cluster.memory_efficiency", &at<&Deck::cluster, &Cluster::memory_efficiency>, "0.85", "",
            share(), "Share of it that element-wise kernels reach."}),
      free({"cluster.intra_node_bandwidth", &at<&Deck::cluster, &Cluster::intra_node_bandwidth>, "0",
            "GB/s per rank and direction", between(0, 1e9), "Between ranks of one node. 0: unknown."}),
      free({"cluster.inter_node_bandwidth", &at<&Deck::cluster, &Cluster::inter_node_bandwidth>, "0",
            "GB/s per rank and direction", between(0, 1e9), "Between nodes. 0: unknown."}),
      free({"cluster.host_bandwidth", &at<&Deck::cluster, &Cluster::host_bandwidth>, "0", "GB/s per rank",
            between(0, 1e9),
            "Between a device and its node's memory, in each direction, with all ranks of the node at work. "
            "0: unknown."}),
      free({"cluster.host_memory_bandwidth", &at<&Deck::cluster, &Cluster::host_memory_bandwidth>, "0",
            "GB/s per rank", between(0, 1e9),
            "Of the node's memory for what the host steps there (offload.optimizer_on), read and written, "
            "with all ranks of the node at work. 0: unknown, as cluster.host_bandwidth."}),
      free({"cluster.nvme_bandwidth", &at<&Deck::cluster, &Cluster::nvme_bandwidth>, "0", "GB/s per rank",
            between(0, 1e9), "Of the node's drives, for each of its ranks. 0: unknown."}),
      free({"cluster.latency", &at<&Deck::cluster, &Cluster::latency>, "10", "microseconds per message",
            between(0, 1e9), "Time of a message besides that of its bytes."}),
  };
}

std::vector<Field> device() {
  return {
      free({"device.communicator", &at<&Deck::device, &Device::communicator>, R"("auto")", "",
            one_of({"auto", "nccl", "mpi"}),
            "nccl: GPUs exchange data themselves. mpi: through the hosts' memory, for sites without NCCL and "
            "for several ranks on one GPU. auto: nccl where each rank of a node has a GPU of its own."}),
      numeric({"device.reduction", &at<&Deck::device, &Device::reduction>, R"("fp32_sum")", "",
               one_of({"fp32_sum", "nccl"}),
               "How NCCL reduces gradients that travel in 16 bits. fp32_sum: an exchange, then one sum in "
               "fp32 in rank order, as CPU ranks do it. nccl: its own reduction, which rounds at every hop. "
               "fp32 gradients are reduced by NCCL either way."}),
      free({"device.cuda_graphs", &at<&Deck::device, &Device::cuda_graphs>, R"("none")", "",
            one_of({"none", "compute", "step"}),
            "Capture the step once and replay it. compute: the stretches between communications. step: all "
            "of it, NCCL inside."}),
      free(numeric({"device.bf16_products", &at<&Deck::device, &Device::bf16_products>, R"("auto")", "",
                    one_of({"auto", "native", "fp32"}),
                    "How CPUs form products of bf16 matrices. native: by instructions for them (AVX512-BF16, "
                    "AMX). fp32: from panels widened to fp32, which any processor has. auto: what suits the "
                    "model of rank 0's processor, for all ranks. Results differ in the last bits, and a "
                    "resumed run says where it does otherwise than the run before. GPUs take no notice."})),
      numeric({"device.tf32", &at<&Deck::device, &Device::tf32>, "false", "", any(),
               "Products of fp32 matrices round their inputs to tf32 and are several times as fast."}),
      numeric({"device.deterministic", &at<&Deck::device, &Device::deterministic>, "true", "", any(),
               "Attention's backward sums in a fixed order: the same bits on every run, at some cost."}),
      free(path(
          PathKind::written,
          {"device.algorithms", &at<&Deck::device, &Device::algorithms>, R"("")", "", any(),
           "File that keeps, per GPU model, which algorithm was the fastest for each matrix product, so that "
           "only the first start measures. Empty: ztrain/algorithms.json in $XDG_CACHE_HOME or ~/.cache."})),
  };
}

}  // namespace

std::vector<Field> machine() {
  std::vector<Field> all = size_of_machine();
  for (auto& field : speed_of_machine()) all.push_back(field);
  for (auto& field : device()) all.push_back(field);
  all.push_back(free({"debug.asynchronous", &at<&Deck::debug, &Debug::asynchronous>, "false", "", any(),
                      "CPU ranks issue work as to a GPU: it runs as late as dependencies allow, in an order "
                      "drawn from run.seed, and the host may not touch its memory. No result may change."}));
  all.push_back(free({"debug.poison", &at<&Deck::debug, &Debug::poison>, "false", "", any(),
                      "Fill memory with NaN when it is released, so that a use after release shows."}));
  return all;
}

}  // namespace ztrain::config::rows
