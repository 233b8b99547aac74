// main of the tests that run kernels: without mpirun, with the kernel backend initialised.

#include <gtest/gtest.h>

#include "kernels/launch/exec.hpp"
#include "tests/support/one_source.hpp"
#include "tests/support/test_memory.hpp"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  ztrain::test::run_only_one_source(argc, argv);
  ztrain::test::make_launches_wait();
  ztrain::kernels::initialize_backend();
  const int result = RUN_ALL_TESTS();
  ztrain::kernels::finalize_backend();
  return result;
}
