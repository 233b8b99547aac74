#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "memory/provider.hpp"

namespace ztrain::memory {
namespace {

/// Names that the two versions of control groups have for the same things.
struct Version {
  std::string_view controllers;  ///< controllers of a line of /proc/self/cgroup, "NUMBER:CONTROLLERS:GROUP"
  const char *folder, *limit, *used;
  std::array<std::string_view, 2> page_cache;  ///< keys of memory.stat that include the groups below
};
constexpr Version versions[] = {
    {"", "", "memory.max", "memory.current", {"inactive_file", "active_file"}},
    {"memory",
     "/memory",
     "memory.limit_in_bytes",
     "memory.usage_in_bytes",
     {"total_inactive_file", "total_active_file"}},
};

/// Returns the number in a one-line file; -1 if the file is missing or says "max".
std::int64_t number_in(const std::string& path) {
  std::ifstream file(path);
  std::int64_t value = -1;
  return file >> value ? value : -1;
}

/// Returns a group's page cache, which counts as used but is given back when memory is asked for.
std::int64_t reclaimable(const std::string& folder, const Version& version) {
  std::ifstream file(folder + "/memory.stat");
  std::int64_t total = 0, value = 0;
  for (std::string key; file >> key >> value;)
    if (key == version.page_cache[0] || key == version.page_cache[1]) total += value;
  return total;
}

/// Applies the limits of a group and of those above it.
void apply(MachineMemory& memory, const Version& version, std::string group, const std::string& root) {
  while (group.starts_with('/')) {
    const std::string folder = root + version.folder + (group == "/" ? "" : group) + "/";
    const std::int64_t limit = number_in(folder + version.limit),
                       used = number_in(folder + version.used) - reclaimable(folder, version);
    const std::int64_t left = std::max<std::int64_t>(0, limit - std::max<std::int64_t>(0, used));
    if (limit >= 0 && (limit < memory.total || left < memory.available)) {
      memory.total = std::min(memory.total, limit);
      memory.available = std::min(memory.available, left);
      memory.in_group = true;
    }
    group = group == "/" ? "" : group.substr(0, std::max<std::size_t>(1, group.rfind('/')));
  }
}

std::string text_of(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

MachineMemory within_control_groups(MachineMemory memory, const std::string& groups,
                                    const std::string& root) {
  std::istringstream lines(groups);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string_view controllers = std::string_view(line).substr(first + 1, second - first - 1);
    for (const Version& version : versions)
      if (controllers == version.controllers) apply(memory, version, line.substr(second + 1), root);
  }
  return memory;
}

MachineMemory machine_memory() {
  MachineMemory memory;
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  for (std::int64_t kib = 0; file >> key >> kib; std::getline(file, unit)) {
    if (key == "MemTotal:") memory.total = kib * 1024;
    if (key == "MemAvailable:") memory.available = kib * 1024;
  }
  if (memory.total == 0) return memory;
  return within_control_groups(memory, text_of("/proc/self/cgroup"), "/sys/fs/cgroup");
}

}  // namespace ztrain::memory
