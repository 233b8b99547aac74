// Never compiled with ThreadSanitizer: what switches between threads is no part of what they do. With
// CUDA_ON_HOST_TSAN it tells the sanitizer, which the rest of the executable has, about threads and barriers.
// What the threads of a block wait for is found out between them, in the context of the host.
#include "tests/cuda_on_host/block.hpp"

#include <fmt/core.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <new>
#include <numeric>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#ifdef CUDA_ON_HOST_TSAN
#include <sanitizer/tsan_interface.h>
#endif

// The linker's: where the no-ops of functions begin that have some.
extern "C" {
extern const std::uintptr_t __start___patchable_function_entries[], __stop___patchable_function_entries[];
}

namespace cuda_on_host {

constinit thread_local uint3 threadIdx{}, blockIdx{};
constinit thread_local dim3 blockDim{}, gridDim{};

namespace {

constexpr unsigned warp = 32, most_threads = 1024, most_blocks = 0x7fffffff;
constexpr std::size_t stack_bytes = std::size_t{64} << 10;

#ifdef CUDA_ON_HOST_TSAN
constexpr bool watched = true;
void* current_fiber() {
  return __tsan_get_current_fiber();
}
void* create_fiber() {
  return __tsan_create_fiber(0);
}
void destroy_fiber(void* fiber) {
  __tsan_destroy_fiber(fiber);
}
void switch_fiber(void* to) {
  __tsan_switch_to_fiber(to, __tsan_switch_to_fiber_no_sync);
}
void release(void* at) {
  __tsan_release(at);
}
void acquire(void* at) {
  __tsan_acquire(at);
}
#else
constexpr bool watched = false;
void* current_fiber() {
  return nullptr;
}
void* create_fiber() {
  return nullptr;
}
void destroy_fiber(void*) {}
void switch_fiber(void*) {}
void release(void*) {}
void acquire(void*) {}
#endif

enum class Waits { for_nothing, at_barrier, at_exchange, ended };

struct Thread {
  ucontext_t context;
  void* fiber = nullptr;
  Waits waits = Waits::for_nothing;
  unsigned barriers = 0;  ///< that it has come to
  unsigned mask = 0;      ///< of the exchange that it waits at, which value it gives, and whose it wants
  Word word = 0;
  int from = 0;
};

/// Threads with their stacks: pages that cost nothing until they are touched. Kept from block to block, since
/// the sanitizer takes most of a millisecond to make one.
class Crew {
 public:
  Crew()
      : stacks_(mmap(nullptr, most_threads * stack_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    if (stacks_ == MAP_FAILED) throw std::bad_alloc();
    threads_.reserve(most_threads);
  }
  ~Crew() {
    for (const Thread& thread : threads_) destroy_fiber(thread.fiber);
    munmap(stacks_, most_threads * stack_bytes);
  }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  void hold(unsigned count) {
    while (threads_.size() < count) threads_.emplace_back().fiber = create_fiber();
  }
  /// The first `count` of those that it holds, before they begin with `enter`.
  Thread* start(unsigned count, void (*enter)()) {
    for (unsigned t = 0; t < count; ++t) {
      Thread& thread = threads_[t];
      thread.waits = Waits::for_nothing;
      thread.barriers = 0;
      getcontext(&thread.context);
      thread.context.uc_stack.ss_sp = static_cast<char*>(stacks_) + t * stack_bytes;
      thread.context.uc_stack.ss_size = stack_bytes;
      thread.context.uc_link = nullptr;
      makecontext(&thread.context, enter, 0);
    }
    return threads_.data();
  }

  /// Of blocks with even and with odd numbers. One launch runs at a time.
  static Crew& of(unsigned block) {
    static Crew crews[2];
    return crews[block % 2];
  }

 private:
  void* stacks_;
  std::vector<Thread> threads_;
};

class Block {
 public:
  Block(const cudaLaunchConfig_t& config, const std::function<void()>& kernel, unsigned index)
      : config_(config),
        kernel_(kernel),
        index_(index),
        count_(config.blockDim.x),
        threads_(Crew::of(index).start(count_, &Block::enter)) {}
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  void run();

  // Of a thread of the running block.
  static Block& here() { return *running; }
  void sync();
  Word exchange(unsigned mask, Word value, int from);

 private:
  static void enter();
  void resume(unsigned thread);
  void leave(Waits waits);
  void go_on(unsigned thread);
  void finish_exchange(unsigned first, unsigned mask);
  void arrange(std::vector<unsigned>& threads) const;
  long count(Waits waits) const;

  static constinit thread_local Block* running;

  const cudaLaunchConfig_t& config_;
  const std::function<void()>& kernel_;
  const unsigned index_, count_;
  Thread* const threads_;
  std::vector<unsigned> next_;  ///< threads that can go on
  unsigned current_ = 0, at_barrier_ = 0;
  ucontext_t host_;
  void* host_fiber_ = current_fiber();
  // Two in turn: what threads do behind a barrier is not yet ordered for those that have not left it.
  std::uint64_t barrier_[2] = {}, begin_ = 0, end_ = 0;
};

constinit thread_local Block* Block::running = nullptr;

void Block::enter() {
  Block& block = here();
  acquire(&block.begin_);
  block.kernel_();
  block.leave(Waits::ended);
}

void Block::run() {
  running = this;
  blockIdx = {index_, 0, 0};
  blockDim = config_.blockDim;
  gridDim = config_.gridDim;
  next_.resize(count_);
  std::iota(next_.begin(), next_.end(), 0u);
  release(&begin_);
  while (!next_.empty()) {
    std::vector<unsigned> now;
    now.swap(next_);
    arrange(now);
    for (const unsigned thread : now) resume(thread);
  }
  running = nullptr;
  acquire(&end_);
  if (count(Waits::ended) == count_) return;
  throw std::logic_error(
      fmt::format("block {} of {} threads is stuck: {} wait at a barrier, {} at a shuffle, {} have ended",
                  index_, count_, count(Waits::at_barrier), count(Waits::at_exchange), count(Waits::ended)));
}

void Block::resume(unsigned thread) {
  current_ = thread;
  threadIdx = {thread, 0, 0};
  switch_fiber(threads_[thread].fiber);
  swapcontext(&host_, &threads_[thread].context);
  if (threads_[thread].waits == Waits::at_exchange)
    finish_exchange(thread / warp * warp, threads_[thread].mask);
  if (threads_[thread].waits == Waits::at_barrier && ++at_barrier_ == count_) {
    at_barrier_ = 0;
    for (unsigned t = 0; t < count_; ++t) go_on(t);
  }
}

void Block::leave(Waits waits) {
  threads_[current_].waits = waits;
  release(&end_);  // also of those that never go on
  switch_fiber(host_fiber_);
  swapcontext(&threads_[current_].context, &host_);
}

void Block::go_on(unsigned thread) {
  threads_[thread].waits = Waits::for_nothing;
  next_.push_back(thread);
}

void Block::sync() {
  void* const barrier = &barrier_[threads_[current_].barriers++ % 2];
  release(barrier);
  leave(Waits::at_barrier);
  acquire(barrier);
}

Word Block::exchange(unsigned mask, Word value, int from) {
  Thread& thread = threads_[current_];
  thread.mask = mask;
  thread.word = value;
  thread.from = from;
  leave(Waits::at_exchange);
  return thread.word;
}

/// Once all of its lanes have come, each is given what it wants; all ones where nobody gives that.
void Block::finish_exchange(unsigned first, unsigned mask) {
  const auto has = [mask](unsigned lane) { return (mask >> lane & 1u) != 0; };
  Word words[warp];
  for (unsigned lane = 0; lane < warp; ++lane) {
    if (!has(lane)) continue;
    if (first + lane >= count_) return;
    const Thread& thread = threads_[first + lane];
    if (thread.waits != Waits::at_exchange || thread.mask != mask) return;
    words[lane] = thread.word;
  }
  for (unsigned lane = 0; lane < warp; ++lane) {
    if (!has(lane)) continue;
    Thread& thread = threads_[first + lane];
    const auto from = static_cast<unsigned>(thread.from);
    thread.word = from < warp && has(from) ? words[from] : ~Word{0};
    go_on(first + lane);
  }
}

void Block::arrange(std::vector<unsigned>& threads) const {
  const ThreadOrder order = config_.stream->order;
  std::sort(threads.begin(), threads.end());
  if (order == ThreadOrder::backward) std::reverse(threads.begin(), threads.end());
  if (order == ThreadOrder::shuffled) std::shuffle(threads.begin(), threads.end(), std::mt19937(index_));
}

long Block::count(Waits waits) const {
  return std::count_if(threads_, threads_ + count_, [waits](const Thread& t) { return t.waits == waits; });
}

/// Each block in a new thread of the host, one after the other, but without an order that ThreadSanitizer
/// sees: it sees no atomics of this source, and threads are joined in the end.
void run_watched(const cudaLaunchConfig_t& config, const std::function<void()>& kernel) {
  std::exception_ptr failure;
  std::atomic<unsigned> done = 0;
  std::vector<std::jthread> hosts;
  for (unsigned b = 0; b < config.gridDim.x && !failure; ++b) {
    hosts.emplace_back([&config, &kernel, &failure, &done] {
      const unsigned index = done;
      try {
        // In memory that is new to the sanitizer: nothing is known of its barriers.
        std::make_unique<Block>(config, kernel, index)->run();
      } catch (...) {
        failure = std::current_exception();
      }
      done = index + 1;
      done.notify_one();
    });
    done.wait(b);
    if (hosts.size() == 64) hosts.clear();
  }
  hosts.clear();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

unsigned launch_bound(const void* kernel) {
  const auto at = reinterpret_cast<std::uintptr_t>(kernel);
  std::uintptr_t bound = at;
  for (const auto* begin = __start___patchable_function_entries; begin != __stop___patchable_function_entries;
       ++begin)
    if (*begin <= at) bound = std::min(bound, at - *begin);
  return bound <= most_threads ? static_cast<unsigned>(bound) : 0;
}

cudaError_t run(const cudaLaunchConfig_t& config, unsigned bound, const std::function<void()>& kernel) {
  const unsigned blocks = config.gridDim.x, threads = config.blockDim.x;
  if (config.stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (bound == 0) return cudaErrorInvalidDeviceFunction;
  if (blocks == 0 || blocks > most_blocks || threads == 0 || threads > most_threads)
    return cudaErrorInvalidConfiguration;
  if (threads > bound) return cudaErrorLaunchOutOfResources;
  for (unsigned b = 0; b < std::min(blocks, 2u); ++b) Crew::of(b).hold(threads);
  if (watched) {
    run_watched(config, kernel);
  } else {
    for (unsigned b = 0; b < blocks; ++b) Block(config, kernel, b).run();
  }
  return cudaSuccess;
}

void sync_block() {
  Block::here().sync();
}

int lane() {
  return static_cast<int>(threadIdx.x % warp);
}

Word exchange(unsigned mask, Word value, int from) {
  return Block::here().exchange(mask, value, from);
}

}  // namespace cuda_on_host

cudaError_t cudaGetLastError() {
  return cudaSuccess;
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDeviceFunction:
      return "cudaErrorInvalidDeviceFunction";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorLaunchOutOfResources:
      return "cudaErrorLaunchOutOfResources";
    default:
      return "cudaError";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  return cudaGetErrorName(error);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  std::copy_n(static_cast<const char*>(from), bytes, static_cast<char*>(to));
  return cudaSuccess;
}
