// Carries out requests by io_uring. One thread submits them and takes the answers, so reads and writes go on
// while the thread that started them computes. A build without liburing has no such carrier.

#include "memory/nvme/work.hpp"

#ifdef ZTRAIN_URING

#include <fmt/format.h>
#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "base/host_threads.hpp"

namespace ztrain::memory {
namespace {

// largest buffer that the kernel takes as one
constexpr std::int64_t largest_buffer = std::int64_t{1} << 30;

/// A ring, and the event that wakes the thread that waits for it.
struct RingHandles {
  io_uring ring{};
  int ring_error = ENOSYS;  ///< not 0: there is no ring
  int event = -1;

  explicit RingHandles(int depth) {
    ring_error = -::io_uring_queue_init(static_cast<unsigned>(depth) + 1, &ring, 0);
    if (ring_error == 0) event = ::eventfd(0, EFD_CLOEXEC);
  }
  RingHandles(const RingHandles&) = delete;
  RingHandles& operator=(const RingHandles&) = delete;
  ~RingHandles() {
    if (ring_error == 0) ::io_uring_queue_exit(&ring);
    if (event >= 0) ::close(event);
  }

  int why_not() {
    if (ring_error != 0) return ring_error;
    if (event < 0) return EMFILE;
    io_uring_probe* const probe = ::io_uring_get_probe_ring(&ring);
    if (probe == nullptr) return ENOSYS;
    bool knows_all = true;
    for (const int op : {IORING_OP_READ, IORING_OP_WRITE, IORING_OP_READ_FIXED, IORING_OP_WRITE_FIXED})
      knows_all = knows_all && ::io_uring_opcode_supported(probe, op) != 0;
    ::io_uring_free_probe(probe);
    return knows_all ? 0 : ENOSYS;
  }
};

class NvmeRing final : public NvmeCarrier {
 public:
  NvmeRing(std::unique_ptr<RingHandles> handles, NvmeWork& work, NvmeSteps steps, int depth)
      : handles_(std::move(handles)),
        work_(&work),
        steps_(steps),
        depth_(depth),
        thread_(thread_without_signals([this] { run(); })) {}
  ~NvmeRing() override {
    work_->end();
    wake();
    thread_.join();
  }

  void wake() override {
    const std::uint64_t one = 1;
    while (::write(handles_->event, &one, sizeof one) < 0 && errno == EINTR) {
    }
  }

  /// The ring's thread registers the memory: kernels before 5.13 wait until the ring has nothing under way,
  /// which with a read of the event would be for ever.
  int register_memory(std::byte* memory, std::int64_t bytes) override {
    std::unique_lock lock(mutex_);
    const std::size_t before = buffers_.size();
    for (std::int64_t at = 0; at < bytes; at += largest_buffer)
      buffers_.push_back({memory + at, static_cast<std::size_t>(std::min(largest_buffer, bytes - at))});
    wanted_ = true;
    wake();
    registered_.wait(lock, [&] { return !wanted_; });
    if (register_error_ == 0) return 0;
    buffers_.resize(before);  // the thread has registered the former buffers again
    return register_error_;
  }

  int depth() const override { return depth_; }
  std::string description() const override { return "io_uring"; }

 private:
  void run() {
    bool listens = false;
    for (;;) {
      if (!listens) register_wanted();
      while (under_way_ < depth_) {
        NvmeRequest* const request = work_->take();
        if (request == nullptr) break;
        if (!steps_.begin(*request)) continue;
        ++under_way_;
        submit(*request);
      }
      if (under_way_ == 0 && work_->ended()) return;
      if (!listens) listen();
      listens = true;
      wait_for_answers();
      io_uring_cqe* answer = nullptr;
      while (::io_uring_peek_cqe(&handles_->ring, &answer) == 0) {
        auto* const request = static_cast<NvmeRequest*>(::io_uring_cqe_get_data(answer));
        const std::int64_t result = answer->res;
        ::io_uring_cqe_seen(&handles_->ring, answer);
        if (request == nullptr) {
          listens = false;
        } else if (steps_.take_answer(*request, result)) {
          --under_way_;
        } else {
          submit(*request);
        }
      }
    }
  }

  /// Returns when there is an answer.
  void wait_for_answers() {
    for (;;) {
      const int status = ::io_uring_submit_and_wait(&handles_->ring, 1);
      if (status >= 0) return;
      // Requests under way may have to end before the kernel takes more.
      if (status == -EAGAIN || status == -EBUSY) {
        if (::io_uring_cq_ready(&handles_->ring) > 0) return;
        std::this_thread::yield();
      } else {
        ASSERT(status == -EINTR, "io_uring_enter: error {}", -status);
      }
    }
  }

  /// Returns a free entry. There always is one: at most depth requests and the event are under way.
  io_uring_sqe& entry() {
    io_uring_sqe* found = ::io_uring_get_sqe(&handles_->ring);
    while (found == nullptr) {
      ::io_uring_submit(&handles_->ring);
      found = ::io_uring_get_sqe(&handles_->ring);
    }
    return *found;
  }

  void listen() {
    io_uring_sqe& sqe = entry();
    ::io_uring_prep_read(&sqe, handles_->event, &events_, sizeof events_, 0);
    ::io_uring_sqe_set_data(&sqe, nullptr);
  }

  void submit(NvmeRequest& request) {
    io_uring_sqe& sqe = entry();
    std::byte* const memory = request.memory + request.done;
    const auto bytes = static_cast<unsigned>(steps_.ask(request));
    const auto offset = static_cast<std::uint64_t>(request.offset + request.done);
    const int buffer = buffer_of(memory, bytes);
    const bool writes = request.job->writes;
    if (buffer < 0) {
      if (writes)
        ::io_uring_prep_write(&sqe, request.descriptor, memory, bytes, offset);
      else
        ::io_uring_prep_read(&sqe, request.descriptor, memory, bytes, offset);
    } else {
      if (writes)
        ::io_uring_prep_write_fixed(&sqe, request.descriptor, memory, bytes, offset, buffer);
      else
        ::io_uring_prep_read_fixed(&sqe, request.descriptor, memory, bytes, offset, buffer);
    }
    ::io_uring_sqe_set_data(&sqe, &request);
    // Submits requests one by one: the kernel merges several at once into longer ones, of which a drive has
    // fewer to do side by side.
    ::io_uring_submit(&handles_->ring);
  }

  int buffer_of(const std::byte* memory, std::size_t bytes) const {
    for (std::size_t b = 0; b < in_kernel_; ++b) {
      const auto* const begin = static_cast<const std::byte*>(buffers_[b].iov_base);
      if (memory >= begin && memory + bytes <= begin + buffers_[b].iov_len) return static_cast<int>(b);
    }
    return -1;
  }

  /// Registers all of the list or, if that fails, the buffers that were registered before.
  void register_wanted() {
    const std::lock_guard lock(mutex_);
    if (!wanted_) return;
    const std::size_t before = std::exchange(in_kernel_, 0);
    if (before > 0) ::io_uring_unregister_buffers(&handles_->ring);
    const auto give = [&](std::size_t count) {
      if (count == 0) return 0;
      const int status =
          ::io_uring_register_buffers(&handles_->ring, buffers_.data(), static_cast<unsigned>(count));
      if (status == 0) in_kernel_ = count;
      return -status;
    };
    register_error_ = give(buffers_.size());
    if (register_error_ != 0) give(before);
    wanted_ = false;
    registered_.notify_all();
  }

  std::unique_ptr<RingHandles> handles_;
  NvmeWork* work_;
  NvmeSteps steps_;
  int depth_;

  std::mutex mutex_;
  std::condition_variable registered_;
  bool wanted_ = false;
  int register_error_ = 0;
  std::vector<iovec> buffers_;

  // Only the thread uses these.
  std::size_t in_kernel_ = 0;  ///< number of buffers that are registered
  int under_way_ = 0;
  std::uint64_t events_ = 0;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<NvmeCarrier> make_nvme_ring(NvmeWork& work, NvmeSteps steps, int depth,
                                            std::string& refused) {
  ASSERT(depth > 0, "an NVMe store of depth {}", depth);
  auto handles = std::make_unique<RingHandles>(depth);
  if (const int error = handles->why_not(); error != 0) {
    refused = std::strerror(error);
    return nullptr;
  }
  return std::make_unique<NvmeRing>(std::move(handles), work, steps, depth);
}

}  // namespace ztrain::memory

#else

namespace ztrain::memory {

std::unique_ptr<NvmeCarrier> make_nvme_ring(NvmeWork&, NvmeSteps, int, std::string& refused) {
  refused = "this build has no liburing";
  return nullptr;
}

}  // namespace ztrain::memory

#endif
