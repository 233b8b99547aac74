#include "kernels/signs/record.hpp"
#include "program/ops/op_type.hpp"

namespace ztrain::program {

std::span<const OpType> signs_ops() {
  static constexpr OpType rows[] = {
      {.record = record<EncodeSigns>()},
      {.record = record<SumSigns>()},
      {.record = record<DecodeSigns>()},
  };
  return rows;
}

}  // namespace ztrain::program
