#include <cuda_runtime.h>
#include <nccl.h>

#include <chrono>
#include <cstring>
#include <exception>
#include <thread>

#include "base/error.hpp"
#include "runtime/comm/nccl_handle.hpp"
#include "runtime/session/mpi_check.hpp"

namespace ztrain::runtime {
namespace {

using Clock = std::chrono::steady_clock;

std::string speaker(const NcclMember& member) {
  return fmt::format("rank {} ({}), group over {}", member.rank, member.host, member.group);
}

/// Message of rank 0 of a group to the others: an id, or why there is none.
struct Invitation {
  ncclUniqueId id;
  char failure[512];
};

Invitation draw_id() {
  Invitation invitation{};
  const ncclResult_t result = ncclGetUniqueId(&invitation.id);
  if (result == ncclSuccess) return invitation;
  const std::string text =
      fmt::format("ncclGetUniqueId failed: {}. {}", ncclGetErrorString(result), ncclGetLastError(nullptr));
  std::strncpy(invitation.failure, text.c_str(), sizeof invitation.failure - 1);
  return invitation;
}

/// Throws Error if there is no GPU. NCCL's own message about a missing driver says little.
void require_gpu(const NcclMember& member) {
  int gpus = 0;
  const cudaError_t code = cudaGetDeviceCount(&gpus);
  REQUIRE(code == cudaSuccess && gpus > 0, "{}: NCCL needs a GPU, and CUDA finds none: {}", speaker(member),
          code == cudaSuccess ? "no device is visible" : cudaGetErrorString(code));
}

/// Returns the settings of a communicator. NCCL asks the parent, not the child, whether the two share
/// channels.
ncclConfig_t config(bool shares_with_children, int max_ctas) {
  ncclConfig_t c = NCCL_CONFIG_INITIALIZER;
  c.blocking = 0;
  c.splitShare = shares_with_children ? 1 : 0;
  if (max_ctas > 0) c.maxCTAs = max_ctas;
  return c;
}

}  // namespace

NcclHandle::NcclHandle(NcclMember member)
    : member_(std::move(member)), exceptions_at_start_(std::uncaught_exceptions()) {}

// Both constructors delegate, so that the destructor runs if they throw.

NcclHandle::NcclHandle(MPI_Comm comm, NcclMember member) : NcclHandle(std::move(member)) {
  check_mpi(MPI_Comm_rank(comm, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm, &size_), "MPI_Comm_size");
  require_gpu(member_);
  Invitation invitation{};
  if (rank_ == 0) invitation = draw_id();
  check_mpi(MPI_Bcast(&invitation, sizeof invitation, MPI_BYTE, 0, comm), "MPI_Bcast");
  REQUIRE(invitation.failure[0] == '\0', "{}: {}", speaker(member_), invitation.failure);
  ncclConfig_t options = config(/*shares_with_children=*/true, member_.max_ctas);
  settle(ncclCommInitRankConfig(&comm_, size_, invitation.id, rank_, &options), "ncclCommInitRankConfig");
}

NcclHandle::NcclHandle(NcclHandle& parent, int color, int key, NcclMember member)
    : NcclHandle(std::move(member)) {
  ncclConfig_t options = config(/*shares_with_children=*/false, member_.max_ctas);
  // The new communicator is made in the background, and the parent tells when that is done.
  try {
    parent.settle(ncclCommSplit(parent.comm_, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, &comm_, &options),
                  "ncclCommSplit");
  } catch (const Error&) {
    parent.abort();  // otherwise NCCL would still write to comm_, which ends here
    throw;
  }
  if (color < 0) return;
  settle(ncclInProgress, "ncclCommSplit");
  settle(ncclCommUserRank(comm_, &rank_), "ncclCommUserRank");
  settle(ncclCommCount(comm_, &size_), "ncclCommCount");
}

NcclHandle::~NcclHandle() {
  if (comm_ == nullptr) return;
  // Results are of no use any more; only giving back can still fail here.
  if (std::uncaught_exceptions() > exceptions_at_start_) {
    abort();
    return;
  }
  for (const auto& [data, handle] : registered_) ncclCommDeregister(comm_, handle);
  ncclResult_t result = ncclCommFinalize(comm_);
  if (result == ncclInProgress) result = static_cast<ncclResult_t>(poll());
  if (result == ncclSuccess)
    ncclCommDestroy(comm_);
  else
    ncclCommAbort(comm_);
}

void NcclHandle::abort() noexcept {
  if (comm_ != nullptr) ncclCommAbort(comm_);
  comm_ = nullptr;
}

/// Returns the state once NCCL does nothing in the background, or ncclInProgress if that takes too long.
int NcclHandle::poll() const {
  const auto deadline = Clock::now() + std::chrono::duration<double>(member_.patience);
  for (std::int64_t asked = 0;; ++asked) {
    ncclResult_t state = ncclInProgress;
    const ncclResult_t result = comm_ == nullptr ? ncclSuccess : ncclCommGetAsyncError(comm_, &state);
    if (result != ncclSuccess) return result;
    if (state != ncclInProgress || Clock::now() > deadline) return state;
    // Work takes microseconds, so asks at once; new communicators and connections take seconds.
    if (asked < 10000)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void NcclHandle::settle(int result, const char* call) const {
  // Asks even after success, because asking collects the end of work in the background.
  if (result == ncclSuccess || result == ncclInProgress) result = poll();
  if (result != ncclSuccess) fail_with(result, call);
}

void NcclHandle::fail_with(int result, const char* call) const {
  const char* const last = ncclGetLastError(comm_);
  const std::string text = last == nullptr ? "" : last;
  if (result == ncclInProgress)
    fail("{}: {} was not done within {} s: a rank is missing, or the network between them is closed. {}",
         speaker(member_), call, member_.patience,
         text.empty() ? "NCCL_DEBUG=INFO shows how far it came" : text);
  fail("{}: {} failed: {}. {}", speaker(member_), call, ncclGetErrorString(static_cast<ncclResult_t>(result)),
       text);
}

void NcclHandle::check() const {
  if (comm_ == nullptr) return;  // it was aborted
  ncclResult_t state = ncclSuccess;
  const ncclResult_t result = ncclCommGetAsyncError(comm_, &state);
  if (result != ncclSuccess) fail_with(result, "ncclCommGetAsyncError");
  if (state != ncclSuccess && state != ncclInProgress) fail_with(state, "communication");
}

bool NcclHandle::register_memory(void* data, std::int64_t bytes) {
  void* handle = nullptr;
  const ncclResult_t result = ncclCommRegister(comm_, data, static_cast<std::size_t>(bytes), &handle);
  if (result != ncclSuccess && result != ncclInProgress) {
    check();
    return false;  // it is only slower without
  }
  settle(result, "ncclCommRegister");
  if (handle == nullptr) return false;  // registration is switched off, or of no use here
  registered_[data] = handle;
  return true;
}

void NcclHandle::deregister_memory(void* data) {
  const auto found = registered_.find(data);
  if (found == registered_.end()) return;
  void* const handle = found->second;
  registered_.erase(found);
  settle(ncclCommDeregister(comm_, handle), "ncclCommDeregister");
}

}  // namespace ztrain::runtime
