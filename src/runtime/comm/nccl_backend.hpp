#pragma once
// Makes NCCL's communicators, one for each group and queue.

#include <map>
#include <memory>
#include <string>

#include "runtime/comm/comm_backend.hpp"

namespace ztrain::runtime {

class NcclHandle;

struct NcclOptions {
  bool nccl_sums = false;  ///< whether NCCL sums 16-bit elements too: see make_nccl_communicator
  double patience = 300;   ///< seconds that a communicator may take to be made
  /// Multiprocessors that a kernel of a group, and of a pair of neighbours, may take; 0: NCCL's choice.
  int max_ctas = 0, max_ctas_pairs = 0;
  /// Whether groups of one rank use NCCL as well, which is slower. It is for tests on a single GPU.
  bool of_one = false;
  std::string warning{};  ///< text that CommunicatorBackend::warning returns
};

class NcclBackend : public CommunicatorBackend {
 public:
  /// session and device must outlive this and what it makes; the device is the current one of CUDA. Throws
  /// Error for an NCCL before 2.26.2, whose kernels have no order.
  NcclBackend(const Session& session, Device& device, NcclOptions options);
  ~NcclBackend() override;
  std::unique_ptr<Communicator> make(const GroupRequest& group) override;
  std::unique_ptr<Communicator> make_self(Queue queue) override;
  bool one_per_queue() const override { return true; }
  bool connects_late() const override { return true; }
  bool ordered_in_graphs() const override;
  std::string describe() const override;
  std::string warning() const override { return options_.warning; }
  /// Returns NCCL's memory, which it can register with NVLink and its switches if they exist. Arenas come
  /// from it so that NCCL works on them without copies. If a rank does not get it, or if it would leave too
  /// little of a GPU to libraries, all ranks take CUDA's memory. NCCL rounds an arena up, to 2 MiB or more;
  /// that counts as memory outside of the plan.
  std::unique_ptr<memory::Provider> arena_memory() const override;

 private:
  const Session& session_;
  Device& device_;
  NcclOptions options_;
  std::map<Queue, std::shared_ptr<NcclHandle>> parents_;  ///< communicators over all ranks, by queue
};

/// Collectives as work of a queue of the GPU. Elements of 32 bits and more are summed by ncclReduceScatter,
/// in an order of NCCL's choice. NCCL would round elements of 16 bits at every hop: they are exchanged, and
/// summed by kernels in fp32 as sum_steps.hpp says, with the bits of CPU ranks. With nccl_sums
/// (device.reduction) NCCL sums them as well.
std::unique_ptr<Communicator> make_nccl_communicator(std::shared_ptr<NcclHandle> handle, Device& device,
                                                     Queue queue, SumGroup group, bool nccl_sums);

/// Returns the version of the loaded library, such as "2.28.9", which may differ from that of the headers.
/// Throws Error if the library does not tell it.
std::string nccl_version();
/// Returns whether ZTRAIN_NCCL_OF_ONE=1 asks for NcclOptions::of_one.
bool nccl_of_one_wanted();
/// Returns whether NCCL serves several ranks on one GPU: from 2.30 on, if NCCL_MULTI_RANK_GPU_ENABLE=1 is
/// set.
bool nccl_shares_gpus();

}  // namespace ztrain::runtime
