#include "kernels/optimizer/record.hpp"
#include "program/ops/op_type.hpp"

namespace ztrain::program {

std::span<const OpType> optimizer_ops() {
  static constexpr OpType rows[] = {{.record = record<OptimizerStep>()}};
  return rows;
}

}  // namespace ztrain::program
