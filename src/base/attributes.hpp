#pragma once
// Small ordered set of named constants that an op carries: rows, heads, eps, ...

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace ztrain {

class Attributes {
 public:
  using Value =
      std::variant<std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<double>>;

  Attributes() = default;
  Attributes(std::initializer_list<std::pair<std::string, Value>> values) : values_(values) {}

  Attributes& set(const std::string& key, Value value);
  bool has(const std::string& key) const;
  /// T is one of Value's types. These throw Error naming the key if it is missing or of another type.
  template <class T>
  const T& get(const std::string& key) const {
    return std::get<T>(of_kind(key, Value(T{}).index()));
  }
  std::int64_t integer(const std::string& key) const { return get<std::int64_t>(key); }
  std::int64_t integer(const std::string& key, std::int64_t otherwise) const {
    return has(key) ? integer(key) : otherwise;
  }

  const std::vector<std::pair<std::string, Value>>& values() const { return values_; }
  bool operator==(const Attributes&) const = default;

 private:
  const Value* find(const std::string& key) const;
  const Value& of_kind(const std::string& key, std::size_t kind) const;
  std::vector<std::pair<std::string, Value>> values_;
};

}  // namespace ztrain
