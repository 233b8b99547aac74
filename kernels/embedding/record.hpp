#pragma once
// Rows of a table, by index: V words, d wide.

#include <cstdint>
#include <string_view>

#include "kernels/record.hpp"

namespace ztrain {

/// tokens [T], weight [V, d] -> y [T, d]. rows: those of the whole table, of which the weight starts at
/// first_row; missing rows read as zeros; 0: the weight is the whole table.
struct Embedding {
  static constexpr std::string_view op = "embedding";
  enum In : std::size_t { tokens, weight };
  enum Out : std::size_t { y };
  static constexpr Count reads = 2, writes = 1;
  std::int64_t first_row = 0, rows = 0;
  static constexpr auto fields() {
    return std::tuple{Unusual{"first_row", &Embedding::first_row}, Unusual{"rows", &Embedding::rows}};
  }
};
/// tokens, dy -> dweight.
struct EmbeddingGrad {
  static constexpr std::string_view op = "embedding_grad";
  enum In : std::size_t { tokens, dy };
  enum Out : std::size_t { dweight };
  static constexpr Count reads{2, 3}, writes = 1;
  std::int64_t first_row = 0, rows = 0;
  bool accumulate = false;
  static constexpr auto fields() {
    return std::tuple{Unusual{"first_row", &EmbeddingGrad::first_row}, Unusual{"rows", &EmbeddingGrad::rows},
                      Given{accumulate_key, &EmbeddingGrad::accumulate}};
  }
};
/// x [T, d], index [1] -> y [1, d].
struct SelectRow : NoConstants {
  static constexpr std::string_view op = "select_row";
  enum In : std::size_t { x, index };
  enum Out : std::size_t { y };
  static constexpr Count reads = 2, writes = 1;
};

}  // namespace ztrain
