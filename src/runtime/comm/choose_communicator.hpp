#pragma once
// Which library moves the data of GPUs, as a decision on a list.

#include <string>
#include <string_view>
#include <vector>

namespace ztrain::runtime {

/// Where a rank computes. device: the GPU's identity on its node; empty: none of its own.
struct RankDevice {
  std::string host, device;
};

struct CommunicatorChoice {
  bool nccl;
  std::string reason;  ///< why it is not NCCL, or empty
};

/// wanted: the deck's device.communicator. ranks: by rank. shares_gpus: NCCL is willing to serve several
/// ranks on one GPU. Throws Error, the same on every rank, when NCCL is wanted and will not do.
CommunicatorChoice choose_communicator(std::string_view wanted, const std::vector<RankDevice>& ranks,
                                       bool shares_gpus);

}  // namespace ztrain::runtime
