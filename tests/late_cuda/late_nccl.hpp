#pragma once
// NCCL for tests, between processes of one machine, on streams of the late CUDA runtime: liblate_nccl.so has
// the functions of libnccl that the product calls, with the meaning that NCCL's header gives them, and says
// what is wrong where NCCL would hang or go on with wrong numbers.
//
// * Communicators that do not block say ncclInProgress, are filled late, and give work to the stream late:
//   who uses the stream before the communicator is ready again is overtaken. The first collective waits for
//   all ranks, and the first message between two ranks in one direction for both: NCCL makes connections
//   then, by exchanges between the hosts.
// * All ranks must run the same collectives in one order, with the same types, ops, roots, counts and groups,
// all on
//   registered memory or none; a message must be received with the count and type that it was sent with. Else
//   every rank of the communicator fails, and the text names both calls and ranks.
// * What makes no progress for Options::patience fails, and the text says what every rank waits for. Nothing
// is
//   buffered: a send ends once it is received.
// * Sums are formed in rank order, rounded to the type after every addition: those of 16 bits differ from the
//   product's own.
// * Memory must be the device's, and may overlap as in-place calls do. Communicators that share resources
// stay on one
//   stream. While work is captured communicators are neither made, registered with nor ended; they end when
//   no graph has work of theirs, and their own is done on all ranks.
//
// * What ncclMemAlloc gives is more than was asked for, is given back by ncclMemFree alone, and is registered
// nowhere then.
//
// A failure of the device shows as a failed stream, and as the communicator's asynchronous error.

#include <set>
#include <string>

namespace late_nccl {

/// absence: the rank takes part in no ncclCommInitRankConfig, and its own never ends. split: the rank's never
/// ends. memory: ncclMemAlloc gives the rank one region, and no second.
enum class Fault { none, unique_id, init, absence, split, registration, memory };

struct Options {
  double patience = 60;  ///< seconds
  /// The device holds one kernel of NCCL's at a time: in the order in which the host issued them where
  /// NCCL_LAUNCH_ORDER_IMPLICIT=1 is set (those of graphs: in any), else in any. Without, they overlap as
  /// streams allow.
  bool one_at_a_time = false;
  Fault fault = Fault::none;  ///< what fails on this rank
  /// Bytes of the device that a communicator takes at its first call, as connections and rings do.
  std::size_t connection_bytes = 0;
  int version = 0;  ///< version that ncclGetVersion reports; 0: the headers'
};

void configure(const Options& options);

/// Made by this process and not given back.
int communicators();
/// Distinct maxCTAs of the live communicators; 0 for one without a limit.
std::set<int> max_ctas();
/// Number of channel sets of the live communicators: fewer where some share.
int channel_sets();
/// Regions that they have registered.
int registrations();
/// Regions of ncclMemAlloc that were not given back.
int memories();
/// What went wrong last on this rank; empty: nothing since configure().
std::string failure();

}  // namespace late_nccl
