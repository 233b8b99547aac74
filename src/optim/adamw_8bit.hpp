#pragma once
// AdamW whose moments are stored as 8-bit codes, one scale per block of 256 elements: Dettmers, Lewis,
// Shleifer and Zettlemoyer, "8-bit optimizers via block-wise quantization" (ICLR 2022). A block's codes are
// decoded, stepped in float by AdamW, and coded again with the block's new largest magnitude.

#include <tuple>

#include "optim/adamw.hpp"
#include "optim/code_map.hpp"

namespace ztrain::optim {

struct AdamW8bit {
  static constexpr std::string_view name = "adamw_8bit";
  static constexpr std::string_view doc = "adamw with block-wise 8-bit moments (Dettmers et al., 2022)";
  static constexpr Whole whole = Whole::block;
  using Uncoded = AdamW;                                ///< rule that steps the decoded states
  using Codecs = std::tuple<SignedCode, UnsignedCode>;  ///< codes of its states, each followed by its scales

  static std::vector<StateInfo> states(const Settings&) {
    return {{"exp_avg", DType::u8},
            {"exp_avg.absmax", DType::f32, block},
            {"exp_avg_sq", DType::u8},
            {"exp_avg_sq.absmax", DType::f32, block}};
  }
};

}  // namespace ztrain::optim
