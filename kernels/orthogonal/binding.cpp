#include "engine/dispatch.hpp"
#include "kernels/orthogonal/orthogonalise.hpp"
#include "kernels/orthogonal/record.hpp"

namespace ztrain::engine {
namespace {

Bound bind_orthogonalise(const Binding& b) {
  using Op = Orthogonalise;
  const auto record = b.record<Op>();
  return with_type(b.in(Op::x).dtype, [&]<class T>() -> Bound {
    const auto kernel = std::make_shared<kernels::Orthogonaliser<T>>(b.exec, record.matrices, record.pieces);
    const auto notes =
        kernel->product() == nullptr ? std::vector<Note>{} : product_notes(b, *kernel->product());
    return with_notes(launch(b, kernel, in_vector<T>(b, Op::x), out_vector<T>(b, Op::y),
                             out_vector<std::byte>(b, Op::workspace)),
                      notes);
  });
}

}  // namespace

std::span<const KernelRow> orthogonal_kernels() {
  static constexpr KernelRow rows[] = {{Orthogonalise::op, bind_orthogonalise, By::library}};
  return rows;
}

}  // namespace ztrain::engine
