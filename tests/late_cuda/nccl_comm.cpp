#include "tests/late_cuda/nccl_comm.hpp"

#include <cstdio>
#include <set>
#include <thread>

#include "base/error.hpp"
#include "tests/late_cuda/late_cuda.hpp"

namespace late_nccl {

Library& Library::get() {
  static Library library;
  return library;
}

std::shared_ptr<ncclComm> Library::find(ncclComm* comm, const char* call) {
  const auto found = live.find(comm);
  REQUIRE(found != live.end(), "{} with a communicator that is null, not there yet, or given back", call);
  return found->second;
}

std::shared_ptr<ncclComm> Library::ready(ncclComm* comm, const char* call) {
  const std::shared_ptr<ncclComm> found = find(comm, call);
  REQUIRE(!found->background,
          "{} while the communicator is still busy with the call before: wait until "
          "ncclCommGetAsyncError says something else than ncclInProgress",
          call);
  REQUIRE(!found->finalizes, "{} with a communicator that is finalized", call);
  REQUIRE(found->state == ncclSuccess, "{} with a communicator that has failed: {}", call,
          found->clique->failure());
  return found;
}

ncclComm* Library::add(std::shared_ptr<ncclComm> comm) {
  ncclComm* const address = comm.get();
  live[address] = std::move(comm);
  return address;
}

void Library::require_no_capture(const char* call) const {
  for (const auto& [address, comm] : live) {
    const cudaStream_t stream = comm->resources->stream;
    REQUIRE(stream == nullptr || !late_cuda::capturing(stream), "{} while work is captured", call);
  }
}

void Library::remember(const std::string& text) {
  const std::lock_guard lock(mutex_);
  last_ = text;
  std::fprintf(stderr, "late NCCL: %s\n", text.c_str());
}

std::string Library::last() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

void Library::forget() {
  const std::lock_guard lock(mutex_);
  last_.clear();
}

int delay(const ncclComm& comm) {
  return static_cast<int>(
      (comm.launches * 7 + comm.splits * 3 + static_cast<std::uint64_t>(comm.clique->rank())) % 4);
}

ncclResult_t advance(ncclComm& comm) {
  if (!comm.background) return comm.state;
  const ncclResult_t result = guarded([&] {
    const std::string failure = comm.clique->failure();
    if (failure.empty()) return comm.background();
    Library::get().remember(failure);
    return ncclRemoteError;
  });
  if (result == ncclInProgress) return result;
  comm.background = nullptr;
  comm.state = result;
  return result;
}

ncclResult_t in_background(const std::shared_ptr<ncclComm>& comm, std::function<ncclResult_t()> step) {
  comm->background = [left = delay(*comm), step = std::move(step)]() mutable {
    return left-- > 0 ? ncclInProgress : step();
  };
  if (!comm->blocks)  // asked at once, so that a delay of none is a success at once
    return advance(*comm);
  ncclResult_t result = ncclInProgress;
  while ((result = advance(*comm)) == ncclInProgress) std::this_thread::yield();
  return result;
}

void configure(const Options& options) {
  Library::get().options = options;
  Library::get().forget();
}

int communicators() {
  return static_cast<int>(Library::get().live.size());
}

int channel_sets() {
  std::set<const Resources*> sets;
  for (const auto& [address, comm] : Library::get().live) sets.insert(comm->resources.get());
  return static_cast<int>(sets.size());
}

std::set<int> max_ctas() {
  std::set<int> numbers;
  for (const auto& [address, comm] : Library::get().live) numbers.insert(comm->max_ctas);
  return numbers;
}

int registrations() {
  std::size_t count = 0;
  for (const auto& [address, comm] : Library::get().live) count += comm->registered.size();
  return static_cast<int>(count);
}

int memories() {
  return static_cast<int>(Library::get().memory.size());
}

std::string failure() {
  return Library::get().last();
}

}  // namespace late_nccl
