#pragma once
// The rotation of queries and keys by their positions.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/record.hpp"

namespace ztrain {

/// positions [T] -> table [T, width]. The scalings are those of kernels/rope/frequencies.hpp.
struct RopeTable {
  static constexpr std::string_view op = "rope_table";
  enum In : std::size_t { positions };
  enum Out : std::size_t { table };
  static constexpr Count reads = 1, writes = 1;
  double theta = 0;
  std::string scaling;
  double factor = 0, low_freq_factor = 0, high_freq_factor = 0;
  std::int64_t original_max_position = 0;
  std::int64_t width = 0;         ///< elements of a head that are turned; 0: the table's columns
  std::int64_t max_position = 0;  ///< of the model's configuration; of dynamic and longrope
  std::int64_t length = 0;        ///< tokens of the longest sequence; of dynamic and longrope
  double attention_factor = 0;    ///< of cosines and sines, of yarn and longrope; 0: the scaling's own
  double beta_fast = 32, beta_slow = 1, mscale = 0, mscale_all_dim = 0;  ///< of yarn
  bool truncate = true;                                                  ///< of yarn
  std::vector<double> short_factors{}, long_factors{};                   ///< of longrope, one a frequency
  static constexpr auto fields() {
    return std::tuple{Given{"theta", &RopeTable::theta},
                      Given{"scaling", &RopeTable::scaling},
                      Given{"factor", &RopeTable::factor},
                      Given{"low_freq_factor", &RopeTable::low_freq_factor},
                      Given{"high_freq_factor", &RopeTable::high_freq_factor},
                      Given{"original_max_position", &RopeTable::original_max_position},
                      Unusual{"width", &RopeTable::width},
                      Unusual{"max_position", &RopeTable::max_position},
                      Unusual{"length", &RopeTable::length},
                      Unusual{"attention_factor", &RopeTable::attention_factor},
                      Unusual{"beta_fast", &RopeTable::beta_fast},
                      Unusual{"beta_slow", &RopeTable::beta_slow},
                      Unusual{"mscale", &RopeTable::mscale},
                      Unusual{"mscale_all_dim", &RopeTable::mscale_all_dim},
                      Unusual{"truncate", &RopeTable::truncate},
                      Unusual{"short_factors", &RopeTable::short_factors},
                      Unusual{"long_factors", &RopeTable::long_factors}};
  }
};
/// x [T, heads * head_dim], table -> y. heads: how many of each row are turned; 0: all.
/// Elements of each head are rotated, from `from` on as many as the table has columns.
struct Rope {
  static constexpr std::string_view op = "rope";
  enum In : std::size_t { x, table };
  enum Out : std::size_t { y };
  static constexpr Count reads = 2, writes = 1;
  bool inverse = false;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;  ///< 0: the table's columns
  std::int64_t from = 0;
  bool interleaved = false;  ///< whether pairs are neighbours, (2i, 2i + 1), not (i, i + width / 2)
  static constexpr auto fields() {
    return std::tuple{Given{"inverse", &Rope::inverse}, Unusual{"heads", &Rope::heads},
                      Unusual{"head_dim", &Rope::head_dim}, Unusual{"from", &Rope::from},
                      Unusual{"interleaved", &Rope::interleaved}};
  }
};

}  // namespace ztrain
