#pragma once
// Transfers, cut into requests, and the lists from which requests are carried out.

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "memory/nvme/files.hpp"

namespace ztrain::memory {

struct NvmeJob;

/// Checksum of a page whose content is not known.
constexpr std::uint64_t unknown_sum = 0;

/// A read or a write of at most a block of one file, in whole pages.
struct NvmeRequest {
  NvmeJob* job = nullptr;
  std::size_t file = 0;
  int descriptor = -1;
  std::int64_t offset = 0;  ///< offset in the file
  std::byte* memory = nullptr;
  std::int64_t bytes = 0;
  std::byte* tail = nullptr;    ///< bytes for which memory, a page of the store's own, stands; null: none
  std::int64_t tail_bytes = 0;  ///< number of these bytes
  /// For each page the checksum of what was written there last, or unknown_sum. Null: none are kept.
  std::uint64_t* sums = nullptr;
  std::int64_t done = 0;  ///< bytes done, in whole pages; after a wrong checksum, up to the wrong page
  int tries = 0;          ///< answers without a further page
};

/// A transfer as its requests.
struct NvmeJob {
  bool writes = false;
  std::vector<NvmeRequest> requests;
  std::size_t next = 0;                  ///< next request to begin; guarded by the lists' lock
  NvmeJob* behind = nullptr;             ///< next job in its list
  std::atomic<std::int64_t> left{0};     ///< requests that have not ended
  std::atomic<bool> failed{false};       ///< requests that have not begun are left out
  const NvmeRequest* failure = nullptr;  ///< the first request that failed; read only when none is left
  int error = 0;                         ///< its error; 0: what was read is not what was written
};

/// Jobs in the order in which they came. Reads and writes are separate lists, from which requests are taken
/// in turn, so that neither waits for the other's end.
class NvmeWork {
 public:
  void add(NvmeJob& job);
  /// Returns the next request; nullptr if there is none now.
  NvmeRequest* take();
  /// Waits for the next request. Returns nullptr at the end.
  NvmeRequest* wait_and_take();
  /// Notes that one request of the job has ended. The job is not touched after the last one.
  void leave(NvmeJob& job);
  /// Returns when none of the job's requests is left.
  void wait_for(const NvmeJob& job);
  /// Ends the waits: those who wait for requests get none any more, once the lists are empty.
  void end();
  bool ended();

 private:
  struct List {
    NvmeJob* first = nullptr;
    NvmeJob* last = nullptr;
  };
  NvmeRequest* take_locked();

  std::mutex mutex_;
  std::condition_variable came_, left_;
  List lists_[2];
  int turn_ = 0;
  bool end_ = false;
};

/// Steps of a request in either carrier: before it is asked for, and after an answer.
class NvmeSteps {
 public:
  NvmeSteps(NvmeWork& work, NvmeSystem& system) : work_(&work), system_(&system) {}
  /// Returns false if its transfer has failed; the request has then ended without being asked for.
  bool begin(NvmeRequest& request) const;
  /// Returns the bytes to ask for now.
  std::int64_t ask(const NvmeRequest& request) const;
  /// Takes the system's answer: bytes, or an error below zero. Returns false if the rest is to be asked for.
  bool take_answer(NvmeRequest& request, std::int64_t answer) const;

 private:
  void fail(NvmeRequest& request, int error) const;

  NvmeWork* work_;
  NvmeSystem* system_;
};

/// Carries out the requests of a NvmeWork.
class NvmeCarrier {
 public:
  virtual ~NvmeCarrier() = default;
  /// Notes that a job was added.
  virtual void wake() {}
  /// Returns 0 or errno. No job may be under way.
  virtual int register_memory(std::byte*, std::int64_t) { return 0; }
  /// Returns the number of requests that are under way at once.
  virtual int depth() const = 0;
  /// Returns a name such as "io_uring".
  virtual std::string description() const = 0;
};

/// Makes a carrier with io_uring, or returns nullptr with the reason in `refused`. The lists must outlive it,
/// and be ended before it is destroyed.
std::unique_ptr<NvmeCarrier> make_nvme_ring(NvmeWork& work, NvmeSteps steps, int depth, std::string& refused);
/// Makes a carrier of threads that read and write one request each.
std::unique_ptr<NvmeCarrier> make_nvme_threads(NvmeWork& work, NvmeSteps steps, int threads);

}  // namespace ztrain::memory
