// Carries out requests by threads with pread and pwrite, if io_uring may not be used.

#include <cerrno>
#include <thread>

#include "base/error.hpp"
#include "base/host_threads.hpp"
#include "files/file.hpp"
#include "memory/nvme/work.hpp"

namespace ztrain::memory {
namespace {

class NvmeThreads final : public NvmeCarrier {
 public:
  NvmeThreads(NvmeWork& work, NvmeSteps steps, int threads) : work_(&work), steps_(steps) {
    ASSERT(threads > 0, "an NVMe store of {} threads", threads);
    try {
      for (int t = 0; t < threads; ++t) threads_.push_back(thread_without_signals([this] { run(); }));
    } catch (...) {  // no further thread can be made
      join();
      throw;
    }
  }
  ~NvmeThreads() override { join(); }

  int depth() const override { return static_cast<int>(threads_.size()); }
  std::string description() const override { return "threads"; }

 private:
  void join() {
    work_->end();
    for (std::thread& thread : threads_) thread.join();
  }

  void run() const {
    while (NvmeRequest* const request = work_->wait_and_take())
      if (steps_.begin(*request))
        while (!steps_.take_answer(*request, carry_out(*request))) {
        }
  }

  std::int64_t carry_out(const NvmeRequest& request) const {
    std::byte* const memory = request.memory + request.done;
    const std::int64_t offset = request.offset + request.done, bytes = steps_.ask(request);
    const std::int64_t moved = request.job->writes ? write_some(request.descriptor, memory, bytes, offset)
                                                   : read_some(request.descriptor, memory, bytes, offset);
    return moved < 0 ? -errno : moved;
  }

  NvmeWork* work_;
  NvmeSteps steps_;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<NvmeCarrier> make_nvme_threads(NvmeWork& work, NvmeSteps steps, int threads) {
  return std::make_unique<NvmeThreads>(work, steps, threads);
}

}  // namespace ztrain::memory
