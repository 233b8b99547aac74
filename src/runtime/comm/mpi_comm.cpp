#include "runtime/comm/mpi_comm.hpp"

#include <cstring>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "runtime/comm/comm_backend.hpp"
#include "runtime/comm/peers.hpp"
#include "runtime/comm/rank_sum.hpp"
#include "runtime/session/mpi_check.hpp"

namespace ztrain::runtime {

struct Phase {
  Exchange exchange;
  std::function<void()> then{};  ///< runs once the phase's messages are complete; may be empty
};

/// A collective as a list of phases: exchange messages, then compute on what arrived.
class PhasedCollective final : public Collective {
 public:
  /// Point-to-point messages are matched by their order alone. Each collective needs its own tag, because
  /// later phases start in the order in which earlier ones complete.
  enum class Order : std::uint8_t { collective, point_to_point };

  /// `before` runs at start(), ahead of the first phase; it may be empty.
  PhasedCollective(Channel& channel, Order order, std::function<void()> before, std::vector<Phase> phases)
      : channel_(channel), order_(order), before_(std::move(before)), phases_(std::move(phases)) {
    REQUIRE(!phases_.empty() && phases_.size() <= phases_at_most, "a collective has 1 to {} phases, not {}",
            phases_at_most, phases_.size());
  }
  ~PhasedCollective() override {
    if (active_ && phases_.size() > 1) channel_.progress->remove(*this);
  }
  PhasedCollective(const PhasedCollective&) = delete;
  PhasedCollective& operator=(const PhasedCollective&) = delete;

  void start() override {
    REQUIRE(!active_, "a communication over {} was started again before it was complete", channel_.group);
    tag_ = point_to_point_tag;
    if (order_ == Order::collective)
      tag_ = 1 + static_cast<int>(channel_.started++ % in_flight_at_most) * phases_at_most;
    if (before_) before_();
    phase_ = 0;
    post();
    active_ = true;
    if (phases_.size() > 1) channel_.progress->add(*this);
  }

  bool test() override {
    while (active_) {
      if (!phases_[phase_].exchange.test()) return false;
      if (phases_[phase_].then) phases_[phase_].then();
      if (++phase_ < phases_.size()) {
        post();
        continue;
      }
      active_ = false;
      if (phases_.size() > 1) channel_.progress->remove(*this);
    }
    return true;
  }

  void wait() override {
    while (!test()) {
      channel_.progress->advance_others(*this);
      std::this_thread::yield();  // ranks may outnumber cores
    }
  }

 private:
  friend class Progress;
  static constexpr int point_to_point_tag = 0, phases_at_most = 3;
  static constexpr std::int64_t in_flight_at_most = 8192;  // MPI guarantees tags up to 32767

  void post() {
    Exchange& exchange = phases_[phase_].exchange;
    exchange.post(tag_ + static_cast<int>(phase_));
    channel_.sent += exchange.bytes_sent();
  }

  Channel& channel_;
  Order order_;
  std::function<void()> before_;
  std::vector<Phase> phases_;
  std::size_t phase_ = 0;
  bool active_ = false;
  int tag_ = 0;
  PhasedCollective* previous_ = nullptr;  ///< links of Progress
  PhasedCollective* next_ = nullptr;
};

void Progress::add(PhasedCollective& collective) {
  collective.previous_ = nullptr;
  collective.next_ = head_;
  if (head_ != nullptr) head_->previous_ = &collective;
  head_ = &collective;
}

void Progress::remove(PhasedCollective& collective) {
  if (collective.previous_ != nullptr) collective.previous_->next_ = collective.next_;
  if (collective.next_ != nullptr) collective.next_->previous_ = collective.previous_;
  if (head_ == &collective) head_ = collective.next_;
}

void Progress::advance_others(const PhasedCollective& waiting) {
  for (PhasedCollective* at = head_; at != nullptr;) {
    PhasedCollective* next = at->next_;  // test() unlinks what it completes
    if (at != &waiting) at->test();
    at = next;
  }
}

namespace {

template <class Void>
auto* slot(Void* base, std::int64_t index, std::int64_t bytes) {
  return moved(base, index * bytes);
}

/// Returns a step that copies, unless both are the same place.
std::function<void()> copy_step(const void* from, void* to, std::int64_t bytes) {
  if (from == to || bytes == 0) return {};
  return [=] { std::memcpy(to, from, static_cast<std::size_t>(bytes)); };
}

std::function<void()> sums_behind(const std::vector<SumWork>& sums) {
  std::vector<StreamWork> works;
  for (const SumWork& s : sums)
    works.push_back(host_rank_sum_work(s.in, s.out, s.accumulate, s.sources, s.to, s.count));
  return [works = std::move(works)] {
    for (const StreamWork& work : works) work(nullptr);
  };
}

std::unique_ptr<Collective> make(Channel& channel, std::function<void()> before, std::vector<Phase> phases,
                                 PhasedCollective::Order order = PhasedCollective::Order::collective) {
  return std::make_unique<PhasedCollective>(channel, order, std::move(before), std::move(phases));
}

}  // namespace

MpiCommunicator::MpiCommunicator(const GroupRequest& request, std::shared_ptr<Progress> progress,
                                 std::int64_t cut)
    : sum_group_(request.sum_group) {
  channel_.comm = request.comm;
  channel_.group = request.name;
  channel_.progress = std::move(progress);
  channel_.cut = cut;
  check_mpi(MPI_Comm_set_errhandler(channel_.comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(channel_.comm, &channel_.rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(channel_.comm, &channel_.size), "MPI_Comm_size");
}

MpiCommunicator::~MpiCommunicator() {
  // Freeing is collective. A rank that fails alone must not wait in it for the others.
  if (std::uncaught_exceptions() == 0) MPI_Comm_free(&channel_.comm);
}

std::unique_ptr<Collective> MpiCommunicator::all_gather(const void* shard, void* full, std::int64_t bytes) {
  Phase phase{exchange()};
  for (int k = 0; k + 1 < size(); ++k) phase.exchange.receive(other(k), slot(full, other(k), bytes), bytes);
  for (int k = 0; k + 1 < size(); ++k) phase.exchange.send(other(k), shard, bytes);
  return make(channel_, copy_step(shard, slot(full, rank(), bytes), bytes), {std::move(phase)});
}

std::vector<Phase> MpiCommunicator::sum_phases(const Reduction& reduction, const Slices& slices) const {
  std::vector<Phase> phases;
  for (const SumStep& step : sum_steps(sum_group_, rank(), reduction, slices)) {
    Phase phase{exchange(), sums_behind(step.sums)};
    for (const SumReceive& r : step.receives) phase.exchange.receive(r.from, r.data, r.bytes);
    for (const SumSend& s : step.sends) phase.exchange.send(s.to, s.data, s.bytes);
    phases.push_back(std::move(phase));
  }
  return phases;
}

std::unique_ptr<Collective> MpiCommunicator::reduce_scatter(const void* full, DType in, void* shard,
                                                            DType out, std::int64_t count, bool accumulate,
                                                            void* workspace, std::int64_t stride) {
  const Slices slices = reduce_scatter_slices(size(), count, stride);
  return make(channel_, {}, sum_phases({full, in, shard, out, accumulate, workspace}, slices));
}

std::unique_ptr<Collective> MpiCommunicator::all_reduce(const void* from, void* to, DType type,
                                                        std::int64_t count, void* workspace) {
  const Slices slices = all_reduce_slices(size(), count);
  const auto place = [&](int r) { return moved(to, r * slices.step * size_of(type)); };
  const auto bytes = [&](int r) { return slices.length(r) * size_of(type); };
  std::vector<Phase> phases = sum_phases({from, type, place(rank()), type, false, workspace}, slices);
  Phase gather{exchange()};
  for (int k = 0; k + 1 < size(); ++k) gather.exchange.receive(other(k), place(other(k)), bytes(other(k)));
  for (int k = 0; k + 1 < size(); ++k) gather.exchange.send(other(k), place(rank()), bytes(rank()));
  phases.push_back(std::move(gather));
  return make(channel_, {}, std::move(phases));
}

std::unique_ptr<Collective> MpiCommunicator::broadcast(void* data, std::int64_t bytes, int root) {
  require_root(*this, channel_.group, root);
  Phase phase{exchange()};
  if (rank() != root) phase.exchange.receive(root, data, bytes);
  for (int k = 0; rank() == root && k + 1 < size(); ++k) phase.exchange.send(other(k), data, bytes);
  return make(channel_, {}, {std::move(phase)});
}

std::unique_ptr<Collective> MpiCommunicator::all_to_all(const void* in, void* out, std::int64_t bytes) {
  Phase phase{exchange()};
  for (int k = 0; k + 1 < size(); ++k) phase.exchange.receive(other(k), slot(out, other(k), bytes), bytes);
  for (int k = 0; k + 1 < size(); ++k) phase.exchange.send(other(k), slot(in, other(k), bytes), bytes);
  return make(channel_, copy_step(slot(in, rank(), bytes), slot(out, rank(), bytes), bytes),
              {std::move(phase)});
}

std::unique_ptr<Collective> MpiCommunicator::all_to_all_rows(const void* in, void* out, std::int64_t rows,
                                                             std::int64_t row_bytes,
                                                             const std::int32_t* sizes) {
  const std::int64_t bytes = rows * row_bytes;
  Phase phase{exchange()};
  for (int k = 0; k + 1 < size(); ++k)
    phase.exchange.receive(other(k), slot(out, other(k), bytes), bytes,
                           {sizes + size() + other(k), row_bytes});
  for (int k = 0; k + 1 < size(); ++k)
    phase.exchange.send(other(k), slot(in, other(k), bytes), bytes, {sizes + other(k), row_bytes});
  const auto copy_own = [=, rank = rank()] {
    const std::int64_t own = sizes[rank] * row_bytes;
    REQUIRE(own >= 0 && own <= bytes, "{} rows do not fit into a slot of {}", sizes[rank], rows);
    if (own > 0) std::memcpy(slot(out, rank, bytes), slot(in, rank, bytes), static_cast<std::size_t>(own));
  };
  return make(channel_, copy_own, {std::move(phase)});
}

std::unique_ptr<Collective> MpiCommunicator::shift(const void* in, void* out, std::int64_t bytes, int by) {
  const Ring ring = ring_of(*this, channel_.group, by);
  Phase phase{exchange()};
  phase.exchange.receive(ring.from, out, bytes);
  phase.exchange.send(ring.to, in, bytes);
  return make(channel_, {}, {std::move(phase)});
}

std::unique_ptr<Collective> MpiCommunicator::send(const void* data, std::int64_t bytes, int to) {
  require_peer(*this, channel_.group, to, "send to");
  Phase phase{exchange()};
  phase.exchange.send(to, data, bytes);
  return make(channel_, {}, {std::move(phase)}, PhasedCollective::Order::point_to_point);
}

std::unique_ptr<Collective> MpiCommunicator::recv(void* data, std::int64_t bytes, int from) {
  require_peer(*this, channel_.group, from, "receive from");
  Phase phase{exchange()};
  phase.exchange.receive(from, data, bytes);
  return make(channel_, {}, {std::move(phase)}, PhasedCollective::Order::point_to_point);
}

}  // namespace ztrain::runtime
