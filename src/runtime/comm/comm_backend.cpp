#include "runtime/comm/comm_backend.hpp"

#include <iterator>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "runtime/comm/mpi_comm.hpp"
#include "runtime/comm/self_comm.hpp"
#include "runtime/comm/staged_comm.hpp"

namespace ztrain::runtime {
namespace {

/// Returns the reason that NCCL cannot serve these ranks, or "".
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

MpiBackend::MpiBackend(std::int64_t cut)
    : host_(make_host_device()), progress_(std::make_shared<Progress>()), cut_(cut) {}

std::unique_ptr<Communicator> MpiBackend::make(const GroupRequest& group) {
  if (group.comm == MPI_COMM_NULL) return nullptr;
  return std::make_unique<MpiCommunicator>(group, progress_, cut_);
}

std::unique_ptr<Communicator> MpiBackend::make_self(Queue queue) {
  return std::make_unique<SelfCommunicator>(*host_, queue);
}

StagedBackend::StagedBackend(Device& device, std::string reason, std::int64_t cut)
    : device_(device), reason_(std::move(reason)), progress_(std::make_shared<Progress>()), cut_(cut) {}

std::unique_ptr<Communicator> StagedBackend::make(const GroupRequest& group) {
  if (group.comm == MPI_COMM_NULL) return nullptr;
  std::shared_ptr<Staging>& staging = staging_[group.queue];
  if (!staging) staging = std::make_shared<Staging>(device_, group.queue);
  return make_staged_communicator(std::make_unique<MpiCommunicator>(group, progress_, cut_), staging);
}

std::unique_ptr<Communicator> StagedBackend::make_self(Queue queue) {
  return std::make_unique<SelfCommunicator>(device_, queue);
}

std::string StagedBackend::describe() const {
  return "MPI through host memory" + (reason_.empty() ? "" : " (" + reason_ + ")");
}

std::int64_t StagedBackend::staging_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& [queue, staging] : staging_) bytes += staging->bytes();
  return bytes;
}

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

std::string hidden_gpus(const std::vector<RankDevice>& ranks, int rank, int visible) {
  const std::string& host = ranks[at(rank)].host;
  std::set<std::string> used;
  for (const RankDevice& other : ranks)
    if (other.host == host) used.insert(other.device);
  if (visible >= std::ssize(used)) return "";
  return fmt::format(
      "rank {} sees {} of the {} GPUs that the ranks of {} use: NCCL may be refused the direct way between "
      "them (NVLink), and then copies through the host's memory. Ask SLURM for --gpus-per-node instead of "
      "--gpus-per-task, without --gpu-bind; NCCL_DEBUG=INFO shows \"via P2P\" or \"via SHM\"",
      rank, visible, used.size(), host);
}

std::unique_ptr<CommunicatorBackend> make_host_backend(Device& device) {
  if (device.memory().host_accessible()) return std::make_unique<MpiBackend>();
  return std::make_unique<StagedBackend>(device);
}

}  // namespace ztrain::runtime
