#include "runtime/comm/mpi_comm.hpp"

#include <cstring>
#include <exception>

#include "base/error.hpp"
#include "layout/comm_cost.hpp"
#include "runtime/comm/peers.hpp"
#include "runtime/comm/phased_collective.hpp"
#include "runtime/comm/rank_sum.hpp"
#include "runtime/session/mpi_check.hpp"

namespace ztrain::runtime {
namespace {

const std::byte* slot(const void* base, std::int64_t index, std::int64_t bytes) {
  return static_cast<const std::byte*>(base) + index * bytes;
}
std::byte* slot(void* base, std::int64_t index, std::int64_t bytes) {
  return static_cast<std::byte*>(base) + index * bytes;
}

/// Copies unless the two are the same place.
std::function<void()> copy_step(const void* from, void* to, std::int64_t bytes) {
  if (from == to || bytes == 0) return {};
  return [=] { std::memcpy(to, from, static_cast<std::size_t>(bytes)); };
}

std::function<void()> sum_step(const RankSources& sources, RankSum sum, void* out, std::int64_t count) {
  return [=, in_order = sources.in_order()] {
    sum(in_order.data(), static_cast<int>(in_order.size()), out, count);
  };
}

std::unique_ptr<Collective> make(Channel& channel, std::function<void()> before, std::vector<Phase> phases) {
  return std::make_unique<PhasedCollective>(channel, PhasedCollective::Order::collective, std::move(before),
                                            std::move(phases));
}

}  // namespace

MpiCommunicator::MpiCommunicator(MPI_Comm comm, std::string group, std::shared_ptr<Progress> progress,
                                 std::int64_t cut) {
  channel_.comm = comm;
  channel_.group = std::move(group);
  channel_.progress = std::move(progress);
  channel_.cut = cut;
  check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(comm, &channel_.rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm, &channel_.size), "MPI_Comm_size");
}

MpiCommunicator::~MpiCommunicator() {
  // Freeing is collective: a rank that fails alone must not wait in it for the others.
  if (std::uncaught_exceptions() == 0) MPI_Comm_free(&channel_.comm);
}

std::unique_ptr<Collective> MpiCommunicator::all_gather(const void* shard, void* full, std::int64_t bytes) {
  Phase phase{exchange(), {}};
  for (int k = 0; k + 1 < size(); ++k) phase.exchange.receive(other(k), slot(full, other(k), bytes), bytes);
  for (int k = 0; k + 1 < size(); ++k) phase.exchange.send(other(k), shard, bytes);
  return make(channel_, copy_step(shard, slot(full, rank(), bytes), bytes), {std::move(phase)});
}

std::unique_ptr<Collective> MpiCommunicator::reduce_scatter(const void* full, DType in, void* shard,
                                                            DType out, std::int64_t count, bool accumulate,
                                                            void* workspace, std::int64_t stride) {
  const std::int64_t bytes = count * size_of(in), step = stride > 0 ? stride * size_of(in) : bytes;
  Phase phase{exchange(), {}};
  for (int k = 0; k + 1 < size(); ++k)
    phase.exchange.receive(other(k), slot(workspace, exchange_slot(other(k), rank()), bytes), bytes);
  for (int k = 0; k + 1 < size(); ++k) phase.exchange.send(other(k), slot(full, other(k), step), bytes);
  phase.then = sum_step({slot(full, rank(), step), workspace, bytes, rank(), size()},
                        rank_sum(in, out, accumulate), shard, count);
  return make(channel_, {}, {std::move(phase)});
}

std::unique_ptr<Collective> MpiCommunicator::all_reduce(const void* from, void* to, DType type,
                                                        std::int64_t count, void* workspace) {
  const std::int64_t element = size_of(type), slice = all_reduce_slice(size(), count) * element;
  const auto length = [&](int r) { return slice_length(size(), count, r); };
  const std::int64_t own = length(rank()) * element;
  std::byte* const own_slice = slot(to, rank(), slice);
  Phase scatter{exchange(), {}}, gather{exchange(), {}};
  for (int k = 0; k + 1 < size(); ++k)
    scatter.exchange.receive(other(k), slot(workspace, exchange_slot(other(k), rank()), own), own);
  for (int k = 0; k + 1 < size(); ++k)
    scatter.exchange.send(other(k), slot(from, other(k), slice), length(other(k)) * element);
  scatter.then = sum_step({slot(from, rank(), slice), workspace, own, rank(), size()},
                          rank_sum(type, type, false), own_slice, length(rank()));
  for (int k = 0; k + 1 < size(); ++k)
    gather.exchange.receive(other(k), slot(to, other(k), slice), length(other(k)) * element);
  for (int k = 0; k + 1 < size(); ++k) gather.exchange.send(other(k), own_slice, own);
  std::vector<Phase> phases;
  phases.push_back(std::move(scatter));
  phases.push_back(std::move(gather));
  return make(channel_, {}, std::move(phases));
}

std::unique_ptr<Collective> MpiCommunicator::broadcast(void* data, std::int64_t bytes, int root) {
  require_root(*this, channel_.group, root);
  Phase phase{exchange(), {}};
  if (rank() != root) phase.exchange.receive(root, data, bytes);
  for (int k = 0; rank() == root && k + 1 < size(); ++k) phase.exchange.send(other(k), data, bytes);
  return make(channel_, {}, {std::move(phase)});
}

std::unique_ptr<Collective> MpiCommunicator::all_to_all(const void* in, void* out, std::int64_t bytes) {
  Phase phase{exchange(), {}};
  for (int k = 0; k + 1 < size(); ++k) phase.exchange.receive(other(k), slot(out, other(k), bytes), bytes);
  for (int k = 0; k + 1 < size(); ++k) phase.exchange.send(other(k), slot(in, other(k), bytes), bytes);
  return make(channel_, copy_step(slot(in, rank(), bytes), slot(out, rank(), bytes), bytes),
              {std::move(phase)});
}

std::unique_ptr<Collective> MpiCommunicator::shift(const void* in, void* out, std::int64_t bytes, int by) {
  const Ring ring = ring_of(*this, channel_.group, by);
  Phase phase{exchange(), {}};
  phase.exchange.receive(ring.from, out, bytes);
  phase.exchange.send(ring.to, in, bytes);
  return make(channel_, {}, {std::move(phase)});
}

std::unique_ptr<Collective> MpiCommunicator::send(const void* data, std::int64_t bytes, int to) {
  require_peer(*this, channel_.group, to, "send to");
  Phase phase{exchange(), {}};
  phase.exchange.send(to, data, bytes);
  return std::make_unique<PhasedCollective>(channel_, PhasedCollective::Order::point_to_point, nullptr,
                                            std::vector<Phase>{std::move(phase)});
}

std::unique_ptr<Collective> MpiCommunicator::recv(void* data, std::int64_t bytes, int from) {
  require_peer(*this, channel_.group, from, "receive from");
  Phase phase{exchange(), {}};
  phase.exchange.receive(from, data, bytes);
  return std::make_unique<PhasedCollective>(channel_, PhasedCollective::Order::point_to_point, nullptr,
                                            std::vector<Phase>{std::move(phase)});
}

}  // namespace ztrain::runtime
