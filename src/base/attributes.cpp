#include "base/attributes.hpp"

#include <array>

#include "base/error.hpp"

namespace ztrain {

const Attributes::Value* Attributes::find(const std::string& key) const {
  for (const auto& [k, v] : values_)
    if (k == key) return &v;
  return nullptr;
}

Attributes& Attributes::set(const std::string& key, Value value) {
  for (auto& [k, v] : values_)
    if (k == key) return v = std::move(value), *this;
  values_.emplace_back(key, std::move(value));
  return *this;
}

bool Attributes::has(const std::string& key) const {
  return find(key) != nullptr;
}

const Attributes::Value& Attributes::of_kind(const std::string& key, std::size_t kind) const {
  constexpr std::array kinds{"an integer", "a number", "text", "a list of integers", "a list of numbers"};
  static_assert(kinds.size() == std::variant_size_v<Value>);
  const Value* value = find(key);
  REQUIRE(value && value->index() == kind, "op attribute '{}' is missing or not {}", key, kinds[kind]);
  return *value;
}

}  // namespace ztrain
