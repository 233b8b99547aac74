#pragma once
// Converts ids, counts and enumerators to std::size_t, which indexes containers.

#include <cstddef>
#include <type_traits>

namespace ztrain {

/// Returns the index of an id that is known not to be negative.
template <class Id>
requires(std::is_integral_v<Id> || std::is_enum_v<Id>) constexpr std::size_t at(Id id) {
  return static_cast<std::size_t>(id);
}

}  // namespace ztrain
