#include "engine/kernel_table.hpp"

#include <fmt/format.h>

#include "base/error.hpp"

namespace ztrain::engine {

// Each folder of kernels gives its rows by a function; the list of folders is written when the build is
// configured.
using Kind = std::span<const KernelRow>();
#define ZTRAIN_FOLDER(name) Kind name##_kernels;
#include "op_binding.inc"
#undef ZTRAIN_FOLDER

namespace {

constexpr Kind* kinds[] = {
#define ZTRAIN_FOLDER(name) name##_kernels,
#include "op_binding.inc"
#undef ZTRAIN_FOLDER
};

const KernelRow& row_of(const program::Op& op) {
  for (const auto kind : kinds)
    for (const KernelRow& row : kind())
      if (row.op == op.type) return row;
  ASSERT(false, "no kernel named '{}' in the kernel table", op.type);
}

}  // namespace

std::vector<std::span<const KernelRow>> kernel_table() {
  std::vector<std::span<const KernelRow>> table;
  for (const auto kind : kinds) table.push_back(kind());
  return table;
}

bool calls_library(const program::Op& op) {
  return row_of(op).by == By::library;
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
  Bound bound = row_of(b.op).bind(b);
  b.device.forget_errors();  // libraries leave some behind when they probe for algorithms
  return bound;
}

}  // namespace ztrain::engine
