#include "runtime/comm/comm_backend.hpp"

#include "runtime/comm/mpi_comm.hpp"
#include "runtime/comm/self_comm.hpp"
#include "runtime/comm/staged_comm.hpp"

namespace ztrain::runtime {

MpiBackend::MpiBackend(std::int64_t cut)
    : host_(make_host_device()), progress_(std::make_shared<Progress>()), cut_(cut) {}

std::unique_ptr<Communicator> MpiBackend::make(const GroupRequest& group) {
  if (group.comm == MPI_COMM_NULL) return nullptr;
  return std::make_unique<MpiCommunicator>(group.comm, group.name, progress_, cut_);
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
  return make_staged_communicator(std::make_unique<MpiCommunicator>(group.comm, group.name, progress_, cut_),
                                  staging);
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

std::unique_ptr<CommunicatorBackend> make_host_backend(Device& device) {
  if (device.memory().host_accessible()) return std::make_unique<MpiBackend>();
  return std::make_unique<StagedBackend>(device);
}

}  // namespace ztrain::runtime
