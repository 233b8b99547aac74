#include "runtime/session/nics.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <system_error>

#include "runtime/session/session.hpp"

namespace ztrain::runtime {
namespace {

namespace fs = std::filesystem;

/// Returns the first line of a file, or "" if it cannot be read.
std::string line_of(const fs::path& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    entries.push_back(entry->path());
  std::ranges::sort(entries);
  return entries;
}

int numa_node_of(const fs::path& device) {
  std::ifstream file(device / "numa_node");
  int node = -1;
  return file >> node ? node : -1;
}

/// Returns whether a port of the device is up and InfiniBand's, not Ethernet's (RoCE). Elastic Fabric
/// Adapters count: they call their link "Unspecified".
bool is_infiniband(const fs::path& device) {
  return std::ranges::any_of(entries_of(device / "ports"), [](const fs::path& port) {
    return line_of(port / "state").ends_with("ACTIVE") && line_of(port / "link_layer") != "Ethernet";
  });
}

bool is_ethernet(const fs::path& interface) {
  constexpr std::string_view type_of_ethernet = "1";
  return fs::exists(interface / "device") && line_of(interface / "operstate") == "up" &&
         line_of(interface / "type") == type_of_ethernet;
}

/// Returns numbers as Linux lists them: "0-3,8".
std::string list_of(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t begin = 0, end = 0; begin < numbers.size(); begin = end) {
    for (end = begin + 1; end < numbers.size() && numbers[end] == numbers[end - 1] + 1;) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", numbers[begin]);
    if (end - begin > 1) text += fmt::format("-{}", numbers[end - 1]);
  }
  return text;
}

/// Returns the numbers of a list of Linux.
std::set<int> numbers_of(const std::string& list) {
  std::set<int> numbers;
  std::istringstream ranges(list);
  for (std::string range; std::getline(ranges, range, ',');) {
    int first = 0, last = 0;
    const int read = std::sscanf(range.c_str(), "%d-%d", &first, &last);
    if (read < 1) continue;
    for (int number = first; number <= (read == 2 ? last : first); ++number) numbers.insert(number);
  }
  return numbers;
}

std::vector<int> numa_nodes_of(const fs::path& root, const std::vector<int>& cores) {
  std::vector<int> nodes;
  for (const fs::path& node : entries_of(root / "sys/devices/system/node")) {
    const std::string name = node.filename();
    int number = 0;
    if (std::sscanf(name.c_str(), "node%d", &number) != 1) continue;
    const std::set<int> here = numbers_of(line_of(node / "cpulist"));
    if (std::ranges::any_of(cores, [&](int core) { return here.contains(core); })) nodes.push_back(number);
  }
  std::ranges::sort(nodes);
  return nodes;
}

/// Returns the texts of a node's ranks. If only one rank has a text, it stands without the rank's number.
std::string text_of_node(const std::vector<const TextOfRank*>& ranks) {
  const auto speaks = [](const TextOfRank* rank) { return !rank->text.empty(); };
  const bool one = std::ranges::count_if(ranks, speaks) == 1;
  std::string text;
  for (std::size_t begin = 0, end = 0; begin < ranks.size(); begin = end) {
    for (end = begin; end < ranks.size() && ranks[end]->text == ranks[begin]->text;) ++end;
    if (!speaks(ranks[begin])) continue;
    const std::string which = one                ? ""
                              : end - begin == 1 ? fmt::format("rank {}: ", begin)
                                                 : fmt::format("ranks {}-{}: ", begin, end - 1);
    text += fmt::format("{}{}{}", text.empty() ? "" : "; ", which, ranks[begin]->text);
  }
  return text;
}

}  // namespace

std::vector<Nic> nics_of_node(const fs::path& root) {
  const fs::path classes = root / "sys/class";
  std::vector<Nic> nics;
  const auto add = [&](const fs::path& device, NetworkKind kind) {
    nics.push_back({device.filename(), kind, numa_node_of(device / "device")});
  };
  for (const fs::path& device : entries_of(classes / "cxi")) add(device, NetworkKind::slingshot);
  const bool has_cxi = !nics.empty();
  for (const fs::path& device : entries_of(classes / "infiniband"))
    if (is_infiniband(device)) add(device, NetworkKind::infiniband);
  // Slingshot's first generation has interfaces with names in hsn, and no device of its own.
  if (!has_cxi)
    for (const fs::path& device : entries_of(classes / "net"))
      if (device.filename().string().starts_with("hsn")) add(device, NetworkKind::slingshot);
  if (!nics.empty()) return nics;
  for (const fs::path& device : entries_of(classes / "net"))
    if (is_ethernet(device)) add(device, NetworkKind::ethernet);
  return nics;
}

std::vector<int> cores_of_process() {
  std::vector<int> cores;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  return cores;
}

std::string binding_text(const fs::path& root, const std::vector<int>& cores, const std::string& gpu) {
  const std::vector<int> nodes = numa_nodes_of(root, cores);
  const int node_of_gpu = gpu.empty() ? -1 : numa_node_of(root / "sys/bus/pci/devices" / gpu);
  const std::vector<int> near = node_of_gpu < 0 ? nodes : std::vector{node_of_gpu};
  std::vector<std::string> all, close;
  for (const Nic& nic : nics_of_node(root)) {
    all.push_back(nic.name);
    if (std::ranges::count(near, nic.numa_node) > 0) close.push_back(nic.name);
  }
  const bool far = node_of_gpu >= 0 && !nodes.empty() && std::ranges::count(nodes, node_of_gpu) == 0;
  std::string text;
  if (!gpu.empty()) text += fmt::format("GPU {}, ", gpu);
  if (far) text.insert(text.size() - 2, fmt::format(" of another NUMA node ({})", node_of_gpu));
  text += fmt::format("cores {}", list_of(cores));
  if (!nodes.empty()) text += fmt::format(", NUMA node {}", list_of(nodes));
  if (!all.empty()) text += fmt::format(", {}", fmt::join(close.empty() ? all : close, " "));
  return text;
}

std::vector<std::string> lines_by_node(const std::vector<TextOfRank>& ranks) {
  std::map<int, std::vector<const TextOfRank*>> by_node;
  for (const TextOfRank& rank : ranks) by_node[rank.node].push_back(&rank);
  std::vector<std::pair<std::string, std::vector<std::string>>> alike;  // the ranks' texts, names of nodes
  for (const auto& [node, all] : by_node) {
    const std::string text = text_of_node(all);
    const auto known = std::ranges::find(alike, text, [](const auto& pair) { return pair.first; });
    if (known == alike.end())
      alike.push_back({text, {all.front()->host}});
    else
      known->second.push_back(all.front()->host);
  }
  std::vector<std::string> lines;
  for (const auto& [text, hosts] : alike) {
    const std::string others = hosts.size() == 1 ? "" : fmt::format(" and {} like it", hosts.size() - 1);
    if (!text.empty()) lines.push_back(fmt::format("{}{}: {}", hosts.front(), others, text));
  }
  return lines;
}

std::vector<TextOfRank> texts_of_ranks(const Session& session, const std::string& mine) {
  struct Entry {
    char host[64];
    char text[1024];
  } entry{};
  std::strncpy(entry.host, session.host().c_str(), sizeof entry.host - 1);
  std::strncpy(entry.text, mine.c_str(), sizeof entry.text - 1);
  std::vector<TextOfRank> ranks;
  for (const Entry& of : of_all(session, entry))
    ranks.push_back({of.host, session.node_of(static_cast<int>(ranks.size())), of.text});
  return ranks;
}

}  // namespace ztrain::runtime
