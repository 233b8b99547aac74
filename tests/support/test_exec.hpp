#pragma once
// What kernel tests launch on.

#include <cstdlib>

#include "kernels/gemm/gemm_library.hpp"
#include "kernels/launch/exec.hpp"
#include "tests/support/test_memory.hpp"

namespace ztrain::test {

/// Whether products of bf16 are those of the processor's instructions: of tests that run a second time so.
inline bool native_products() {
  static const bool chosen = std::getenv("ZTRAIN_TEST_NATIVE_PRODUCTS") != nullptr;
  return chosen;
}

/// An Exec for one call, which launches kernels: what Arrays show after it waits for them, whatever an
/// argument of that call looked at.
class Launch {
 public:
  explicit Launch(kernels::Exec& exec) : exec_(exec) { launches_pending() = true; }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;
  ~Launch() { launches_pending() = true; }
  operator kernels::Exec&() const { return exec_; }

 private:
  kernels::Exec& exec_;
};

class TestExec {
 public:
  TestExec() {
    if (native_products() && kernels::multiplies_bf16())
      kernels::gemm_library(*exec_).bf16 = kernels::Bf16Products::native;
  }
  Launch operator*() const { return Launch(*exec_); }

 private:
  kernels::ExecHandle exec_ = kernels::make_exec(test_stream());
};

}  // namespace ztrain::test
