#pragma once
// A collective as a list of phases: exchange messages, then compute on what arrived.

#include <functional>
#include <vector>

#include "runtime/comm/mpi_comm.hpp"

namespace ztrain::runtime {

struct Phase {
  Exchange exchange;
  std::function<void()> then;  ///< runs when the phase's messages are complete; may be empty
};

class PhasedCollective : public Collective {
 public:
  enum class Order { collective, point_to_point };

  /// before runs at start(), ahead of the first phase; may be empty.
  PhasedCollective(Channel& channel, Order order, std::function<void()> before, std::vector<Phase> phases);
  ~PhasedCollective() override;
  PhasedCollective(const PhasedCollective&) = delete;
  PhasedCollective& operator=(const PhasedCollective&) = delete;

  void start() override;
  bool test() override;
  void wait() override;

 private:
  friend class Progress;
  void post();
  void finish();

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

}  // namespace ztrain::runtime
