// NCCL's functions that allocate. Their memory begins within an allocation of the runtime's, so that neither
// gives back what is the other's.
#include <cstdint>

#include "base/error.hpp"
#include "tests/late_cuda/nccl_comm.hpp"

using namespace late_nccl;

namespace {

constexpr std::size_t granularity = std::size_t{2} << 20;

std::size_t rounded(std::size_t bytes) {
  return (bytes + granularity - 1) / granularity * granularity;
}

ncclResult_t allocate(void** given, std::size_t bytes) {
  void* base = nullptr;
  if (cudaMalloc(&base, rounded(bytes) + granularity) != cudaSuccess) {
    Library::get().remember("ncclMemAlloc: out of memory");
    return ncclUnhandledCudaError;
  }
  auto* const data = reinterpret_cast<std::byte*>(rounded(reinterpret_cast<std::uintptr_t>(base) + 1));
  Library::get().memory[data] = {base, bytes};
  *given = data;
  return ncclSuccess;
}

bool within(const Region& region, const std::byte* data, std::size_t bytes) {
  return region.data >= data && region.data < data + bytes;
}

}  // namespace

extern "C" {

ncclResult_t ncclMemAlloc(void** given, size_t bytes) {
  return guarded([&] {
    const Library& library = Library::get();
    const bool fails = library.options.fault == Fault::memory && !library.memory.empty();
    return allocate(given, fails ? SIZE_MAX / 2 : bytes);
  });
}

ncclResult_t ncclMemFree(void* data) {
  return guarded([&] {
    Library& library = Library::get();
    const auto found = library.memory.find(static_cast<std::byte*>(data));
    REQUIRE(found != library.memory.end(), "ncclMemFree of what ncclMemAlloc did not give");
    for (const auto& [address, comm] : library.live)
      for (const auto& region : comm->registered)
        REQUIRE(!within(*region, found->first, found->second.bytes),
                "ncclMemFree of memory that a communicator has registered");
    const cudaError_t code = cudaFree(found->second.base);
    library.memory.erase(found);
    return code == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
  });
}

}  // extern "C"
