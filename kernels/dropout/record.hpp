#pragma once
// Elements that are dropped at random, by a mask that layer, token and column decide alone.

#include <cstdint>
#include <string_view>

#include "kernels/record.hpp"

namespace ztrain {

/// x [T, n], scalars -> y; nodes read x alone, and outside training y is x.
struct Dropout {
  static constexpr std::string_view op = "dropout";
  enum In : std::size_t { x, scalars };
  enum Out : std::size_t { y };
  static constexpr Count reads = 2, writes = 1;
  double rate = 0;
  std::int64_t key = 0;          ///< bits of a hash: the layer's stream
  std::int64_t first_token = 0;  ///< of the step (OpType::number)
  /// From row gap_at on, tokens are `gap` later in the step; other ranks have those between. 0: there is no
  /// gap.
  std::int64_t gap_at = 0, gap = 0;
  /// x starts at part_begin, in the order of ranks, of part_of tokens of a micro-batch; 0: x is all.
  std::int64_t part_of = 0, part_begin = 0;
  /// x is the columns from first_column on of so many; 0: it is all of them.
  std::int64_t columns = 0, first_column = 0;
  static constexpr auto fields() {
    return std::tuple{Given{"rate", &Dropout::rate},
                      Given{"key", &Dropout::key},
                      Stepped{"first_token", &Dropout::first_token},
                      Unusual{"gap_at", &Dropout::gap_at},
                      Unusual{"gap", &Dropout::gap},
                      Unusual{"part_of", &Dropout::part_of},
                      Unusual{"part_begin", &Dropout::part_begin},
                      Unusual{"columns", &Dropout::columns},
                      Unusual{"first_column", &Dropout::first_column}};
  }
};

}  // namespace ztrain
