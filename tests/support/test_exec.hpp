#pragma once
// What kernel tests launch on.

#include "kernels/launch/backend.hpp"
#include "tests/support/test_memory.hpp"

namespace ztrain::test {

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
  Launch operator*() const { return Launch(*exec_); }

 private:
  kernels::ExecHandle exec_ = kernels::make_exec(test_stream());
};

}  // namespace ztrain::test
