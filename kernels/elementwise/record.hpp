#pragma once
// Sums, scaled values, casts and copies, element by element, and what ends or begins with zeros.

#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/record.hpp"

namespace ztrain {

/// x, addend -> x + addend.
struct Add : NoConstants {
  static constexpr std::string_view op = "add";
  enum In : std::size_t { x, addend };
  enum Out : std::size_t { sum };
  static constexpr Count reads = 2, writes = 1;
};
/// x -> y = factor * x.
struct Scale {
  static constexpr std::string_view op = "scale";
  enum In : std::size_t { x };
  enum Out : std::size_t { y };
  static constexpr Count reads = 1, writes = 1;
  double factor = 0;
  static constexpr auto fields() { return std::tuple{Given{"factor", &Scale::factor}}; }
};
/// x -> y = cap tanh(x / cap), cap > 0: for logits that are results. Has no adjoint; the head has its own
/// cap.
struct SoftCap {
  static constexpr std::string_view op = "soft_cap";
  enum In : std::size_t { x };
  enum Out : std::size_t { y };
  static constexpr Count reads = 1, writes = 1;
  double cap = 0;
  static constexpr auto fields() { return std::tuple{Given{"cap", &SoftCap::cap}}; }
};
/// x -> y, the same bytes.
struct Copy : OneToOne {
  static constexpr std::string_view op = "copy";
};

}  // namespace ztrain
namespace ztrain::program {

/// x: ends the life of its bytes; runs nothing.
struct Release : NoConstants {
  static constexpr std::string_view op = "release";
  static constexpr Count reads = 1, writes = 0;
};
/// x -> y, element by element, to y's dtype.
struct Cast : OneToOne {
  static constexpr std::string_view op = "cast";
};
/// Consecutive elements of a flat range.
struct Elements {
  std::int64_t begin = 0, count = 0;
  bool operator==(const Elements&) const = default;
};
/// -> gradient, of which what nobody writes becomes 0.
struct ZeroGaps {
  static constexpr std::string_view op = "zero_gaps";
  enum Out : std::size_t { gradient };
  static constexpr Count reads = 0, writes = 1;
  std::vector<Elements> gaps;
  static constexpr auto fields() { return std::tuple{Given{"pieces", &ZeroGaps::gaps}}; }
};

}  // namespace ztrain::program
