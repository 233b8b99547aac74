#pragma once
// The frequencies of a rotary embedding, which a host computes once from the record, in double.
//
// "linear": Chen et al., "Extending Context Window of Large Language Models via Positional Interpolation"
// (2023). "dynamic", "yarn": Peng et al., "YaRN" (2023). "longrope": Ding et al., "LongRoPE" (2024).
// "llama3": Llama 3.1. Hugging Face's transformers has "dynamic" and "longrope" follow the largest position
// of each forward pass; a compiled step follows `length`, the longest sequence that it may see.

#include <cstdint>
#include <string>
#include <vector>

namespace ztrain::kernels {

/// The constants of the record RopeTable, which says what they are.
struct RopeScaling {
  double theta = 0;
  std::string scaling = "default";
  double factor = 0, low_freq_factor = 0, high_freq_factor = 0;
  std::int64_t original_max_position = 0, max_position = 0, length = 0;
  double attention_factor = 0, beta_fast = 32, beta_slow = 1, mscale = 0, mscale_all_dim = 0;
  bool truncate = true;
  std::vector<double> short_factors{}, long_factors{};
};

/// Frequencies of a head of up to 512 rotated elements. Kernels take the struct by value.
struct RopeFrequencies {
  static constexpr std::int64_t most = 256;
  double at[most];
  std::int64_t count = 0;
  double amplitude = 1;  ///< of cosines and sines
};

/// width: elements of a head that are turned, two for each frequency. Throws Error naming an unknown scaling.
RopeFrequencies rope_frequencies(const RopeScaling& rope, std::int64_t width);

}  // namespace ztrain::kernels
