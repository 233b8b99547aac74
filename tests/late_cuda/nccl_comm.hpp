#pragma once
// Communicators, and what the library remembers.

#include <nccl.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/late_cuda/late_nccl.hpp"
#include "tests/late_cuda/nccl_shared.hpp"

namespace late_nccl {

/// Channels and kernels' memory: of a communicator, and of those that were split from it and share.
struct Resources {
  std::atomic<bool> aborted = false;
  cudaStream_t stream = nullptr;  ///< the only one that work was given to
};

struct Region {
  const std::byte* data;
  std::size_t bytes;
};

}  // namespace late_nccl

struct ncclComm : std::enable_shared_from_this<ncclComm> {
  std::unique_ptr<late_nccl::Clique> clique;
  std::shared_ptr<late_nccl::Resources> resources;
  bool blocks = true, shares = false;
  bool finalizes = false;
  int max_ctas = 0;  ///< 0: not said
  /// What goes on in the background, asked until it says something else than ncclInProgress; empty: nothing.
  std::function<ncclResult_t()> background;
  ncclResult_t state = ncclSuccess;
  std::vector<std::unique_ptr<late_nccl::Region>> registered;
  std::shared_ptr<void> connections;  ///< memory of the device that they take; null: there are none yet
  std::uint64_t launches = 0, splits = 0;
  /// One more owner for each launch that a stream has and that has not run.
  std::shared_ptr<char> under_way = std::make_shared<char>();
  /// One more owner for each launch in a graph.
  std::shared_ptr<char> captured = std::make_shared<char>();
  std::uint64_t collectives = 0;  ///< that ran; the device's
};

namespace late_nccl {

class Library {
 public:
  static Library& get();

  Options options;
  std::map<ncclComm*, std::shared_ptr<ncclComm>> live;
  struct Allocation {
    void* base;  ///< of the runtime's allocation that it is in
    std::size_t bytes;
  };
  std::map<std::byte*, Allocation> memory;  ///< by what ncclMemAlloc gave

  /// Throws Error unless it lives and does nothing in the background.
  std::shared_ptr<ncclComm> ready(ncclComm* comm, const char* call);
  std::shared_ptr<ncclComm> find(ncclComm* comm, const char* call);
  ncclComm* add(std::shared_ptr<ncclComm> comm);
  /// Throws Error while a stream of any communicator is captured.
  void require_no_capture(const char* call) const;

  void remember(const std::string& text);  ///< and prints it
  std::string last() const;
  void forget();

 private:
  mutable std::mutex mutex_;  ///< of last_, which the device writes too
  std::string last_;
};

/// How often the host must ask before what happens in the background goes on: differs from rank to rank and
/// time to time.
int delay(const ncclComm& comm);

/// The communicator does this in the background, late; one that blocks does it now.
ncclResult_t in_background(const std::shared_ptr<ncclComm>& comm, std::function<ncclResult_t()> step);
/// One step of what the communicator does in the background. Success: nothing is left.
ncclResult_t advance(ncclComm& comm);

/// f(), whose errors the library remembers and calls ncclInvalidUsage.
template <class F>
ncclResult_t guarded(const F& f) {
  try {
    return f();
  } catch (const std::exception& error) {
    Library::get().remember(error.what());
    return ncclInvalidUsage;
  }
}

}  // namespace late_nccl
