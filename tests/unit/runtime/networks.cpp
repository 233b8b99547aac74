// Tests bindings and transports of nodes whose /sys and /proc the tests make.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "runtime/session/nics.hpp"
#include "runtime/session/transport.hpp"

namespace ztrain::runtime::networks_test {
namespace {

namespace fs = std::filesystem;

class Networks : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / ("networks_" + std::to_string(::getpid()));
    put("sys/devices/system/node/node0/cpulist", "0-3,8-11");
    put("sys/devices/system/node/node1/cpulist", "4-7");
    for (const char* interface : {"eth0", "ib0"}) {
      put(fs::path("sys/class/net") / interface / "operstate", "up");
      put(fs::path("sys/class/net") / interface / "device/numa_node", "0");
    }
    put("sys/class/net/eth0/type", "1");
    put("sys/class/net/ib0/type", "32");
    put("sys/class/net/lo/operstate", "unknown");
    put("sys/bus/pci/devices/0000:1b:00.0/numa_node", "0");
    put("sys/bus/pci/devices/0000:9a:00.0/numa_node", "1");
  }
  void TearDown() override { fs::remove_all(root_); }

  void put(const fs::path& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }
  void infiniband(const std::string& name, int numa, const std::string& link = "InfiniBand",
                  const std::string& state = "4: ACTIVE") const {
    const fs::path device = fs::path("sys/class/infiniband") / name;
    put(device / "device/numa_node", std::to_string(numa));
    put(device / "ports/1/link_layer", link);
    put(device / "ports/1/state", state);
  }
  void slingshot() const {
    put("sys/class/cxi/cxi0/device/numa_node", "0");
    put("sys/class/cxi/cxi1/device/numa_node", "1");
    put("sys/class/net/hsn0/operstate", "up");
  }
  std::string names() const {
    std::string text;
    for (const Nic& nic : nics_of_node(root_)) text += nic.name + " ";
    return text;
  }
  TransportFacts facts(std::map<std::string, std::string, std::less<>> variables = {}) const {
    return {"", {}, {}, {}, nics_of_node(root_), [variables](std::string_view name) {
              const auto it = variables.find(name);
              return it == variables.end() ? std::nullopt : std::optional(it->second);
            }};
  }
  fs::path root_;
};

TEST_F(Networks, OfANodeAreItsFastestThatAreUp) {
  EXPECT_EQ(names(), "eth0 ");
  infiniband("mlx5_1", 0, "Ethernet");
  infiniband("mlx5_2", 0, "InfiniBand", "1: DOWN");
  EXPECT_EQ(names(), "eth0 ") << "neither RoCE nor a port that is down";
  infiniband("mlx5_0", 1);
  EXPECT_EQ(names(), "mlx5_0 ");
  fs::remove_all(root_ / "sys/class/infiniband");
  put("sys/class/net/hsn0/operstate", "up");
  EXPECT_EQ(names(), "hsn0 ");
  slingshot();
  EXPECT_EQ(names(), "cxi0 cxi1 ");
}

TEST_F(Networks, AreNamedBesideCoresAndGpusOfTheirNumaNode) {
  EXPECT_EQ(binding_text(root_, {0, 1, 2, 8}, ""), "cores 0-2,8, NUMA node 0, eth0");
  infiniband("mlx5_0", 0);
  infiniband("mlx5_1", 1);
  EXPECT_EQ(binding_text(root_, {4, 5}, ""), "cores 4-5, NUMA node 1, mlx5_1");
  EXPECT_EQ(binding_text(root_, {3, 4}, ""), "cores 3-4, NUMA node 0-1, mlx5_0 mlx5_1");
  EXPECT_EQ(binding_text(root_, {0}, "0000:1b:00.0"), "GPU 0000:1b:00.0, cores 0, NUMA node 0, mlx5_0");
  EXPECT_EQ(binding_text(root_, {0}, "0000:9a:00.0"),
            "GPU 0000:9a:00.0 of another NUMA node (1), cores 0, NUMA node 0, mlx5_1");
  EXPECT_EQ(binding_text(root_ / "nowhere", {0, 2}, ""), "cores 0,2");
}

TEST(Bindings, OfNodesThatAreAlikeAreOneLine) {
  const std::vector<TextOfRank> ranks{{"a", 0, "x"}, {"a", 0, "y"}, {"b", 1, "x"},
                                      {"b", 1, "y"}, {"c", 2, "x"}, {"c", 2, "x"},
                                      {"d", 3, ""},  {"e", 4, "z"}, {"e", 4, ""}};
  EXPECT_EQ(lines_by_node(ranks),
            (std::vector<std::string>{"a and 1 like it: rank 0: x; rank 1: y", "c: ranks 0-1: x", "e: z"}));
}

TEST_F(Networks, OfMpiAreThoseOfItsOpenComponents) {
  TransportFacts found = facts({{"UCX_TLS", "tcp,self"}, {"FI_PROVIDER", "cxi"}});
  found.components = {"btl_base", "btl_self", "btl_tcp",  "btl_vader",
                      "mtl_base", "mtl_ofi",  "pml_base", "pml_ob1"};
  EXPECT_EQ(mpi_transport(found).text, "pml ob1 over btl tcp, vader");
  EXPECT_TRUE(mpi_transport(found).tcp);
  found.components.push_back("btl_openib");
  EXPECT_FALSE(mpi_transport(found).tcp);
  found.components = {"mtl_base", "mtl_ofi", "pml_base", "pml_cm"};
  EXPECT_EQ(mpi_transport(found).text,
            "pml cm, mtl ofi (FI_PROVIDER=cxi), over TCP between nodes: it has no device of a network open");
  found.opened = {"/dev/cxi0"};
  EXPECT_EQ(mpi_transport(found).text, "pml cm, mtl ofi (FI_PROVIDER=cxi) with /dev/cxi0 open");
  EXPECT_FALSE(mpi_transport(found).tcp);
  found.components = {"pml_base", "pml_ucx"};
  EXPECT_EQ(mpi_transport(found).text, "pml ucx (UCX_TLS=tcp,self) with /dev/cxi0 open");
  found.components = {};
  found.mpi = "MPICH Version:\t4.0.2\nMPICH Device:\tch4:ofi\nMPICH CC:\tgcc\n";
  EXPECT_EQ(mpi_transport(found).text, "ch4:ofi (FI_PROVIDER=cxi) with /dev/cxi0 open");
}

TEST_F(Networks, OfNcclAreItsPluginVerbsOrSockets) {
  slingshot();
  TransportFacts found = facts();
  EXPECT_EQ(nccl_transport(found).text, "TCP sockets");
  found.libraries = {"libc.so.6", "libnccl-net-ofi.so"};
  EXPECT_EQ(nccl_transport(found).text, "plugin libnccl-net-ofi.so");
  EXPECT_FALSE(nccl_transport(found).tcp);
  found.environment = facts({{"FI_PROVIDER", "tcp"}}).environment;
  EXPECT_TRUE(nccl_transport(found).tcp) << "the plugin's own provider";
  found.environment = facts({{"NCCL_NET", "Socket"}}).environment;
  EXPECT_EQ(nccl_transport(found).text, "TCP sockets (NCCL_NET=Socket)");
  fs::remove_all(root_ / "sys/class/cxi");
  infiniband("mlx5_0", 0);
  found = facts();
  EXPECT_TRUE(nccl_transport(found).tcp) << "libibverbs is not loaded";
  found.libraries = {"libibverbs.so.1.14"};
  EXPECT_EQ(nccl_transport(found).text, "IB (verbs)");
  found.environment = facts({{"NCCL_IB_DISABLE", "1"}}).environment;
  EXPECT_TRUE(nccl_transport(found).tcp);
}

TEST_F(Networks, ThatTcpPassesByAreWarnedOf) {
  const Transport tcp{"TCP sockets", true};
  EXPECT_EQ(tcp_warning("NCCL", tcp, nics_of_node(root_)), "") << "there is only Ethernet";
  infiniband("mlx5_0", 0);
  EXPECT_TRUE(
      tcp_warning("MPI", tcp, nics_of_node(root_))
          .starts_with("MPI goes over TCP (TCP sockets) past InfiniBand (mlx5_0): sites set, for example, "));
  slingshot();
  const std::string warning = tcp_warning("NCCL", tcp, nics_of_node(root_));
  EXPECT_NE(warning.find("past Slingshot (cxi0 cxi1)"), std::string::npos) << warning;
  EXPECT_NE(warning.find("NCCL_NET=\"AWS Libfabric\""), std::string::npos) << warning;
  EXPECT_EQ(tcp_warning("NCCL", {"plugin", false}, nics_of_node(root_)), "");
}

TEST_F(Networks, AreLookedForInThisProcess) {
  fs::create_directories(root_ / "proc/self/fd");
  fs::create_symlink("/dev/infiniband/uverbs0", root_ / "proc/self/fd/4");
  fs::create_symlink("/dev/null", root_ / "proc/self/fd/5");
  put("proc/self/maps",
      "7f00-7f01 r-xp 0 08:01 5 /opt/plugin/lib/libnccl-net.so\n7f02-7f03 rw-p 0 00:00 0 [heap]");
  infiniband("mlx5_0", 0);
  const TransportFacts found = look_at_transports(root_);
  EXPECT_EQ(found.opened, std::vector<std::string>{"/dev/infiniband/uverbs0"});
  EXPECT_EQ(found.libraries, std::vector<std::string>{"libnccl-net.so"});
  EXPECT_EQ(found.nics.size(), 1U);
  EXPECT_FALSE(found.mpi.empty());
}

}  // namespace
}  // namespace ztrain::runtime::networks_test
