#pragma once
// What the device does of NCCL's work: the calls of a group on one communicator, as one operation of a
// stream.

#include <memory>
#include <vector>

#include "tests/late_cuda/nccl_comm.hpp"

namespace late_nccl {

struct Call {
  Signature signature;
  const std::byte* from;
  std::byte* to;
};

/// Bytes of one element.
std::size_t element_bytes(int type);
/// Whether sums are formed of it.
bool sums(int type);

class Turns;

class Launch {
 public:
  /// captured: it is part of a graph, and may run any number of times.
  Launch(std::shared_ptr<ncclComm> comm, std::vector<Call> calls, bool captured);
  ~Launch();
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  /// Goes on as far as it can without waiting. True: done; the next step begins anew. Throws Error, of which
  /// every rank of the communicator hears.
  bool step();

 private:
  struct Transfer {
    bool sends;
    int peer;
    Signature call;
    const std::byte* from;
    std::byte* to;
    std::size_t bytes, moved = 0;
    bool done = false;
  };
  Clique& clique() const { return *comm_->clique; }
  bool go_on();
  bool begin();
  void say(const std::string& text) const;
  void prepare(std::size_t index);
  void post();
  bool compare();
  bool move();
  bool push(Transfer& transfer);
  bool pull(Transfer& transfer);
  void finish(std::size_t index) const;
  void leave();

  std::shared_ptr<ncclComm> comm_;
  std::vector<Call> calls_;
  std::shared_ptr<Turns> turns_;
  std::shared_ptr<char> owner_;  ///< of the communicator's count
  std::uint64_t ticket_ = 0;     ///< its place among the launches of the device; 0: of a graph
  // Of one run.
  bool begun_ = false, compared_ = false;
  double progress_ = 0;       ///< when it last was
  std::uint64_t number_ = 0;  ///< of its collectives; 0: it has none
  std::vector<Transfer> transfers_;
  std::vector<std::vector<std::vector<std::byte>>> inbox_;  ///< by call and rank: what is to be summed
};

}  // namespace late_nccl
