#include "runtime/nccl_backend.hpp"

#include <nccl.h>

#include <cstdlib>
#include <string_view>

#include "base/error.hpp"
#include "runtime/mpi_check.hpp"
#include "runtime/nccl_comm.hpp"
#include "runtime/self_comm.hpp"
#include "runtime/session.hpp"

namespace ztrain::runtime {
namespace {

int version_code() {
  int code = 0;
  const ncclResult_t result = ncclGetVersion(&code);
  REQUIRE(result == ncclSuccess, "ncclGetVersion failed: {}", ncclGetErrorString(result));
  return code;
}

}  // namespace

std::string nccl_version() {
  const int code = version_code();
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

bool nccl_shares_gpus() {
  const char* const enabled = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return enabled != nullptr && std::string_view(enabled) == "1" && version_code() >= NCCL_VERSION(2, 30, 0);
}

NcclBackend::NcclBackend(const Session& session, Device& device, NcclOptions options)
    : session_(session), device_(device), options_(options) {
  // Gathers and reductions have communicators of their own on streams of their own. Two kernels of NCCL's
  // that a GPU cannot hold at once must not be launched in different orders on two ranks: each would wait for
  // a peer that is not running. With this, launches keep the order in which the host issued them, which the
  // joint proof has shown to be free of such circles, and still overlap (CUDA 12.3 on; serialised before).
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", /*overwrite=*/0);
}

NcclBackend::~NcclBackend() = default;

std::unique_ptr<Communicator> NcclBackend::make(const GroupRequest& group) {
  // The first group of all ranks on a queue is the parent of those that follow there. Sharing its channels
  // saves memory and time, and costs nothing: on one stream they run one after the other anyway.
  std::shared_ptr<NcclHandle>& parent = parents_[group.queue];
  const NcclMember member{session_.host(), session_.rank(), group.name, options_.patience};
  std::shared_ptr<NcclHandle> handle;
  if (parent) {
    handle = std::make_shared<NcclHandle>(*parent, group.color, group.key, member);
  } else if (group.comm != MPI_COMM_NULL) {
    handle = std::make_shared<NcclHandle>(group.comm, member);
    if (handle->size() == session_.size()) parent = handle;
  }
  if (group.comm == MPI_COMM_NULL) return nullptr;
  MPI_Comm comm = group.comm;
  check_mpi(MPI_Comm_free(&comm), "MPI_Comm_free");
  const bool nccl_sums = options_.nccl_sums;
  return std::make_unique<NcclCommunicator>(std::move(handle), device_, group.queue, nccl_sums);
}

std::unique_ptr<Communicator> NcclBackend::make_self(Queue queue) {
  return std::make_unique<SelfCommunicator>(device_, queue);
}

std::string NcclBackend::describe() const {
  return "NCCL " + nccl_version();
}

}  // namespace ztrain::runtime
