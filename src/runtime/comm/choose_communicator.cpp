#include "runtime/comm/choose_communicator.hpp"

#include <map>
#include <utility>

#include "base/error.hpp"

namespace ztrain::runtime {
namespace {

/// What keeps NCCL from serving these ranks; empty: nothing.
std::string obstacle(const std::vector<RankDevice>& ranks) {
  std::map<std::pair<std::string, std::string>, std::size_t> first;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const RankDevice& rank = ranks[r];
    if (rank.device.empty()) return fmt::format("rank {} on {} has no GPU", r, rank.host);
    const auto [known, added] = first.try_emplace({rank.host, rank.device}, r);
    if (!added) return fmt::format("ranks {} and {} share a GPU of {}", known->second, r, rank.host);
  }
  return "";
}

}  // namespace

CommunicatorChoice choose_communicator(std::string_view wanted, const std::vector<RankDevice>& ranks,
                                       bool shares_gpus) {
  if (wanted == "mpi") return {false, "device.communicator"};
  const std::string reason = obstacle(ranks);
  if (wanted == "auto") return {reason.empty(), reason};
  bool gpus = true;
  for (const RankDevice& rank : ranks) gpus = gpus && !rank.device.empty();
  REQUIRE(reason.empty() || (gpus && shares_gpus),
          "device.communicator = \"nccl\", but {}: start one rank per GPU, or let device.communicator be "
          "\"auto\" or \"mpi\" (NCCL from 2.30 on serves several ranks on a GPU where "
          "NCCL_MULTI_RANK_GPU_ENABLE=1 is set)",
          reason);
  return {true, ""};
}

}  // namespace ztrain::runtime
