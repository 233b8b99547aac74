// A library that is loaded before others (LD_PRELOAD): on one rank the file system does not come back from
// syncing a checkpoint's file, and the next communication fails meanwhile.
//
// FAILING_RANK: which rank. FAILING_SECONDS: how long the file system takes.

#include <dlfcn.h>
#include <mpi.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace {

std::atomic<bool>& syncing() {
  static std::atomic<bool> now = false;
  return now;
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

bool is_shard(int file) {
  std::error_code unknown;
  const auto path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(file), unknown);
  return path.filename().string().starts_with("shard_");
}

template <class Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int fsync(int file) {
  const std::string rank = variable("OMPI_COMM_WORLD_RANK") + variable("PMI_RANK");  // of Open MPI or MPICH
  if (rank == variable("FAILING_RANK") && is_shard(file)) {
    syncing() = true;
    sleep(static_cast<unsigned>(std::stoi(variable("FAILING_SECONDS"))));
    syncing() = false;
  }
  return real<int (*)(int)>("fsync")(file);
}

int MPI_Testall(int count, MPI_Request requests[], int* done, MPI_Status statuses[]) {
  if (syncing()) return MPI_ERR_OTHER;
  return real<int (*)(int, MPI_Request*, int*, MPI_Status*)>("MPI_Testall")(count, requests, done, statuses);
}

}  // extern "C"
