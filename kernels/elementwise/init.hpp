#pragma once
// Initial weights. A weight is a function of (key, stream, logical index) alone, so a model starts the same
// whatever the mesh. P in {float, bf16, f16, double}.

#include <cstdint>

#include "base/dtype.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// dst[i] = std * normal(key, stream, logical_begin + i) (base/philox.hpp), rounded to float and then to P:
/// the model has the same weights in every parameter type up to that last rounding.
template <class P>
void normal_init(Exec& exec, Vector<P> dst, std::uint64_t key, std::uint64_t stream,
                 std::uint64_t logical_begin, double std);

/// dst[i] = limit * (2 u - 1), u uniform(key, stream, logical_begin + i) in (0, 1), rounded as above.
template <class P>
void uniform_init(Exec& exec, Vector<P> dst, std::uint64_t key, std::uint64_t stream,
                  std::uint64_t logical_begin, double limit);

/// dst[i] = value, rounded to float and then to P.
template <class P>
void constant_init(Exec& exec, Vector<P> dst, double value);

}  // namespace ztrain::kernels
