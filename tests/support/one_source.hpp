#pragma once
// An executable of tests from several sources, of which one source's are run: see cmake/ZtrainTests.cmake.

namespace ztrain::test {

/// Reads `--source=NAME.cpp` from the arguments that InitGoogleTest left: of the tests linked, those written
/// in a file of that name run, or those of --gtest_filter where one is given. Without the argument all run.
/// Errors: std::runtime_error if no test stands in such a file, so that an entry of CTest cannot pass by
/// running none.
void run_only_one_source(int argc, char** argv);

}  // namespace ztrain::test
