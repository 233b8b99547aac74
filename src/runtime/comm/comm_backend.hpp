#pragma once
// Makes the communicators of a mesh: MPI on host memory, MPI on staged device memory, or NCCL. Sums of 16-bit
// elements have the same bits in all three.

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

/// Describes the group for which this rank gets a communicator. Ranks of one color are a group, ordered by
/// their keys.
struct GroupRequest {
  MPI_Comm comm;  ///< communicator of the group, which it takes; MPI_COMM_NULL: this rank is in no group
  int color;      ///< -1: in no group
  int key;
  std::string name;       ///< for messages: "shard", "pipeline (0 to 1)"
  Queue queue;            ///< queue that its collectives are work of
  bool pair = false;      ///< whether it is two neighbours, which need not have it on the same queue
  SumGroup sum_group{1};  ///< how its sums are split over nodes
};

class CommunicatorBackend {
 public:
  CommunicatorBackend() = default;
  virtual ~CommunicatorBackend() = default;
  CommunicatorBackend(const CommunicatorBackend&) = delete;
  CommunicatorBackend& operator=(const CommunicatorBackend&) = delete;

  /// Collective over all ranks of the session, with the same queue. Returns null if this rank is in no group.
  virtual std::unique_ptr<Communicator> make(const GroupRequest& group) = 0;
  /// Makes a communicator for a group of one rank; not collective.
  virtual std::unique_ptr<Communicator> make_self(Queue queue) = 0;
  /// Returns whether collectives of one queue wait for those of another unless each queue has its own
  /// communicator.
  virtual bool one_per_queue() const = 0;
  /// Returns whether the first message of a group or a pair makes connections within start(), where the host
  /// then waits for the others' hosts.
  virtual bool connects_late() const { return false; }
  /// Returns whether collectives of several queues may be in one captured graph, because they keep the host's
  /// order there.
  virtual bool ordered_in_graphs() const { return true; }
  /// Returns a name for the start banner: "MPI", "NCCL 2.28.9".
  virtual std::string describe() const = 0;
  /// Returns why ranks of a node may reach each other more slowly than they could, or "".
  virtual std::string warning() const { return ""; }
  /// Returns the provider from which arenas come that collectives work on. It may refuse where the device's
  /// memory() would not. Null: the device's memory serves.
  virtual std::unique_ptr<memory::Provider> arena_memory() const { return nullptr; }
  /// Returns whether collectives of groups of several ranks are copied through pinned host memory.
  virtual bool staged() const { return false; }
  /// Returns the bytes of pinned host memory through which the communicators made so far copy.
  virtual std::int64_t staging_bytes() const { return 0; }
};

/// MPI on the memory of CPU ranks.
class MpiBackend : public CommunicatorBackend {
 public:
  /// cut is that of MpiCommunicator.
  explicit MpiBackend(std::int64_t cut = largest_message);
  std::unique_ptr<Communicator> make(const GroupRequest& group) override;
  std::unique_ptr<Communicator> make_self(Queue queue) override;
  bool one_per_queue() const override { return false; }
  std::string describe() const override { return "MPI"; }

 private:
  std::unique_ptr<Device> host_;  ///< device for groups of one rank
  std::shared_ptr<Progress> progress_;
  std::int64_t cut_;
};

/// MPI for memory that the host cannot reach. Data are copied through the device's staging memory, where MPI
/// and the host's sums work. Bitwise equal to MpiBackend.
class StagedBackend : public CommunicatorBackend {
 public:
  /// device must outlive the communicators. reason says in describe() why this backend was chosen.
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

/// A rank's host and the identity of its GPU on its node; empty: it has no GPU of its own.
struct RankDevice {
  std::string host, device;
};

struct CommunicatorChoice {
  bool nccl;
  std::string reason;  ///< reason that it is not NCCL, or empty
};

/// Chooses the backend. wanted is the deck's device.communicator, ranks is by rank, and shares_gpus says that
/// NCCL is willing to serve several ranks on one GPU. Throws Error, the same on every rank, if NCCL is wanted
/// and cannot be used.
CommunicatorChoice choose_communicator(std::string_view wanted, const std::vector<RankDevice>& ranks,
                                       bool shares_gpus);

/// Returns a warning if this rank sees fewer GPUs than the ranks of its node use, or "". NCCL may then be
/// refused peer access. ranks: by rank. visible: number of GPUs that this rank sees.
std::string hidden_gpus(const std::vector<RankDevice>& ranks, int rank, int visible);

/// Collective over the session. Makes the backend for a device and the deck's [device]. Throws Error on every
/// rank if this machine cannot do what the deck asks for. session and device must outlive it.
std::unique_ptr<CommunicatorBackend> make_backend(const Session& session, Device& device,
                                                  const config::Device& options);

/// Makes the backend if no GPU is concerned.
std::unique_ptr<CommunicatorBackend> make_host_backend(Device& device);

}  // namespace ztrain::runtime
