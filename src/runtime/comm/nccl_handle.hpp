#pragma once
// Wraps one of NCCL's communicators: made without blocking, watched, and given back so that no rank hangs.

#include <mpi.h>

#include <cstdint>
#include <map>
#include <string>

struct ncclComm;  // NCCL's headers stay in sources

namespace ztrain::runtime {

/// Names a member for messages, and says what its communicator may take.
struct NcclMember {
  std::string host;
  int rank;           ///< rank in the session
  std::string group;  ///< the axes
  double patience;    ///< seconds that NCCL may take to make a communicator, or to accept work
  int max_ctas = 0;   ///< multiprocessors that one of its kernels may take; 0: NCCL's choice
};

class NcclHandle {
 public:
  /// Collective over comm, whose rank 0 draws the unique id. Uses CUDA's current device. Throws Error naming
  /// host, rank and group with NCCL's own text, also if the others do not come in time.
  NcclHandle(MPI_Comm comm, NcclMember member);
  /// Collective over the ranks of parent, as MPI_Comm_split. It shares the parent's channels, so that the two
  /// run one after the other and must be used on one queue alone. With a negative color this rank is in no
  /// group, and get() is null. If it throws, parent is aborted.
  NcclHandle(NcclHandle& parent, int color, int key, NcclMember member);

  /// Aborts while an error unwinds, which ends kernels that wait for other ranks. Otherwise waits for the
  /// group to be done.
  ~NcclHandle();
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  ncclComm* get() const { return comm_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& group() const { return member_.group; }

  /// Waits, after a call that returned `result` (a ncclResult_t), until NCCL has done what it does in the
  /// background. Only then may the stream be used further. Throws Error for every failure.
  void settle(int result, const char* call) const;
  /// Throws Error if NCCL has reported a failure since the communicator was made.
  void check() const;
  /// Ends kernels that wait for other ranks, and gives the communicator back: get() is null from then on.
  void abort() noexcept;
  /// Registers memory. Returns false if NCCL has not done so; it works without. NCCL's collectives need
  /// either all ranks of a group to have registered their buffers, or none.
  bool register_memory(void* data, std::int64_t bytes);
  /// Takes memory back; memory that was not registered is left alone.
  void deregister_memory(void* data);

 private:
  explicit NcclHandle(NcclMember member);
  int poll() const;
  [[noreturn]] void fail_with(int result, const char* call) const;

  NcclMember member_;
  ncclComm* comm_ = nullptr;
  int rank_ = 0, size_ = 1, exceptions_at_start_ = 0;
  std::map<void*, void*> registered_;  ///< NCCL's handles, by address
};

}  // namespace ztrain::runtime
