// What runs kernels on the host: it must find what is wrong in them.

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "runtime/device/launch_cuda.hpp"
#include "tests/cuda_on_host/orders.hpp"

namespace ztrain::runtime::threads_test {
namespace {

using test::orders;

/// to[i]: first * the sum of the numbers of the threads up to this one of its block. With a barrier too few
/// where `wrong`.
__global__ void __launch_bounds__(256) number_sums(int* to, int first, bool wrong) {
  __shared__ int of_warp[8];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  int sum = first * thread;
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, sum, static_cast<unsigned>(step));
    if (lane >= step) sum += other;
  }
  if (lane == 31) of_warp[thread / 32] = sum;
  if (!wrong) __syncthreads();
  for (int w = 0; w < thread / 32; ++w) sum += of_warp[w];
  to[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

std::vector<int> run_number_sums(ThreadOrder order, int first, bool wrong) {
  std::vector<int> to(4 * 256, -1);
  CUstream_st stream{order};
  launch("the sums", number_sums, 4, 256, &stream, to.data(), first, wrong);
  return to;
}

TEST(CudaThreads, MeetAtBarriersAndShuffles) {
  for (const ThreadOrder order : orders) {
    const std::vector<int> to = run_number_sums(order, 1, false);
    for (int i = 0; i < 4 * 256; ++i)
      ASSERT_EQ(to[static_cast<std::size_t>(i)], i % 256 * (i % 256 + 1) / 2) << i;
  }
}

/// The last thread has gone.
__global__ void __launch_bounds__(64) wait_for_the_last() {
  if (threadIdx.x + 1 < blockDim.x) __syncthreads();
}

/// Two lanes name different ones.
__global__ void __launch_bounds__(64) shuffle_apart(int* to) {
  to[threadIdx.x] = __shfl_up_sync(threadIdx.x == 0 ? 1u : 3u, 5, 1u);
}

/// Each pair of lanes on its own: nothing comes from beyond.
__global__ void __launch_bounds__(64) shuffle_in_pairs(int* to) {
  const unsigned pair = 3u << threadIdx.x / 2 * 2;
  to[threadIdx.x] = __shfl_up_sync(pair, static_cast<int>(threadIdx.x), 1u);
}

TEST(CudaThreads, ThatWaitForEverAreNamed) {
  try {
    CUstream_st stream;
    launch("", wait_for_the_last, 3, 64, &stream);
    FAIL() << "no error";
  } catch (const std::logic_error& error) {
    EXPECT_STREQ(error.what(),
                 "block 0 of 64 threads is stuck: 63 wait at a barrier, 0 at a shuffle, 1 have ended");
  }
  std::vector<int> to(2);
  CUstream_st stream;
  EXPECT_THROW(launch("", shuffle_apart, 1, 2, &stream, to.data()), std::logic_error);
}

TEST(CudaThreads, ShuffleAmongThoseNamed) {
  std::vector<int> to(32);
  CUstream_st stream;
  launch("", shuffle_in_pairs, 1, 32, &stream, to.data());
  for (int i = 2; i < 32; ++i) EXPECT_EQ(to[static_cast<std::size_t>(i)], i % 2 == 0 ? -1 : i - 1) << i;
}

/// Its launches may have any number of threads.
__global__ void unbounded(int*) {}

TEST(CudaThreads, LaunchesThatNoGpuTakesAreRefused) {
  CUstream_st stream;
  const auto said = [](auto* kernel, int blocks, int threads, CUstream_st* on) -> std::string {
    try {
      launch("it", kernel, blocks, threads, on, nullptr);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const auto expect = [&](const std::string& text, const char* error) {
    EXPECT_NE(text.find(error), std::string::npos) << text;
  };
  expect(said(shuffle_in_pairs, 0, 32, &stream), "cudaErrorInvalidConfiguration");
  expect(said(shuffle_in_pairs, 1, 1025, &stream), "cudaErrorInvalidConfiguration");
  expect(said(shuffle_in_pairs, 1, 65, &stream), "cudaErrorLaunchOutOfResources");
  expect(said(shuffle_in_pairs, 1, 32, nullptr), "cudaErrorInvalidResourceHandle");
  expect(said(unbounded, 1, 32, &stream), "cudaErrorInvalidDeviceFunction");
}

#ifdef __SANITIZE_THREAD__

/// All blocks write one number.
__global__ void __launch_bounds__(64) write_once(int* to) {
  if (threadIdx.x == blockIdx.x) *to = static_cast<int>(blockIdx.x);
}

TEST(CudaRacesDeathTest, InSharedMemoryAreFound) {
  for (const ThreadOrder order : orders)
    EXPECT_EXIT((run_number_sums(order, 1, true), std::exit(0)), ::testing::ExitedWithCode(66), "data race");
  EXPECT_EXIT((run_number_sums(ThreadOrder::forward, 1, false), std::exit(0)), ::testing::ExitedWithCode(0),
              "");
}

TEST(CudaRacesDeathTest, BetweenBlocksAreFound) {
  int to = 0;
  CUstream_st stream;
  EXPECT_EXIT((launch("", write_once, 2, 32, &stream, &to), std::exit(0)), ::testing::ExitedWithCode(66),
              "data race");
}

#else

/// Only the first block writes what all read.
__global__ void __launch_bounds__(64) leave_and_take(int* to) {
  __shared__ int kept;
  if (threadIdx.x == 0 && blockIdx.x == 0) kept = 7;
  __syncthreads();
  if (threadIdx.x == 1) to[blockIdx.x] = kept;
}

/// Which may be what was left in shared memory, so with other numbers than before.
TEST(CudaThreads, ALackingBarrierGivesOtherNumbers) {
  int first = 2;
  for (const ThreadOrder order : {ThreadOrder::backward, ThreadOrder::shuffled}) {
    const std::vector<int> wrong = run_number_sums(order, ++first, true);
    EXPECT_NE(wrong, run_number_sums(order, first, false));
  }
}

TEST(CudaThreads, FindInSharedMemoryWhatWasLeftThere) {
  std::vector<int> to(3);
  CUstream_st stream;
  launch("", leave_and_take, 3, 32, &stream, to.data());
  EXPECT_EQ(to, (std::vector<int>{7, 7, 7}));
}

#endif

}  // namespace
}  // namespace ztrain::runtime::threads_test
