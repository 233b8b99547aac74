#include "kernel_interface/orthogonal.hpp"
#include "kernels/orthogonal/record.hpp"
#include "program/ops/op_type.hpp"

namespace ztrain::program {
namespace {

double flops_of_matrices(const Program&, const Op& op) {
  double flops = 0;
  for (const OrthogonalMatrix& m : record_of<Orthogonalise>(op.attributes).matrices)
    flops += orthogonal_flops(m.rows, m.cols);
  return flops;
}
std::int64_t workspace_of_matrices(const Program&, const Op& op) {
  return record_of<Orthogonalise>(op.attributes).workspace_bytes;
}

}  // namespace

std::span<const OpType> orthogonal_ops() {
  static constexpr OpType rows[] = {
      {.record = record<Orthogonalise>(), .flops = flops_of_matrices, .workspace = workspace_of_matrices}};
  return rows;
}

}  // namespace ztrain::program
