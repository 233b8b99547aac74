#pragma once
// The rotation of queries and keys by their positions.

#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/record.hpp"

namespace ztrain {

/// positions [T] -> table [T, head_dim].
struct RopeTable {
  static constexpr std::string_view op = "rope_table";
  enum In : std::size_t { positions };
  enum Out : std::size_t { table };
  static constexpr Count reads = 1, writes = 1;
  double theta = 0;
  std::string scaling;  ///< "default" or "llama3", which has the rest
  double factor = 0, low_freq_factor = 0, high_freq_factor = 0;
  std::int64_t original_max_position = 0;
  static constexpr auto fields() {
    return std::tuple{Given{"theta", &RopeTable::theta},
                      Given{"scaling", &RopeTable::scaling},
                      Given{"factor", &RopeTable::factor},
                      Given{"low_freq_factor", &RopeTable::low_freq_factor},
                      Given{"high_freq_factor", &RopeTable::high_freq_factor},
                      Given{"original_max_position", &RopeTable::original_max_position}};
  }
};
/// x [T, heads * head_dim], table -> y. heads: how many of each row are turned; 0: all.
struct Rope {
  static constexpr std::string_view op = "rope";
  enum In : std::size_t { x, table };
  enum Out : std::size_t { y };
  static constexpr Count reads = 2, writes = 1;
  bool inverse = false;
  std::int64_t heads = 0;
  static constexpr auto fields() {
    return std::tuple{Given{"inverse", &Rope::inverse}, Unusual{"heads", &Rope::heads}};
  }
};

}  // namespace ztrain
