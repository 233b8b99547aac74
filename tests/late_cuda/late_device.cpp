// In place of the product's rank_sum.cu and its other ways to make kernels: those of the host, given to
// streams.
#include "tests/late_cuda/late_device.hpp"

#include "base/error.hpp"
#include "runtime/comm/rank_sum.hpp"
#include "tests/support/asynchronous_device.hpp"

namespace ztrain::test {
namespace {

void launch_kernel(void* stream, std::function<void()> kernel, const char* what) {
  late_cuda::enqueue(
      static_cast<cudaStream_t>(stream),
      [kernel = std::move(kernel)] {
        const late_cuda::Open open;
        kernel();
        return true;
      },
      what);
}

}  // namespace

void LateDevice::submit(runtime::Queue queue, const std::function<void()>& work) {
  inner().submit(queue, [&] { launch_kernel(native_stream(queue), work, "a kernel"); });
}

std::unique_ptr<LateDevice> make_late_device(const late_cuda::Options& options, int local_rank) {
  late_cuda::restart(options);
  return std::make_unique<LateDevice>(runtime::make_device(local_rank));
}

std::unique_ptr<runtime::Device> asynchronous_device(std::uint64_t seed) {
  return make_late_device({.seed = seed});
}

}  // namespace ztrain::test

namespace ztrain::runtime {

// Devices of other kinds have null streams, which are the calling thread.

StreamWork rank_sum_work(DType in, DType out, bool accumulate, const RankSources& sources, void* to,
                         std::int64_t count) {
  // A GPU does not read or write elements that begin elsewhere.
  const auto require_aligned = [](const void* address, DType type) {
    REQUIRE(reinterpret_cast<std::uintptr_t>(address) % static_cast<std::uintptr_t>(size_of(type)) == 0,
            "a sum over ranks of {} that begin on no multiple of {} bytes", name_of(type), size_of(type));
  };
  for (const void* source : sources.in_order()) require_aligned(source, in);
  require_aligned(to, out);
  return [host = host_rank_sum_work(in, out, accumulate, sources, to, count)](void* stream) {
    if (stream == nullptr) return host(stream);
    test::launch_kernel(
        stream, [host] { host(nullptr); }, "a sum over ranks");
  };
}

}  // namespace ztrain::runtime
