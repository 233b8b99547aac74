#pragma once
// What makes the communicators of a mesh: MPI on host memory, MPI on staged device memory, or NCCL.

#include <mpi.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "config/deck.hpp"
#include "layout/sum_group.hpp"
#include "runtime/comm/comm.hpp"
#include "runtime/comm/exchange.hpp"
#include "runtime/device/device.hpp"

namespace ztrain::runtime {

class Progress;
class Session;
class Staging;

/// The group that this rank gets a communicator for. Ranks of one color are a group, ordered by their keys.
struct GroupRequest {
  MPI_Comm comm;  ///< of the group; the communicator takes it. MPI_COMM_NULL: this rank is in none
  int color;      ///< -1: in none
  int key;
  std::string name;       ///< for messages: "shard", "pipeline (0 to 1)"
  Queue queue;            ///< whose work its collectives are
  bool pair = false;      ///< two neighbours, who need not have it on the same queue
  SumGroup sum_group{1};  ///< how its sums are split over nodes
};

class CommunicatorBackend {
 public:
  CommunicatorBackend() = default;
  virtual ~CommunicatorBackend() = default;
  CommunicatorBackend(const CommunicatorBackend&) = delete;
  CommunicatorBackend& operator=(const CommunicatorBackend&) = delete;

  /// Collective over all ranks of the session, with the same queue. Null where this rank is in no group.
  virtual std::unique_ptr<Communicator> make(const GroupRequest& group) = 0;
  /// For a group of one rank; not collective.
  virtual std::unique_ptr<Communicator> make_self(Queue queue) = 0;
  /// Whether collectives of one queue wait for those of another unless each queue has its own communicator.
  virtual bool one_per_queue() const = 0;
  /// Whether the first message of a group or a pair makes connections within start(), for which the host
  /// waits for the others' hosts.
  virtual bool connects_late() const { return false; }
  /// Whether collectives of several queues may be in one captured graph: they keep the host's order there, as
  /// they do outside of graphs.
  virtual bool ordered_in_graphs() const { return true; }
  /// For the start banner: "MPI", "NCCL 2.28.9".
  virtual std::string describe() const = 0;
  /// Returns why ranks of a node may reach each other more slowly than they could, or "".
  virtual std::string warning() const { return ""; }
  /// What arenas are to come from that collectives work on. It may refuse where the device's memory() would
  /// not. Null: the device's serves as well.
  virtual std::unique_ptr<memory::Provider> arena_memory() const { return nullptr; }
  /// Whether collectives of groups of several ranks are copied through pinned host memory.
  virtual bool staged() const { return false; }
  /// Pinned host memory that collectives of the communicators made so far are copied through.
  virtual std::int64_t staging_bytes() const { return 0; }
};

/// CPU ranks: MPI on their memory.
class MpiBackend : public CommunicatorBackend {
 public:
  /// cut: see MpiCommunicator.
  explicit MpiBackend(std::int64_t cut = largest_message);
  std::unique_ptr<Communicator> make(const GroupRequest& group) override;
  std::unique_ptr<Communicator> make_self(Queue queue) override;
  bool one_per_queue() const override { return false; }
  std::string describe() const override { return "MPI"; }

 private:
  std::unique_ptr<Device> host_;  ///< of groups of one rank
  std::shared_ptr<Progress> progress_;
  std::int64_t cut_;
};

/// Memory that the host cannot reach: it is copied through the device's staging memory, where MPI and the
/// host's sums work on it. Bitwise what MpiBackend gives.
class StagedBackend : public CommunicatorBackend {
 public:
  /// device must outlive what is made here. reason: why it is this backend, for describe().
  explicit StagedBackend(Device& device, std::string reason = "", std::int64_t cut = largest_message);
  std::unique_ptr<Communicator> make(const GroupRequest& group) override;
  std::unique_ptr<Communicator> make_self(Queue queue) override;
  bool one_per_queue() const override { return true; }
  std::string describe() const override;
  bool staged() const override { return true; }
  std::int64_t staging_bytes() const override;

 private:
  Device& device_;
  std::string reason_;
  std::shared_ptr<Progress> progress_;
  std::int64_t cut_;
  std::map<Queue, std::shared_ptr<Staging>> staging_;
};

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

/// Returns a warning if this rank sees fewer GPUs than the ranks of its node use, or "". NCCL may then be
/// refused peer access. ranks: by rank. visible: number of GPUs that this rank sees.
std::string hidden_gpus(const std::vector<RankDevice>& ranks, int rank, int visible);

/// Collective over the session: the backend for a device and the deck's [device]. Throws Error on every rank
/// when the deck asks for what this machine cannot do. session and device must outlive it.
std::unique_ptr<CommunicatorBackend> make_backend(const Session& session, Device& device,
                                                  const config::Device& options);

/// The same where no GPU is concerned.
std::unique_ptr<CommunicatorBackend> make_host_backend(Device& device);

}  // namespace ztrain::runtime
