#pragma once
// The memory that a product is run with.

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "base/dtype.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "kernel_interface/target.hpp"
#include "tests/support/test_memory.hpp"

namespace ztrain::test {

/// As many bytes as a product may use, all of them garbage, and a guard behind them.
class ProductWorkspace {
 public:
  ProductWorkspace() = default;
  ProductWorkspace(const ProductWorkspace&) = delete;
  ProductWorkspace& operator=(const ProductWorkspace&) = delete;
  ~ProductWorkspace() { expect_guard(); }

  /// Takes time where it is another size than before: on GPUs all are large, and the same.
  char* of(std::int64_t m, std::int64_t n, std::int64_t k, DType in, DType out) {
    const std::int64_t bytes = gemm_workspace_bytes(m, n, k, in, out, build_target());
    if (std::ssize(memory_) != bytes + guard) {
      expect_guard();
      memory_ = Array<char>(static_cast<std::size_t>(bytes + guard), '\xff');
    }
    return memory_.data();
  }
  /// Enough for all of `sizes`.
  char* of_any() { return of(257, 257, 257, DType::bf16, DType::bf16); }

 private:
  void expect_guard() const {
    if (memory_.empty()) return;
    EXPECT_EQ(std::string(memory_.end() - guard, memory_.end()), std::string(guard, '\xff'))
        << "workspace overrun";
  }

  static constexpr std::int64_t guard = 64;
  Array<char> memory_;
};

}  // namespace ztrain::test
