#include "engine/kernel_table.hpp"

#include "base/error.hpp"

namespace ztrain::engine {

// Each kind of ops has a file, which gives its rows.
using Kind = std::span<const KernelRow>();
Kind model_kernels, product_kernels, fp8_kernels, attention_kernels, head_kernels, step_kernels, copy_kernels,
    message_kernels, optimizer_kernels;

namespace {

constexpr Kind* kinds[] = {
    model_kernels, product_kernels, fp8_kernels,     attention_kernels, head_kernels,
    step_kernels,  copy_kernels,    message_kernels, optimizer_kernels,
};

}  // namespace

std::vector<std::span<const KernelRow>> kernel_table() {
  std::vector<std::span<const KernelRow>> table;
  for (const auto kind : kinds) table.push_back(kind());
  return table;
}

Bound bind(const Binding& b) {
  for (const auto kind : kinds)
    for (const KernelRow& row : kind())
      if (row.op == b.op.type) return row.bind(b);
  ASSERT(false, "no kernel named '{}' in the kernel table", b.op.type);
}

}  // namespace ztrain::engine
