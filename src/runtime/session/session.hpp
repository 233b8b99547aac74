#pragma once
// The process's part in the job: MPI for as long as this object lives, and where this rank is on the machine.
//
// Failures end a job in one of two ways. Outside the step, work that may fail on some ranks only (reading
// files, allocating) runs in agree(): either all ranks go on or all throw the same AgreedError, so that one
// message is printed and every rank returns normally. Inside the step ranks cannot consult each other any
// more, so abort_all() ends the whole job.

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "runtime/session/launcher.hpp"
#include "runtime/session/mpi_check.hpp"
#include "runtime/session/signals.hpp"

namespace ztrain::runtime {

/// Thrown by every rank, with the same message, if agree() found a failure on any. Rank 0 prints it.
class AgreedError : public Error {
 public:
  using Error::Error;
};

/// Reason that a run saves and ends before its last step.
enum class Stop : std::uint8_t { none, time_is_up, allocation_ends, signal, failure };

/// A rank's report after a step.
struct Report {
  bool time_is_up = false, allocation_ends = false, failed = false;
  bool writes = false;  ///< whether a checkpoint is being written beside training
};

/// Requests of all ranks after a step.
struct Requests {
  Stop stop = Stop::none;
  std::string_view signal = {};  ///< name of the signal that stops the run
  bool save = false;             ///< whether to save and go on
  bool writes = false;           ///< whether any rank writes
};

class Session {
 public:
  /// Initialises MPI (funneled: one host thread communicates); without mpirun the job is this one process.
  /// OpenMP uses one thread per rank unless OMP_NUM_THREADS says otherwise. Throws Error if MPI cannot be
  /// initialised.
  Session(int* argc, char*** argv);
  /// Finalises MPI. While an error that was not agreed on unwinds the stack, aborts the job instead, because
  /// the other ranks would wait for ever.
  ~Session();
  /// Makes the session of a part of `whole`; see part(). Takes the communicator.
  Session(const Session& whole, MPI_Comm part);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  int local_rank() const { return local_rank_; }        ///< index within the node
  int ranks_on_node() const { return ranks_on_node_; }  ///< ranks on this rank's node
  int max_ranks_per_node() const {
    return max_ranks_per_node_;
  }  ///< largest number of ranks on a node, the same on every rank
  int nodes() const { return nodes_; }
  int node_of(int rank) const { return node_of_[static_cast<std::size_t>(rank)]; }
  int node() const { return node_; }  ///< index of this rank's node, in the order of the nodes' first ranks
  const std::string& host() const { return host_; }  ///< node_name() of its node
  const SlurmHints& slurm() const { return slurm_; }
  /// A duplicate of MPI_COMM_WORLD that ztrain has for itself; MPI errors on it are returned, not fatal.
  MPI_Comm world() const { return world_; }

  /// Collective. Runs fn on every rank and returns its result. If fn threw on any rank, every rank throws
  /// AgreedError: for each distinct message that of the lowest failing rank, after "rank 3: " if not all
  /// ranks failed with it. `what` ("reading the deck") introduces messages that are not ztrain's own, such as
  /// std::bad_alloc.
  template <class Function>
  auto agree(std::string_view what, Function&& fn) const {
    using Result = std::invoke_result_t<Function&>;
    if constexpr (std::is_void_v<Result>) {
      agree_on(what, [&] { fn(); });
    } else {
      std::optional<Result> result;
      agree_on(what, [&] { result.emplace(fn()); });
      return std::move(*result);
    }
  }

  /// Collective. Returns once every rank has called it.
  void barrier() const;
  /// Collective. Does the same, and leaves the processor to others while it waits.
  void rest() const;

  /// Collective. Returns a session of the first `ranks` ranks, for measurements with fewer of them, and null
  /// on the others. This one must outlive it.
  std::unique_ptr<Session> part(int ranks) const;

  /// Collective. Returns rank 0's text on every rank.
  std::string from_rank_0(std::string text) const;

  /// Returns the seconds since the session began, by this rank's clock.
  double lasts() const;

  /// Collective. Returns the same on every rank. The run stops for a failure of any rank; else for a signal
  /// that reached any; else for time, first the end of the allocation. It saves once for the signals since
  /// the last call.
  Requests requests(const Report& mine) const;

  Signals& signals() const { return *signals_; }

  /// Prints "ztrain: rank 2 (host) failed: message" to stderr and ends all ranks within seconds, with a
  /// non-zero status.
  [[noreturn]] void abort_all(std::string_view message) const;

 private:
  void find_place();
  void agree_on(std::string_view what, const std::function<void()>& fn) const;
  std::string collect_messages(const std::string& mine) const;

  /// First, because MPI starts threads, which inherit the blocked signals. A part has those of the whole.
  std::shared_ptr<Signals> signals_ = std::make_shared<Signals>();
  bool is_part_ = false;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  MPI_Comm world_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1, local_rank_ = 0, ranks_on_node_ = 1, max_ranks_per_node_ = 1, nodes_ = 1,
      node_ = 0;
  std::vector<int> node_of_{0};  ///< by rank
  int exceptions_at_start_ = 0;
  mutable bool agreed_to_fail_ = false;
  std::string host_;
  SlurmHints slurm_;
};

/// Return the largest and the present resident set of this process (VmHWM, VmRSS) in bytes; 0 if /proc does
/// not tell. Neither allocates.
std::int64_t peak_resident_bytes();
std::int64_t resident_bytes();

/// Collective. Replace each number by the largest, or the sum, of those that the ranks have in its place; all
/// have as many. Throw Error if MPI fails.
void largest_of_all(const Session& session, std::span<float> values);
void sum_of_all(const Session& session, std::span<std::int64_t> values);

/// Collective. Returns every rank's value, by rank, copied bytewise. Throws Error if MPI fails.
template <class T>
std::vector<T> of_all(const Session& session, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<std::size_t>(session.size()));
  check_mpi(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, session.world()),
            "MPI_Allgather");
  return all;
}

/// Collective. Replaces each number by its sum over all ranks. Throws Error if MPI fails.
inline void sum_over_ranks(const Session& session, std::vector<double>& numbers) {
  constexpr std::size_t most = std::size_t{1} << 27;  // whose bytes are below 1 GiB
  for (std::size_t at = 0; at < numbers.size(); at += most) {
    const auto count = static_cast<int>(std::min(most, numbers.size() - at));
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, numbers.data() + at, count, MPI_DOUBLE, MPI_SUM, session.world()),
              "MPI_Allreduce");
  }
}

}  // namespace ztrain::runtime
