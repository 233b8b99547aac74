#pragma once
// Heads that are put together from columns of others, as multi-head latent attention needs them (DeepSeek-AI,
// "DeepSeek-V2", 2024): its keys are columns of one product and a part that all heads share.

#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/record.hpp"

namespace ztrain {

/// Columns [from, from + count) of each head of an input become columns [to, to + count) of that head of an
/// output.
struct HeadMove {
  std::int64_t input = 0, from = 0, output = 0, to = 0, count = 0;
  bool operator==(const HeadMove&) const = default;
};

/// inputs [T, heads * width] -> outputs [T, heads * width]; every operand has a width of its own. No column
/// of an operand is in two moves, and columns of outputs that are in no move become 0. The op is linear, and
/// its adjoint is the op that moves back.
struct HeadParts {
  static constexpr std::string_view op = "head_parts";
  static constexpr Count reads{1, 2}, writes{1, 2};
  std::int64_t heads = 0;  ///< 0: a row is one head, which is not split over ranks
  std::vector<HeadMove> moves;
  /// Whether the second input is [T, width], a head that all heads read.
  bool shared_input = false;
  /// Whether the second output is [T, width], the sum over the heads, added in their order in fp32 (fp64 for
  /// fp64).
  bool shared_output = false;
  static constexpr auto fields() {
    return std::tuple{Unusual{"heads", &HeadParts::heads}, Given{"moves", &HeadParts::moves},
                      Unusual{"shared_input", &HeadParts::shared_input},
                      Unusual{"shared_output", &HeadParts::shared_output}};
  }
};

}  // namespace ztrain
