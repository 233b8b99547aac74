#include "engine/binders.hpp"
#include "engine/dispatch.hpp"
#include "kernel_interface/step_scalars.hpp"
#include "kernels/elementwise/dropout.hpp"
#include "kernels/elementwise/scale.hpp"

namespace ztrain::engine {

Bound bind_scale(const Binding& b) {
  return with_type(b.out(0).dtype, [&]<class T>(Type<T>) -> Bound {
    const auto x = in_vector<T>(b, 0);
    const auto y = out_vector<T>(b, 0);
    return {[&exec = b.exec, x, y, factor = b.op.attributes.number("factor")] {
              kernels::scale<T>(exec, x, factor, y);
            },
            nullptr};
  });
}

Bound bind_dropout(const Binding& b) {
  const Attributes& a = b.op.attributes;
  const kernels::DropoutMask mask{a.number("rate"), static_cast<std::uint64_t>(a.integer("key")),
                                  a.integer("first_token")};
  return with_type(b.out(0).dtype, [&]<class T>(Type<T>) -> Bound {
    const auto x = in_matrix<T>(b, 0);
    const auto* scalars = b.input<StepScalars>(1);
    const auto y = out_matrix<T>(b, 0);
    return {[&exec = b.exec, x, mask, scalars, y] { kernels::dropout<T>(exec, x, mask, scalars, y); },
            nullptr};
  });
}

}  // namespace ztrain::engine
