#pragma once
// Finds out where a rank sits on its node: cores, NUMA nodes, GPU and the network devices next to them, from
// files of /sys. Functions take the folder that stands for "/", so that tests can make one.

#include <filesystem>
#include <string>
#include <vector>

namespace ztrain::runtime {

class Session;

enum class NetworkKind { ethernet, infiniband, slingshot };

struct Nic {
  std::string name;  ///< such as "cxi0", "mlx5_0" or "eth0"
  NetworkKind kind = NetworkKind::ethernet;
  int numa_node = -1;  ///< -1: unknown
};

/// Returns the network devices that are up: those of Slingshot and InfiniBand, or else those of Ethernet.
std::vector<Nic> nics_of_node(const std::filesystem::path& root);

/// Returns the cores that this process may use.
std::vector<int> cores_of_process();

/// Says where a rank with these cores and this GPU is: "GPU 0000:1b:00.0, cores 0-15, NUMA node 0, mlx5_0".
/// The network devices are those of the GPU's NUMA node or, without a GPU, of the cores' NUMA nodes. If there
/// is none, all of the node's are named.
std::string binding_text(const std::filesystem::path& root, const std::vector<int>& cores,
                         const std::string& gpu);

/// Text of a rank with its node's name. One rank may have the text of its whole node.
struct TextOfRank {
  std::string host;
  int node = 0;
  std::string text;
};

/// Returns a line for each node, or for several that are alike, with the text of each rank by its index on
/// the node. Ranks are in their order. A node whose ranks have no text has no line.
std::vector<std::string> lines_by_node(const std::vector<TextOfRank>& ranks);

/// Collective. Returns each rank's text, by rank, cut at 1023 bytes.
std::vector<TextOfRank> texts_of_ranks(const Session& session, const std::string& mine);

}  // namespace ztrain::runtime
