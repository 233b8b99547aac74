#include "base/attributes.hpp"

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

std::int64_t Attributes::integer(const std::string& key) const {
  const Value* v = find(key);
  REQUIRE(v && std::holds_alternative<std::int64_t>(*v), "op attribute '{}' is missing or not an integer",
          key);
  return std::get<std::int64_t>(*v);
}

std::int64_t Attributes::integer(const std::string& key, std::int64_t otherwise) const {
  return has(key) ? integer(key) : otherwise;
}

double Attributes::number(const std::string& key) const {
  const Value* v = find(key);
  REQUIRE(v && std::holds_alternative<double>(*v), "op attribute '{}' is missing or not a number", key);
  return std::get<double>(*v);
}

const std::string& Attributes::text(const std::string& key) const {
  const Value* v = find(key);
  REQUIRE(v && std::holds_alternative<std::string>(*v), "op attribute '{}' is missing or not text", key);
  return std::get<std::string>(*v);
}

const std::vector<std::int64_t>& Attributes::integers(const std::string& key) const {
  const Value* v = find(key);
  REQUIRE(v && std::holds_alternative<std::vector<std::int64_t>>(*v),
          "op attribute '{}' is missing or not a list of integers", key);
  return std::get<std::vector<std::int64_t>>(*v);
}

const std::vector<double>& Attributes::numbers(const std::string& key) const {
  const Value* v = find(key);
  REQUIRE(v && std::holds_alternative<std::vector<double>>(*v),
          "op attribute '{}' is missing or not a list of numbers", key);
  return std::get<std::vector<double>>(*v);
}

}  // namespace ztrain
