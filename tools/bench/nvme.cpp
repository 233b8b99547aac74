// What the NVMe store moves a second: ztrain_nvme_bench FOLDER[,FOLDER...] MIB BLOCK_KIB DEPTH THREADS. Writes so
// many MiB once, for the room that was only reserved to become written; then writes and reads them on the clock, a
// transfer being on its way while the next one is started, as a step's are. THREADS 0: io_uring where it may be
// used; else so many threads. Prints JSON.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "memory/arena.hpp"
#include "memory/nvme_store.hpp"

namespace {

using namespace ztrain;
using namespace ztrain::memory;

constexpr std::int64_t mib = std::int64_t{1} << 20;
constexpr int buffers = 2;

struct WithoutRing final : NvmeSystem {
  int allow_ring() override { return EPERM; }
};

NvmeOptions options_of(char** argv) {
  NvmeOptions options;
  std::string folders = argv[1];
  for (std::size_t at = 0; at <= folders.size();) {
    const std::size_t end = std::min(folders.find(',', at), folders.size());
    options.paths.emplace_back(folders.substr(at, end - at));
    at = end + 1;
  }
  options.block_bytes = std::atoll(argv[3]) * 1024;
  options.depth = std::atoi(argv[4]);
  options.threads = std::atoi(argv[5]);
  return options;
}

/// Bytes a second of all of the store, by transfers of a buffer each.
double move_all(NvmeStore& store, std::int64_t all, const Arena& memory, bool writes) {
  const std::int64_t part = memory.bytes() / buffers;
  const double begin = now();
  std::unique_ptr<NvmeStore::Transfer> under_way[buffers];
  for (std::int64_t at = 0, turn = 0; at < all; at += part, turn = (turn + 1) % buffers) {
    if (under_way[turn] != nullptr) under_way[turn]->wait();
    std::byte* const buffer = memory.at(turn * part);
    const std::int64_t bytes = std::min(part, all - at);
    under_way[turn] = writes ? store.write(at, buffer, bytes) : store.read(at, buffer, bytes);
    under_way[turn]->start();
  }
  for (const auto& transfer : under_way)
    if (transfer != nullptr) transfer->wait();
  return static_cast<double>(all) / (now() - begin);
}

void run(char** argv) {
  const NvmeOptions options = options_of(argv);
  const std::int64_t all = std::atoll(argv[2]) * mib;
  NvmeStore store(options, all,
                  options.threads > 0 ? std::shared_ptr<NvmeSystem>(std::make_shared<WithoutRing>())
                                      : std::make_shared<NvmeSystem>());
  Arena memory("buffers", buffers * std::max(128 * mib, options.depth * options.block_bytes));
  memory.poison(0, memory.bytes());
  store.register_memory(memory.at(0), memory.bytes());
  const double first = move_all(store, all, memory, true), write = move_all(store, all, memory, true);
  const double read = move_all(store, all, memory, false);
  fmt::print("{{\"first\": {:.0f}, \"write\": {:.0f}, \"read\": {:.0f}, \"how\": \"{}\"}}\n", first, write, read,
             store.description());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    fmt::print(stderr, "usage: {} FOLDER[,FOLDER...] MIB BLOCK_KIB DEPTH THREADS\n", argv[0]);
    return 2;
  }
  try {
    run(argv);
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
