#pragma once
// What planning needs to know of the machine that a job is to run on.

#include <string_view>

#include "config/deck.hpp"
#include "kernel_interface/target.hpp"
#include "layout/mesh.hpp"
#include "plan/rates/rates.hpp"

namespace ztrain::plan {

/// The initial values are those of a node with eight H100 SXM 80 GB. GB is 1e9 bytes, as vendors count.
struct Machine {
  Target target = Target::cuda;
  int ranks_per_node = 8;
  /// Bytes of each rank's device. 0: ranks compute in the memory of their node, so that what they hold counts
  /// there.
  double device_memory = 80e9;
  bool device_assumed = false;  ///< that memory is an H100's, as neither the deck nor its preset tells of any
  double host_memory = 2000e9;  ///< bytes of a node; 0: unknown, not checked
  double outside_memory = 3e9;  ///< bytes of a rank beside the plan: device context, libraries
  double peak_flops = 989e12;   ///< dense, per rank, at the parameters' dtype
  bool peak_assumed = false;    ///< that of an H100 SXM, as neither the deck nor its preset knows one
  double fp8_speedup = 2;       ///< of products of 8-bit floats over that peak; NVIDIA's figure for H100
  double compute_efficiency = 0.7;
  double memory_bandwidth = 3350e9;  ///< bytes/s of a rank's own memory
  double memory_efficiency = 0.85;
  double host_bandwidth = 50e9;         ///< bytes/s between a rank and its node's memory, in each direction
  double host_memory_bandwidth = 60e9;  ///< bytes/s between the node's processors and its memory, per rank
  double nvme_bandwidth = 3e9;          ///< bytes/s between a rank and its node's drives
  double intra_node_bandwidth = 450e9, inter_node_bandwidth = 50e9;  ///< bytes/s per rank and direction
  double latency = 10e-6;                                            ///< seconds per exchange of a collective
  double launch = 0;             ///< seconds in which the host issues an op of the device
  int multiprocessors = 0;       ///< of a device; 0: unknown
  double computing_share = 1.0;  ///< of the multiprocessors, while communication takes the rest
  Rates rates;
};

/// Returns "GPU" or "CPU".
constexpr std::string_view device_kind(Target target) {
  return target == Target::cuda ? "GPU" : "CPU";
}

/// Returns the number of multiprocessors that NCCL leaves to products, of `all` that a GPU has. Returns 0 if
/// products may count on all. Assumes that collectives run one at a time.
int product_multiprocessors(int all, const MeshShape& mesh, const config::Device& options);

/// The machine that a deck describes; the H100's figures where the deck does not know. Bytes outside of the
/// plan are the deck's wherever it gives them or the device's memory. The one place that reads [cluster] for
/// planning. computing_share stays 1, because it depends on the mesh.
/// machine: a machine file or preset in place of the deck's preset; "": none. ranks: of the job, on which the
/// rates of a node depend; 0: not known.
Machine machine_of(const config::Deck& deck, const std::string& machine = {}, int ranks = 0);

}  // namespace ztrain::plan
