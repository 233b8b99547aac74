#include "engine/kernel_table.hpp"

#include <fmt/format.h>

#include <algorithm>

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

bool calls_library(const program::Op& op) {
  constexpr Kind* of_libraries[] = {product_kernels, fp8_kernels, attention_kernels, head_kernels};
  return std::ranges::any_of(of_libraries, [&](Kind* kind) {
    return std::ranges::any_of(kind(), [&](const KernelRow& row) { return row.op == op.type; });
  });
}

std::string kernel_key(const program::Program& program, const program::Op& op) {
  std::string key = op.type;
  for (const auto* ids : {&op.inputs, &op.outputs}) {
    key += '|';
    for (const program::TensorId id : *ids) {
      const program::Tensor& t = program.tensor(id);
      key += fmt::format("{} {}", to_string(t.shape), name_of(t.dtype));
    }
  }
  return key + fmt::format("|{}|{}", op.comm.axes.bits(), op.flops);
}

Bound bind(const Binding& b) {
  for (const auto kind : kinds)
    for (const KernelRow& row : kind())
      if (row.op == b.op.type) {
        Bound bound = row.bind(b);
        b.device.forget_errors();  // libraries leave some behind when they probe for algorithms
        return bound;
      }
  ASSERT(false, "no kernel named '{}' in the kernel table", b.op.type);
}

}  // namespace ztrain::engine
