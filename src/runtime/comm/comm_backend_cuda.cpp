#include <cuda_runtime_api.h>

#include <cstring>
#include <vector>

#include "base/error.hpp"
#include "runtime/comm/comm_backend.hpp"
#include "runtime/comm/nccl_backend.hpp"
#include "runtime/device/cuda_check.hpp"
#include "runtime/session/session.hpp"

namespace ztrain::runtime {
namespace {

/// A RankDevice in the form in which it travels between ranks.
struct Entry {
  char host[256];
  char device[128];
};

template <std::size_t n>
void put(char (&to)[n], const std::string& text) {
  REQUIRE(text.size() < n, "\"{}\" is too long for the name of a host or a device", text);
  std::memcpy(to, text.c_str(), text.size() + 1);
}

/// Collective. Returns where every rank computes. Hosts are also told apart by the number of their node,
/// because containers may share a name.
std::vector<RankDevice> all_devices(const Session& session, const Device& device) {
  Entry mine{};
  put(mine.host, fmt::format("{} (node {})", session.host(), session.node()));
  put(mine.device, device.identity());
  std::vector<RankDevice> ranks;
  for (const Entry& entry : of_all(session, mine)) ranks.push_back({entry.host, entry.device});
  return ranks;
}

}  // namespace

std::unique_ptr<CommunicatorBackend> make_backend(const Session& session, Device& device,
                                                  const config::Device& options) {
  if (device.native_stream(compute_queue) == nullptr) return make_host_backend(device);
  const std::vector<RankDevice> ranks = all_devices(session, device);
  const CommunicatorChoice choice = session.agree("choosing device.communicator", [&] {
    return choose_communicator(options.communicator, ranks, nccl_shares_gpus());
  });
  if (!choice.nccl) return std::make_unique<StagedBackend>(device, choice.reason);
  NcclOptions nccl;
  nccl.nccl_sums = options.reduction == "nccl";
  nccl.max_ctas = static_cast<int>(options.nccl_max_ctas);
  nccl.max_ctas_pairs = static_cast<int>(options.nccl_max_ctas_pairs);
  nccl.of_one = nccl_of_one_wanted();
  nccl.warning = session.agree("counting the GPUs", [&] {
    int visible = 0;
    check_cuda(cudaGetDeviceCount(&visible), "cudaGetDeviceCount");
    return hidden_gpus(ranks, session.rank(), visible);
  });
  return std::make_unique<NcclBackend>(session, device, std::move(nccl));
}

}  // namespace ztrain::runtime
