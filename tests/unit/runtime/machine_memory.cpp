// How much memory control groups leave to a process, in both of their versions.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "memory/provider.hpp"

namespace ztrain::machine_memory_test {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t gib = std::int64_t{1} << 30;

/// A tree of groups as the kernel shows it.
class ControlGroups : public testing::Test {
 protected:
  ControlGroups() : root_(fs::temp_directory_path() / ("ztrain_groups_" + std::to_string(::getpid()))) {}
  ~ControlGroups() override { fs::remove_all(root_); }

  void write(const std::string& file, const std::string& text) const {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text << "\n";
  }
  void write(const std::string& file, std::int64_t number) const { write(file, std::to_string(number)); }

  /// Of a machine of 64 GiB, of which 60 are available, in GiB.
  std::pair<std::int64_t, std::int64_t> within(const std::string& groups) const {
    const auto found = memory::within_control_groups({64 * gib, 60 * gib}, groups, root_.string());
    return {found.total / gib, found.available / gib};
  }

 private:
  fs::path root_;
};

using Pair = std::pair<std::int64_t, std::int64_t>;

TEST_F(ControlGroups, BoundAJobInVersion2) {
  write("slurm/job_7/memory.max", 16 * gib);
  write("slurm/job_7/memory.current", 10 * gib);
  write("slurm/job_7/memory.stat",
        "anon 1\nactive_file " + std::to_string(gib) + "\ninactive_file " + std::to_string(2 * gib));
  write("slurm/job_7/step_0/memory.max", "max");
  write("slurm/job_7/step_0/memory.current", 9 * gib);
  EXPECT_EQ(within("0::/slurm/job_7/step_0\n"), Pair(16, 9)) << "of the group above, without its page cache";
  EXPECT_EQ(within("0::/elsewhere\n"), Pair(64, 60));
  write("slurm/memory.max", 12 * gib);
  write("slurm/memory.current", 12 * gib);
  EXPECT_EQ(within("0::/slurm/job_7/step_0\n"), Pair(12, 0));
}

TEST_F(ControlGroups, BoundAJobInVersion1) {
  const std::string groups = "12:cpuset:/slurm/job_7\n4:memory:/slurm/uid_1/job_7\n1:name=systemd:/\n0::/\n";
  write("memory/memory.limit_in_bytes", std::int64_t{9223372036854771712});
  write("memory/slurm/uid_1/job_7/memory.limit_in_bytes", 8 * gib);
  write("memory/slurm/uid_1/job_7/memory.usage_in_bytes", 5 * gib);
  write("memory/slurm/uid_1/job_7/memory.stat",
        "inactive_file 7\ntotal_inactive_file " + std::to_string(gib));
  EXPECT_EQ(within(groups), Pair(8, 4));
  write("cpuset/slurm/job_7/memory.limit_in_bytes", gib);
  EXPECT_EQ(within(groups), Pair(8, 4)) << "of another controller";
}

TEST_F(ControlGroups, OfAContainerBoundIt) {
  write("memory.max", 16 * gib);
  write("memory.current", 10 * gib);
  EXPECT_EQ(within("0::/\n"), Pair(16, 6)) << "its own group is the root that it sees";
  write("kube/pod:cri-containerd:12/memory.max", 8 * gib);
  write("kube/pod:cri-containerd:12/memory.current", gib);
  EXPECT_EQ(within("0::/kube/pod:cri-containerd:12\n"), Pair(8, 6));
}

TEST_F(ControlGroups, ThatCannotBeReadBoundNothing) {
  for (const char* groups : {"", "0::\n", "nothing\n", "4:memory\n", "::::\n"})
    EXPECT_EQ(within(groups), Pair(64, 60)) << groups;
}

}  // namespace
}  // namespace ztrain::machine_memory_test
