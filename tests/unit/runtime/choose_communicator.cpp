#include "runtime/comm/comm_backend.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace ztrain::choose_communicator_test {

using namespace ztrain::runtime;

namespace {

const std::vector<RankDevice> one_each = {{"a", "gpu0"}, {"a", "gpu1"}, {"b", "gpu0"}, {"b", "gpu1"}};
const std::vector<RankDevice> shared = {{"a", "gpu0"}, {"b", "gpu0"}, {"b", "gpu1"}, {"b", "gpu0"}};
const std::vector<RankDevice> one_without = {{"a", "gpu0"}, {"b", ""}};

std::string refusal(const std::vector<RankDevice>& ranks, bool shares_gpus) {
  try {
    choose_communicator("nccl", ranks, shares_gpus);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ChooseCommunicator, AutoTakesNcclWhereEachRankHasItsOwnGpu) {
  const CommunicatorChoice choice = choose_communicator("auto", one_each, false);
  EXPECT_TRUE(choice.nccl);
  EXPECT_EQ(choice.reason, "");
  EXPECT_TRUE(choose_communicator("auto", {{"a", "gpu0"}}, false).nccl);
}

TEST(ChooseCommunicator, AutoTakesMpiElsewhereAndSaysWhy) {
  for (const bool shares_gpus : {false, true}) {
    const CommunicatorChoice choice = choose_communicator("auto", shared, shares_gpus);
    EXPECT_FALSE(choice.nccl);
    EXPECT_EQ(choice.reason, "ranks 1 and 3 share a GPU of b");
  }
  EXPECT_EQ(choose_communicator("auto", one_without, false).reason, "rank 1 on b has no GPU");
}

TEST(ChooseCommunicator, TheDeckDecides) {
  EXPECT_FALSE(choose_communicator("mpi", one_each, true).nccl);
  EXPECT_EQ(choose_communicator("mpi", shared, true).reason, "device.communicator");
  EXPECT_TRUE(choose_communicator("nccl", one_each, false).nccl);
  EXPECT_TRUE(choose_communicator("nccl", shared, true).nccl);
}

TEST(ChooseCommunicator, NcclIsRefusedWhereItWillNotDo) {
  EXPECT_NE(refusal(shared, false).find("device.communicator = \"nccl\", but ranks 1 and 3 share a GPU of b"),
            std::string::npos)
      << refusal(shared, false);
  EXPECT_NE(refusal(one_without, true).find("rank 1 on b has no GPU"), std::string::npos);
}

TEST(ChooseCommunicator, GpusThatARankDoesNotSeeAreWarnedOf) {
  EXPECT_EQ(hidden_gpus(one_each, 0, 2), "");
  EXPECT_EQ(hidden_gpus({{"a", "gpu0"}, {"b", "gpu1"}}, 0, 1), "") << "the other is on another node";
  EXPECT_EQ(hidden_gpus({{"a", "gpu0"}, {"a", "gpu0"}}, 1, 1), "") << "they share it";
  const std::string warning = hidden_gpus(one_each, 2, 1);
  EXPECT_NE(warning.find("sees 1 of the 2 GPUs that the ranks of b use"), std::string::npos) << warning;
}

}  // namespace
}  // namespace ztrain::choose_communicator_test
