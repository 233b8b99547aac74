#pragma once
// What the records of ops are made of. A record is a struct in kernels/NAME/record.hpp with an op's name, the
// names of its operands in order, how many there may be, and its constants. Where `accumulate` is set the op
// adds to its last outputs, which it then also lists as its last inputs. Workspaces are uint8 and come last,
// or where it is said.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/record.hpp"

namespace ztrain {

/// How many operands an op may have.
struct Count {
  std::size_t least = 0, most = 0;
  constexpr Count(std::size_t exactly) : least(exactly), most(exactly) {}
  constexpr Count(std::size_t at_least, std::size_t at_most) : least(at_least), most(at_most) {}
  constexpr bool allows(std::size_t count) const { return least <= count && count <= most; }
};
inline constexpr std::size_t any_number = 1 << 20;

/// The attribute of ops that may add to their last outputs.
inline constexpr const char* accumulate_key = "accumulate";

/// A record without constants.
struct NoConstants {
  static constexpr auto fields() { return std::tuple{}; }
};

/// A record without constants that has one input and one output.
struct OneToOne : NoConstants {
  enum In : std::size_t { x };
  enum Out : std::size_t { y };
  static constexpr Count reads = 1, writes = 1;
};

}  // namespace ztrain
