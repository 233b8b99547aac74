// NCCL's functions that communicate, and their groups.
#include <algorithm>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "tests/late_cuda/late_cuda.hpp"
#include "tests/late_cuda/memory.hpp"
#include "tests/late_cuda/nccl_launch.hpp"

using namespace late_nccl;

namespace {

/// A call of a group that is still open.
struct Waiting {
  std::shared_ptr<ncclComm> comm;
  cudaStream_t stream;
  Call call;
};

/// Groups are the calling thread's.
struct Group {
  int depth = 0;
  bool failed = false;
  std::vector<Waiting> calls;
};

Group& group() {
  thread_local Group one;
  return one;
}

bool registered(const ncclComm& comm, const std::byte* data, std::size_t bytes) {
  return std::any_of(comm.registered.begin(), comm.registered.end(), [&](const auto& region) {
    return data >= region->data && data + bytes <= region->data + region->bytes;
  });
}

/// What a call reads and writes on this rank, in bytes.
struct Extent {
  std::size_t from, to;
  std::ptrdiff_t in_place;  ///< where `from` may lie from `to` on
};

Extent extent(const Signature& s, int rank, int size) {
  const std::size_t bytes = static_cast<std::size_t>(s.count) * element_bytes(s.type);
  const auto all = bytes * static_cast<std::size_t>(size);
  const auto own = static_cast<std::ptrdiff_t>(bytes) * rank;
  switch (s.kind) {
    case Kind::all_gather:
      return {bytes, all, own};
    case Kind::reduce_scatter:
      return {all, bytes, -own};
    case Kind::reduce:
      return {bytes, rank == s.root ? bytes : 0, 0};
    case Kind::broadcast:
      return {rank == s.root ? bytes : 0, bytes, 0};
    case Kind::send:
      return {bytes, 0, 0};
    default:
      return {0, bytes, 0};
  }
}

/// Throws Error for what NCCL's header forbids. Fills in whether the memory is registered.
void check(const ncclComm& comm, cudaStream_t stream, Call& call) {
  Signature& s = call.signature;
  const std::string text = describe(s);
  const int size = comm.clique->size();
  REQUIRE(s.root < size, "{} of a communicator of {} ranks", text, size);
  REQUIRE(s.op < 0 || (s.op == ncclSum && sums(s.type)),
          "{}: the late NCCL sums floating-point numbers alone", text);
  const Extent e = extent(s, comm.clique->rank(), size);
  REQUIRE(e.from == 0 || late_cuda::is_device_memory(call.from, e.from),
          "{} reads what is no memory of the device", text);
  REQUIRE(e.to == 0 || late_cuda::is_device_memory(call.to, e.to),
          "{} writes what is no memory of the device", text);
  // A GPU does not read or write elements that begin elsewhere.
  for (const std::byte* data :
       {static_cast<const std::byte*>(call.from), static_cast<const std::byte*>(call.to)})
    REQUIRE(reinterpret_cast<std::uintptr_t>(data) % element_bytes(s.type) == 0,
            "{}: memory begins on no multiple of {} bytes", text, element_bytes(s.type));
  const bool apart = call.from + e.from <= call.to || call.to + e.to <= call.from;
  REQUIRE(e.from == 0 || e.to == 0 || apart || call.from == call.to + e.in_place,
          "{}: what is read and what is written overlap otherwise than in place", text);
  const Resources& resources = *comm.resources;
  REQUIRE(!resources.aborted, "{} on a communicator whose resources were aborted", text);
  REQUIRE(resources.stream == nullptr || resources.stream == stream,
          "{} is given to another stream than work before it of communicators that share its resources",
          text);
  const bool whole = (e.from == 0 || registered(comm, call.from, e.from)) &&
                     (e.to == 0 || s.kind == Kind::reduce || registered(comm, call.to, e.to));
  s.registered = whole && s.kind < Kind::send ? 1 : 0;
}

/// Whether the ranks whose connections a group of calls needs have come to theirs. Throws Error when they do
/// not come.
bool connected(ncclComm& comm, const std::vector<Call>& calls, double since) {
  bool all = true;
  const auto wait_for = [&](bool come, const Signature& call) {
    all = all && come;
    REQUIRE(come || ztrain::now() - since < Library::get().options.patience,
            "{} of rank {} waits for a connection: the host of the other side does not come to its call",
            describe(call), comm.clique->rank());
  };
  for (const Call& call : calls) {
    const Signature& s = call.signature;
    if (s.kind < Kind::send)
      wait_for(comm.clique->all_reached(&Rank::connected, 1), s);
    else
      wait_for(comm.clique->connected(s.kind == Kind::send, s.root), s);
  }
  return all;
}

/// Takes the device's memory for the communicator's connections, unless it is taken.
void take_connections(ncclComm& comm) {
  const std::size_t bytes = Library::get().options.connection_bytes;
  if (comm.connections || bytes == 0) return;
  REQUIRE(late_cuda::device_memory().take_room(bytes), "no memory of the device is left for connections");
  comm.connections =
      std::shared_ptr<void>(&comm, [bytes](void*) { late_cuda::device_memory().give_room(bytes); });
}

/// Gives the calls to the stream, as one operation, late.
ncclResult_t issue(const std::shared_ptr<ncclComm>& comm, cudaStream_t stream, std::vector<Call> calls) {
  REQUIRE(calls.size() <= most_calls, "the late NCCL takes {} calls in a group", most_calls);
  int collectives = 0, index = 0;
  for (const Call& call : calls) collectives += call.signature.kind < Kind::send ? 1 : 0;
  for (Call& call : calls) {
    call.signature.calls = collectives;
    call.signature.index = call.signature.kind < Kind::send ? index++ : 0;
  }
  take_connections(*comm);
  ++comm->launches;
  comm->resources->stream = stream;
  if (collectives > 0) comm->clique->self().connected.store(1);
  return in_background(comm, [&c = *comm, stream, calls = std::move(calls), since = ztrain::now()] {
    if (!connected(c, calls, since)) return ncclInProgress;
    const auto launch = std::make_shared<Launch>(c.shared_from_this(), calls, late_cuda::capturing(stream));
    late_cuda::enqueue(
        stream, [launch] { return launch->step(); }, "work of NCCL");
    return ncclSuccess;
  });
}

ncclResult_t take(ncclComm* comm, cudaStream_t stream, const Signature& signature, const void* from,
                  void* to) {
  const ncclResult_t result = guarded([&] {
    const auto found = Library::get().ready(comm, describe(signature).c_str());
    Call call{signature, static_cast<const std::byte*>(from), static_cast<std::byte*>(to)};
    check(*found, stream, call);
    if (group().depth == 0) return issue(found, stream, {call});
    group().calls.push_back({found, stream, call});
    return ncclSuccess;
  });
  if (result != ncclSuccess && result != ncclInProgress) group().failed = group().depth > 0;
  return result;
}

Signature signature(Kind kind, std::size_t count, ncclDataType_t type, int op, int root) {
  return {kind, type, op, root, static_cast<std::int64_t>(count), 0, 0, 1};
}

}  // namespace

extern "C" {

ncclResult_t ncclGroupStart() {
  ++group().depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  return guarded([&] {
    REQUIRE(group().depth > 0, "ncclGroupEnd without ncclGroupStart");
    if (--group().depth > 0) return ncclSuccess;
    const Group ended = std::exchange(group(), Group{});
    REQUIRE(!ended.failed, "a call of the group failed: {}", Library::get().last());
    ncclResult_t result = ncclSuccess;
    for (std::size_t i = 0; i < ended.calls.size(); ++i) {
      const Waiting& first = ended.calls[i];
      const auto of_first = [&](const Waiting& w) { return w.comm == first.comm; };
      if (std::any_of(ended.calls.begin(), ended.calls.begin() + static_cast<std::ptrdiff_t>(i), of_first))
        continue;
      std::vector<Call> calls;
      for (const Waiting& w : ended.calls) {
        REQUIRE(!of_first(w) || w.stream == first.stream,
                "a group gives work of one communicator to two streams");
        if (of_first(w)) calls.push_back(w.call);
      }
      const ncclResult_t issued = issue(first.comm, first.stream, std::move(calls));
      if (issued != ncclSuccess && (result == ncclSuccess || result == ncclInProgress)) result = issued;
    }
    return result;
  });
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return take(comm, stream, signature(Kind::all_gather, count, type, -1, -1), from, to);
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return take(comm, stream, signature(Kind::reduce_scatter, count, type, op, -1), from, to);
}

ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  return take(comm, stream, signature(Kind::reduce, count, type, op, root), from, to);
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return take(comm, stream, signature(Kind::broadcast, count, type, -1, root), from, to);
}

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return take(comm, stream, signature(Kind::send, count, type, -1, peer), from, nullptr);
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return take(comm, stream, signature(Kind::receive, count, type, -1, peer), nullptr, to);
}

}  // extern "C"
