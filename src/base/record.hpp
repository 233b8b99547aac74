#pragma once
// A struct of constants that knows its own fields, and its form as Attributes. What an op carries is written
// and read as such a struct, so that whoever emits an op and whoever binds it cannot disagree; Attributes are
// what is compared, stepped and printed without knowing the op.
//
//   struct Scale {
//     double factor = 1;
//     static constexpr auto fields() { return std::tuple{Given{"factor", &Scale::factor}}; }
//   };
//
// Fields may be bool, int64, double, text, lists of numbers, and lists of structs of int64 alone.

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "base/attributes.hpp"
#include "base/error.hpp"

namespace ztrain {

/// A field that is always written.
template <class Record, class Member>
struct Given {
  const char* key;
  Member Record::*member;
  static constexpr bool given = true, stepped = false;
};
/// A field that is always written and may differ by micro-batch. If an op is repeated for several
/// micro-batches, the constant grows by the same amount from each to the next.
template <class Record>
struct Stepped {
  const char* key;
  std::int64_t Record::*member;
  static constexpr bool given = true, stepped = true;
};
/// A field that is left out if it has its default value.
template <class Record, class Member>
struct Unusual {
  const char* key;
  Member Record::*member;
  static constexpr bool given = false, stepped = false;
};

namespace record_detail {

template <class T>
struct IsList : std::false_type {};
template <class T>
struct IsList<std::vector<T>> : std::true_type {};

template <class T>
constexpr bool is_plain_list =
    std::is_same_v<T, std::vector<std::int64_t>> || std::is_same_v<T, std::vector<double>>;

template <class T>
Attributes::Value stored(const T& value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<std::int64_t>(value);
  } else if constexpr (IsList<T>::value && !is_plain_list<T>) {
    using Item = typename T::value_type;
    static_assert(std::is_trivially_copyable_v<Item> && sizeof(Item) % sizeof(std::int64_t) == 0);
    std::vector<std::int64_t> flat(value.size() * (sizeof(Item) / sizeof(std::int64_t)));
    if (!value.empty()) std::memcpy(flat.data(), value.data(), value.size() * sizeof(Item));
    return flat;
  } else {
    return value;
  }
}

template <class T>
T restored(const Attributes& attributes, const std::string& key) {
  if constexpr (std::is_same_v<T, bool>) {
    return attributes.integer(key) != 0;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(attributes.integer(key));
  } else if constexpr (!IsList<T>::value || is_plain_list<T>) {
    return attributes.get<T>(key);
  } else {
    using Item = typename T::value_type;
    const std::vector<std::int64_t>& flat = attributes.get<std::vector<std::int64_t>>(key);
    constexpr std::size_t width = sizeof(Item) / sizeof(std::int64_t);
    REQUIRE(flat.size() % width == 0, "op attribute '{}' has {} integers, not a multiple of {}", key,
            flat.size(), width);
    T list(flat.size() / width);
    if (!list.empty())
      std::memcpy(static_cast<void*>(list.data()), flat.data(), flat.size() * sizeof(std::int64_t));
    return list;
  }
}

}  // namespace record_detail

template <class Record>
Attributes attributes_of(const Record& record) {
  Attributes attributes;
  const auto put = [&](const auto& field) {
    if (field.given || record.*field.member != Record{}.*field.member)
      attributes.set(field.key, record_detail::stored(record.*field.member));
  };
  std::apply([&](const auto&... field) { (put(field), ...); }, Record::fields());
  return attributes;
}

/// Reads a Record. Throws Error naming an attribute that is missing, of another type, or not a field of the
/// Record.
template <class Record>
Record record_of(const Attributes& attributes) {
  Record record;
  std::size_t known = 0;
  const auto take = [&](const auto& field) {
    if (!field.given && !attributes.has(field.key)) return;
    using Member = std::remove_cvref_t<decltype(record.*field.member)>;
    record.*field.member = record_detail::restored<Member>(attributes, field.key);
    ++known;
  };
  std::apply([&](const auto&... field) { (take(field), ...); }, Record::fields());
  if (known == attributes.values().size()) return record;
  for (const auto& [key, value] : attributes.values()) {
    const auto is = [&](const auto& field) { return key == field.key; };
    const bool found = std::apply([&](const auto&... field) { return (is(field) || ...); }, Record::fields());
    REQUIRE(found, "op attribute '{}' is not one of this op's", key);
  }
  return record;
}

/// Returns whether the key names a Stepped field.
template <class Record>
bool is_stepped(std::string_view key) {
  return std::apply([&](const auto&... field) { return ((field.stepped && key == field.key) || ...); },
                    Record::fields());
}

/// Whether any field is Stepped.
template <class Record>
constexpr bool has_stepped = std::apply([](const auto&... field) { return (field.stepped || ...); },
                                        Record::fields());

/// Changes some fields.
template <class Record, class Change>
void edit(Attributes& attributes, const Change& change) {
  Record record = record_of<Record>(attributes);
  change(record);
  attributes = attributes_of(record);
}

}  // namespace ztrain
