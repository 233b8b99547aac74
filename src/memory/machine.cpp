#include <algorithm>
#include <fstream>

#include "memory/provider.hpp"

namespace ztrain::memory {
namespace {

/// The number in a one-line file; -1 when it is missing or says "max".
std::int64_t number_in(const std::string& path) {
  std::ifstream file(path);
  std::int64_t value = -1;
  return file >> value ? value : -1;
}

/// A group's page cache counts as used but is given back when memory is asked for.
std::int64_t reclaimable(const std::string& folder) {
  std::ifstream file(folder + "/memory.stat");
  std::int64_t total = 0, value = 0;
  for (std::string key; file >> key >> value;)
    if (key == "inactive_file" || key == "active_file") total += value;
  return total;
}

/// The limits of this process's control group (version 2) and of those above it: how batch systems bound a
/// job.
void apply_control_groups(MachineMemory& memory) {
  std::ifstream file("/proc/self/cgroup");
  std::string group;
  for (std::string line; std::getline(file, line);)
    if (line.rfind("0::", 0) == 0) group = line.substr(3);
  while (!group.empty()) {
    const std::string folder = "/sys/fs/cgroup" + (group == "/" ? "" : group);
    const std::int64_t limit = number_in(folder + "/memory.max"),
                       used = number_in(folder + "/memory.current") - reclaimable(folder);
    if (limit >= 0) {
      memory.total = std::min(memory.total, limit);
      memory.available =
          std::min(memory.available, std::max<std::int64_t>(0, limit - std::max<std::int64_t>(0, used)));
    }
    group = group == "/" ? "" : group.substr(0, std::max<std::size_t>(1, group.rfind('/')));
  }
}

}  // namespace

MachineMemory machine_memory() {
  MachineMemory memory;
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  for (std::int64_t kib = 0; file >> key >> kib; std::getline(file, unit)) {
    if (key == "MemTotal:") memory.total = kib * 1024;
    if (key == "MemAvailable:") memory.available = kib * 1024;
  }
  if (memory.total > 0) apply_control_groups(memory);
  return memory;
}

}  // namespace ztrain::memory
