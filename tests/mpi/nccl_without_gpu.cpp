// What NCCL's side says on a machine that has the CUDA toolkit and no GPU: one clear message on each rank.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "runtime/comm/mesh_comms.hpp"
#include "runtime/comm/nccl_backend.hpp"
#include "tests/support/mpi_main.hpp"

namespace ztrain::nccl_without_gpu_test {

using namespace ztrain::runtime;

namespace {

bool has_gpu() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

MeshShape all_ranks() {
  MeshShape shape;
  shape[Axis::shard] = test::session().size();
  return shape;
}

TEST(NcclWithoutGpu, TheFirstCommunicatorSaysSo) {
  if (has_gpu()) GTEST_SKIP() << "there is one";
  const auto device = make_host_device();
  Mesh mesh(test::session(), all_ranks(),
            std::make_unique<NcclBackend>(test::session(), *device, NcclOptions{}));
  EXPECT_STREQ(std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT"), "1");
  try {
    mesh.over(Axis::shard, 1);
    ADD_FAILURE() << "a communicator was made";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("NCCL needs a GPU, and CUDA finds none: "), std::string::npos) << text;
    EXPECT_NE(text.find(fmt::format("rank {} ({}), group over shard", test::session().rank(),
                                    test::session().host())),
              std::string::npos)
        << text;
  }
}

TEST(NcclWithoutGpu, GroupsOfOneRankAreItsWhereAskedFor) {
  if (has_gpu()) GTEST_SKIP() << "there is one";
  const auto device = make_host_device();
  const auto make = [&](bool of_one) {
    Mesh mesh(test::session(), all_ranks(),
              std::make_unique<NcclBackend>(test::session(), *device, NcclOptions{.of_one = of_one}));
    EXPECT_EQ(mesh.describe().ends_with(", groups of one rank too"), of_one) << mesh.describe();
    mesh.over(Axis::tensor);
  };
  EXPECT_NO_THROW(make(false));
  EXPECT_THROW(make(true), Error) << "a communicator without a GPU";
}

TEST(NcclWithoutGpu, CpuDevicesOfACudaBuildUseMpi) {
  config::Device options;
  options.communicator = "nccl";
  const auto host = make_host_device(), deferred = make_deferred_device(1);
  EXPECT_EQ(make_backend(test::session(), *host, options)->describe(), "MPI");
  EXPECT_EQ(make_backend(test::session(), *deferred, options)->describe(), "MPI through host memory");
}

TEST(NcclWithoutGpu, VersionIsTheLibrarys) {
  EXPECT_EQ(nccl_version().substr(0, 2), "2.");
  unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
  EXPECT_FALSE(nccl_shares_gpus());
  unsetenv("ZTRAIN_NCCL_OF_ONE");
  EXPECT_FALSE(nccl_of_one_wanted());
}

}  // namespace
}  // namespace ztrain::nccl_without_gpu_test
