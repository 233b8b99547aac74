#pragma once
// Tells over which network MPI and NCCL send data between nodes. The answer follows from open components
// of Open MPI, open device files, loaded libraries and the environment. A node with Slingshot or InfiniBand
// whose data go over TCP gets a warning.

#include <filesystem>
#include <string>
#include <vector>

#include "base/launchers.hpp"
#include "runtime/session/nics.hpp"

namespace ztrain::runtime {

/// Facts on this process and its node.
struct TransportFacts {
  std::string mpi;                      ///< text of MPI_Get_library_version
  std::vector<std::string> components;  ///< open components of Open MPI, such as "pml_ob1" and "btl_tcp"
  std::vector<std::string> opened;      ///< files of network devices that are open, such as "/dev/cxi0"
  std::vector<std::string> libraries;   ///< file names of loaded libraries
  std::vector<Nic> nics;
  Environment environment;
};

/// The network over which a library sends data between nodes.
struct Transport {
  std::string text;  ///< such as "pml ob1 over btl tcp"
  bool tcp = false;
};

Transport mpi_transport(const TransportFacts& facts);
Transport nccl_transport(const TransportFacts& facts);

/// Returns a warning if data go over TCP on a node with a faster network, or "". `library` is "MPI" or
/// "NCCL".
std::string tcp_warning(const std::string& library, const Transport& transport, const std::vector<Nic>& nics);

/// Returns this process's facts. root stands for "/". Call it when MPI, and NCCL if it is used, have made
/// their connections. Asking Open MPI takes about 0.1 s.
TransportFacts look_at_transports(const std::filesystem::path& root);

/// Loads the libraries that NCCL would load for its network, if they are to be found.
void load_network_of_nccl(const Environment& environment);

/// The reports of all nodes, the same on every rank.
struct NetworkReport {
  std::vector<std::string> lines;     ///< a line for each node, or for several that are alike
  std::vector<std::string> warnings;  ///< each begins with the name of a node
};

/// Collective. Asks one rank of each node about MPI, and with nccl about NCCL too.
NetworkReport report_networks(const Session& session, const std::filesystem::path& root, bool nccl);

}  // namespace ztrain::runtime
