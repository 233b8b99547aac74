// main of the tests that need neither mpirun nor kernels.

#include <gtest/gtest.h>

#include "tests/support/one_source.hpp"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  ztrain::test::run_only_one_source(argc, argv);
  return RUN_ALL_TESTS();
}
