#include "base/json.hpp"

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "base/error.hpp"
#include "base/plain_text.hpp"

namespace ztrain {
namespace {

using nlohmann::json;

/// Checks a text before it is parsed. A callback of the library's parser could do the same, but in time that
/// grows with the square of an object's members.
class Guard : public nlohmann::json_sax<json> {
 public:
  Guard(const std::string& where, int depth) : where_(where), depth_(static_cast<std::size_t>(depth)) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return open(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    REQUIRE(names_.back().insert(name).second, "{}: names '{}' twice", where_, printable(name, 200));
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    fail("{}: is not valid JSON: {}", where_, reason_of(error));
  }

 private:
  bool open() {
    REQUIRE(names_.size() < depth_, "{}: its JSON is nested more than {} deep, which no such file is", where_,
            depth_);
    names_.emplace_back();
    return true;
  }
  bool close() {
    names_.pop_back();
    return true;
  }

  const std::string& where_;
  std::size_t depth_;
  /// Member names of each open object; empty for a list.
  std::vector<std::unordered_set<std::string>> names_;
};

}  // namespace

json parse_json(std::string_view text) {
  try {
    return json::parse(text);
  } catch (const json::exception& error) {
    fail("a text is not valid JSON: {}", reason_of(error));
  }
}

json parse_json(std::string_view bytes, const std::string& where, const JsonLimits& limits) {
  const std::string_view text = utf8_text(bytes, where);
  REQUIRE(static_cast<std::int64_t>(text.size()) <= limits.bytes,
          "{}: has {} bytes, and no such file has more than {}", where, text.size(), limits.bytes);
  REQUIRE(text.find('\0') == std::string_view::npos,  // the library's parser takes a text to end at a NUL
          "{}: is not valid JSON: it holds a byte that is zero", where);
  Guard guard(where, limits.depth);
  json::sax_parse(text, &guard);
  return json::parse(text);
}

std::string json_text(const json& value, int indent) {
  return value.dump(indent);
}

std::string json_text(const nlohmann::ordered_json& value, int indent) {
  return value.dump(indent);
}

}  // namespace ztrain
