#include "runtime/comm/phased_collective.hpp"

#include <thread>

#include "base/error.hpp"

namespace ztrain::runtime {
namespace {
// Point-to-point messages are matched by their order alone. Collectives need a tag of their own each: their
// later phases start in whatever order they complete. MPI guarantees tags up to 32767.
constexpr int point_to_point_tag = 0;
constexpr int phases_at_most = 2;
constexpr std::int64_t in_flight_at_most = 8192;
}  // namespace

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

PhasedCollective::PhasedCollective(Channel& channel, Order order, std::function<void()> before,
                                   std::vector<Phase> phases)
    : channel_(channel), order_(order), before_(std::move(before)), phases_(std::move(phases)) {
  REQUIRE(!phases_.empty() && phases_.size() <= phases_at_most, "a collective has 1 to {} phases, not {}",
          phases_at_most, phases_.size());
}

PhasedCollective::~PhasedCollective() {
  if (active_ && phases_.size() > 1) channel_.progress->remove(*this);
}

void PhasedCollective::start() {
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

void PhasedCollective::post() {
  Exchange& exchange = phases_[phase_].exchange;
  exchange.post(tag_ + static_cast<int>(phase_));
  channel_.sent += exchange.bytes_sent();
}

bool PhasedCollective::test() {
  while (active_) {
    if (!phases_[phase_].exchange.test()) return false;
    if (phases_[phase_].then) phases_[phase_].then();
    if (++phase_ == phases_.size())
      finish();
    else
      post();
  }
  return true;
}

void PhasedCollective::finish() {
  active_ = false;
  if (phases_.size() > 1) channel_.progress->remove(*this);
}

void PhasedCollective::wait() {
  while (!test()) {
    channel_.progress->advance_others(*this);
    std::this_thread::yield();  // ranks may outnumber cores
  }
}

}  // namespace ztrain::runtime
