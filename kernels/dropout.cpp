#include "kernels/dropout.hpp"

#include <cmath>

#include "base/error.hpp"
#include "base/philox.hpp"
#include "kernels/rows.hpp"

namespace ztrain::kernels {

template <class T>
void dropout(Exec& exec, Matrix<const T> x, const DropoutMask& mask, const StepScalars* scalars,
             Matrix<T> y) {
  REQUIRE(x.rows == y.rows && x.cols == y.cols, "dropout: x is [{}, {}] and y [{}, {}]", x.rows, x.cols,
          y.rows, y.cols);
  REQUIRE(mask.rate >= 0 && mask.rate < 1, "dropout: the rate is {}; legal are 0 to below 1", mask.rate);
  const auto least = static_cast<std::uint32_t>(std::ldexp(mask.rate, 32));
  const auto factor = static_cast<acc_t<T>>(1 / (1 - mask.rate));
  const std::uint64_t key = mask.key;
  const std::int64_t first = mask.first_token, width = x.cols;
  for_rows(
      exec, x.rows, KOKKOS_LAMBDA(const std::int64_t row) {
        const auto step = static_cast<std::uint64_t>(scalars->optimizer_step);
        auto i = static_cast<std::uint64_t>((first + row) * width);
        PhiloxBlock bits = philox(key, step, i / 4);
        for (std::int64_t c = row * width; c < (row + 1) * width; ++c, ++i) {
          if (i % 4 == 0) bits = philox(key, step, i / 4);
          y.data[c] = bits[i % 4] >= least ? static_cast<T>(factor * load(x.data[c])) : static_cast<T>(0);
        }
      });
}

template void dropout<float>(Exec&, Matrix<const float>, const DropoutMask&, const StepScalars*,
                             Matrix<float>);
template void dropout<bf16>(Exec&, Matrix<const bf16>, const DropoutMask&, const StepScalars*, Matrix<bf16>);
template void dropout<f16>(Exec&, Matrix<const f16>, const DropoutMask&, const StepScalars*, Matrix<f16>);
template void dropout<double>(Exec&, Matrix<const double>, const DropoutMask&, const StepScalars*,
                              Matrix<double>);

}  // namespace ztrain::kernels
