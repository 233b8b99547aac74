#pragma once
// Serial float64 rotary position embedding: the published complex-number form, pair (i, i + hd/2) turned by
// an angle.

#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ztrain::kernels::reference {

/// Plain frequencies theta^(-2i/hd), i < hd/2.
inline std::vector<double> rope_frequencies(std::size_t hd, double theta) {
  std::vector<double> result(hd / 2);
  for (std::size_t i = 0; i < hd / 2; ++i) {
    result[i] = 1 / std::pow(theta, static_cast<double>(2 * i) / static_cast<double>(hd));
  }
  return result;
}

/// x [T, heads * hd]; direction +1 forward, -1 backward.
inline std::vector<double> rope_apply(const std::vector<double>& x, std::span<const std::int32_t> positions,
                                      const std::vector<double>& frequencies, double direction) {
  const std::size_t half = frequencies.size(), width = x.size() / positions.size();
  std::vector<double> y(x.size());
  for (std::size_t t = 0; t < positions.size(); ++t) {
    for (std::size_t head = t * width; head < (t + 1) * width; head += 2 * half) {
      for (std::size_t i = 0; i < half; ++i) {
        const std::complex<double> pair(x[head + i], x[head + half + i]);
        const std::complex<double> turned = pair * std::polar(1.0, direction * positions[t] * frequencies[i]);
        y[head + i] = turned.real();
        y[head + half + i] = turned.imag();
      }
    }
  }
  return y;
}

}  // namespace ztrain::kernels::reference
