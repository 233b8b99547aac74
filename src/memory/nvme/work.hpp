#pragma once
// What is to be read and written: transfers, cut into requests, and the lists from which they are carried
// out.

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "memory/nvme/files.hpp"
#include "memory/nvme/system.hpp"

namespace ztrain::memory {

struct NvmeJob;

/// The sum of a page of which it is not known what it holds.
constexpr std::uint64_t unknown_sum = 0;

/// A read or a write of at most a block of one file, in whole pages.
struct NvmeRequest {
  NvmeJob* job = nullptr;
  std::size_t file = 0;
  int descriptor = -1;
  std::int64_t offset = 0;  ///< in the file
  std::byte* memory = nullptr;
  std::int64_t bytes = 0;
  std::byte* tail = nullptr;    ///< memory is a page of the store's own, which stands for these bytes,
  std::int64_t tail_bytes = 0;  ///< so many
  /// Of each of its pages, of what was written there last, or unknown_sum. Null: none are kept.
  std::uint64_t* sums = nullptr;
  std::int64_t done = 0;  ///< bytes, in whole pages; of a failure by sums: to the page that is wrong
  int tries = 0;          ///< without a page more
};

/// A transfer as its requests.
struct NvmeJob {
  bool writes = false;
  std::vector<NvmeRequest> requests;
  std::size_t next = 0;                  ///< request to be begun; of the lists, under their lock
  NvmeJob* behind = nullptr;             ///< in its list
  std::atomic<std::int64_t> left{0};     ///< requests that have not ended
  std::atomic<bool> failed{false};       ///< requests that have not begun are not going to
  const NvmeRequest* failure = nullptr;  ///< the first one; to be read when none is left
  int error = 0;                         ///< of that one; 0: what was read is not what was written
};

/// Jobs in the order in which they came: reads and writes are lists of their own, from which requests are
/// taken by turns, so that neither waits for the other's end.
class NvmeWork {
 public:
  void add(NvmeJob& job);
  /// The next request; nullptr: none now.
  NvmeRequest* take();
  /// The same, but waits for one; nullptr: the end.
  NvmeRequest* wait_and_take();
  /// One request of the job has ended; the job is not touched after the last one.
  void leave(NvmeJob& job);
  /// Returns when none of its requests is left.
  void wait_for(const NvmeJob& job);
  /// Those who wait for requests get none any more, once the lists are empty.
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

/// What happens to a request on either way, before it is asked for and after an answer.
class NvmeSteps {
 public:
  NvmeSteps(NvmeWork& work, NvmeSystem& system) : work_(&work), system_(&system) {}
  /// False: its transfer has failed, and it has ended without being asked for.
  bool begin(NvmeRequest& request) const;
  /// Bytes to be asked for now.
  std::int64_t ask(const NvmeRequest& request) const;
  /// Takes what the system answered: bytes, or an error below zero. False: the rest is to be asked for.
  bool take_answer(NvmeRequest& request, std::int64_t answer) const;

 private:
  void fail(NvmeRequest& request, int error) const;

  NvmeWork* work_;
  NvmeSystem* system_;
};

/// Carries the requests of a NvmeWork out.
class NvmeCarrier {
 public:
  virtual ~NvmeCarrier() = default;
  /// A job was added.
  virtual void wake() {}
  /// 0, or what errno says; while no job is under way.
  virtual int register_memory(std::byte*, std::int64_t) { return 0; }
  /// Requests that are under way at once.
  virtual int depth() const = 0;
  /// "io_uring"
  virtual std::string description() const = 0;
};

/// io_uring, or nullptr with what errno says. The lists must outlive it, and be ended before it goes.
std::unique_ptr<NvmeCarrier> make_nvme_ring(NvmeWork& work, NvmeSteps steps, int depth, int& error);
/// Threads that read and write one request each.
std::unique_ptr<NvmeCarrier> make_nvme_threads(NvmeWork& work, NvmeSteps steps, int threads);

}  // namespace ztrain::memory
