#include "runtime/comm/nccl_backend.hpp"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdlib>
#include <string_view>

#include "base/error.hpp"
#include "base/text.hpp"
#include "runtime/comm/nccl_handle.hpp"
#include "runtime/comm/self_comm.hpp"
#include "runtime/device/cuda_memory.hpp"
#include "runtime/session/mpi_check.hpp"
#include "runtime/session/session.hpp"

namespace ztrain::runtime {
namespace {

int version_code() {
  int code = 0;
  const ncclResult_t result = ncclGetVersion(&code);
  REQUIRE(result == ncclSuccess, "ncclGetVersion failed: {}", ncclGetErrorString(result));
  return code;
}

bool is_one(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && std::string_view(value) == "1";
}

/// Allocates NCCL's memory. NCCL reports a shortage like anything else that CUDA refuses.
void* take(std::size_t bytes) {
  void* given = nullptr;
  const ncclResult_t result = ncclMemAlloc(&given, bytes);
  if (result == ncclSuccess) return given;
  cudaGetLastError();  // otherwise the next launch would report the error
  const char* const last = ncclGetLastError(nullptr);
  fail("ncclMemAlloc of {} failed: {}. {}", format_bytes(static_cast<double>(bytes)),
       ncclGetErrorString(result), last == nullptr ? "" : last);
}

void give_back(void* taken) noexcept {
  ncclMemFree(taken);
}

}  // namespace

std::string nccl_version() {
  const int code = version_code();
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

bool nccl_of_one_wanted() {
  return is_one("ZTRAIN_NCCL_OF_ONE");
}

bool nccl_shares_gpus() {
  return is_one("NCCL_MULTI_RANK_GPU_ENABLE") && version_code() >= NCCL_VERSION(2, 30, 0);
}

NcclBackend::NcclBackend(const Session& session, Device& device, NcclOptions options)
    : session_(session), device_(device), options_(std::move(options)) {
  REQUIRE(
      version_code() >= NCCL_VERSION(2, 26, 2),
      "NCCL {} is loaded, and ztrain needs 2.26.2 or later: before, ranks may launch the kernels of several "
      "communicators in different orders, and then wait for each other for ever. Put a newer one before it "
      "in LD_LIBRARY_PATH, or set device.communicator = \"mpi\"",
      nccl_version());
  // Gathers and reductions have communicators of their own on streams of their own. Two kernels of NCCL's
  // that a GPU cannot hold at once must not be launched in different orders on two ranks: each would wait for
  // a peer that is not running. With this, launches keep the order in which the host issued them, which the
  // joint proof has shown to be free of such circles, and still overlap (CUDA 12.3 on; serialised before).
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", /*overwrite=*/0);
}

NcclBackend::~NcclBackend() = default;

/// NCCL chains its kernels in a capture by events that drivers know from CUDA 12.9 on. Older drivers let one
/// begin only after the previous one has ended.
bool NcclBackend::ordered_in_graphs() const {
  int driver = 0;
  return cudaDriverGetVersion(&driver) == cudaSuccess && driver >= 12090;
}

std::unique_ptr<Communicator> NcclBackend::make(const GroupRequest& group) {
  // The first group of all ranks on a queue is the parent of those that follow there. Sharing its channels
  // saves memory and time, and costs nothing: on one stream they run one after the other anyway.
  // A pair of neighbours has channels of its own: its two sides may have it on different queues.
  std::shared_ptr<NcclHandle> none;
  std::shared_ptr<NcclHandle>& parent = group.pair ? none : parents_[group.queue];
  const NcclMember member{session_.host(), session_.rank(), group.name, options_.patience,
                          group.pair ? options_.max_ctas_pairs : options_.max_ctas};
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
  return make_nccl_communicator(std::move(handle), device_, group.queue, group.sum_group, options_.nccl_sums);
}

std::unique_ptr<Communicator> NcclBackend::make_self(Queue queue) {
  if (!options_.of_one) return std::make_unique<SelfCommunicator>(device_, queue);
  // In a session of one rank, later groups are split off the first, as in larger sessions.
  std::shared_ptr<NcclHandle>& parent = parents_[queue];
  const NcclMember member{session_.host(), session_.rank(), "one rank", options_.patience, options_.max_ctas};
  const bool split = parent && session_.size() == 1;
  auto handle = split ? std::make_shared<NcclHandle>(*parent, 0, 0, member)
                      : std::make_shared<NcclHandle>(MPI_COMM_SELF, member);
  if (session_.size() == 1 && !parent) parent = handle;
  return make_nccl_communicator(std::move(handle), device_, queue, 1, options_.nccl_sums);
}

std::unique_ptr<memory::Provider> NcclBackend::arena_memory() const {
  if (session_.size() == 1 && !options_.of_one) return nullptr;  // no communicator is NCCL's
  return std::make_unique<CudaMemory>(device_.name(), CudaSource{take, give_back});
}

std::string NcclBackend::describe() const {
  return "NCCL " + nccl_version() + (options_.of_one ? ", groups of one rank too" : "");
}

}  // namespace ztrain::runtime
