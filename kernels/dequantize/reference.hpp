#pragma once
// Serial float64 decoding of weights, element by element.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernel_interface/quantized_weights.hpp"

namespace ztrain::kernels::reference {

/// The whole weight, of `count` elements in rows of `columns`, from its quanta and its statistics.
inline std::vector<double> dequantize(WeightForm form, const std::vector<std::uint8_t>& quanta,
                                      const std::vector<float>& statistics, std::int64_t count,
                                      std::int64_t columns) {
  std::vector<double> weight;
  for (std::int64_t e = 0; e < count; ++e) {
    const std::uint8_t* quantum = quanta.data() + e / code_quantum * form.quantum_bytes();
    const std::int64_t in_quantum = e % code_quantum, block = in_quantum / scale_block;
    if (form.code == WeightCode::int8) {
      weight.push_back(static_cast<std::int8_t>(quantum[in_quantum]) / 127.0 *
                       statistics[static_cast<std::size_t>(e / columns)]);
      continue;
    }
    const std::uint8_t both = quantum[in_quantum / 2];
    const int code = e % 2 == 0 ? both / 16 : both % 16;
    double scale = 0;
    if (form.nested) {
      scale = double{scale_levels[quantum[form.code_bytes() + block]]} *
                  statistics[static_cast<std::size_t>(e / scale_group)] +
              statistics.back();
    } else {
      float stored = 0;
      std::memcpy(&stored, quantum + form.code_bytes() + 4 * block, sizeof stored);
      scale = stored;
    }
    weight.push_back(levels_of(form.code).levels[static_cast<std::size_t>(code)] * scale);
  }
  return weight;
}

/// Returns the values that the codes of whole quanta stand for (kernels/dequantize/block_codes.hpp).
inline std::vector<double> round_in_blocks(std::int64_t bits, const std::vector<double>& weights) {
  std::vector<double> rounded;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const std::size_t block = i / scale_block * scale_block;
    double largest = 0;
    for (std::size_t j = block; j < block + scale_block; ++j)
      largest = std::max(largest, std::abs(weights[j]));
    const double scale = std::max(largest / (bits == 8 ? 127 : 7), 0x1p-126);
    rounded.push_back(std::round(weights[i] / scale) * scale);
  }
  return rounded;
}

}  // namespace ztrain::kernels::reference
