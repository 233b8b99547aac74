#include "json_mutation.hpp"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "bytes.hpp"

namespace ztrain::damaged_files {
namespace {

using ordered = nlohmann::ordered_json;

/// What stands where a value stood, as text: not all of it is JSON.
constexpr std::array<std::string_view, 59> odd_values{"0",
                                                      "1",
                                                      "-1",
                                                      "2",
                                                      "3",
                                                      "4",
                                                      "8",
                                                      "-9223372036854775808",
                                                      "[]",
                                                      "{}",
                                                      "null",
                                                      "true",
                                                      "false",
                                                      "1.5",
                                                      "-0.0",
                                                      "9223372036854775807",
                                                      "1e308",
                                                      "1e400",
                                                      "1e-320",
                                                      "NaN",
                                                      "Infinity",
                                                      "-Infinity",
                                                      "2147483648",
                                                      "18446744073709551615",
                                                      "\"\"",
                                                      "\"1\"",
                                                      "[1]",
                                                      "[-1]",
                                                      "[null]",
                                                      "[[[]]]",
                                                      "{\"a\":{\"b\":{}}}",
                                                      "184467440737095516160",
                                                      "2147483647",
                                                      "4294967296",
                                                      "4294967297",
                                                      "1000000007",
                                                      "[0, 9223372036854775807]",
                                                      "1e18",
                                                      "0.5",
                                                      "\"../../../../etc/passwd\"",
                                                      "\"/etc/passwd\"",
                                                      "\"/dev/zero\"",
                                                      "\"a/b.safetensors\"",
                                                      "\"\\u0000\"",
                                                      "\"\\u001b[2Jx\"",
                                                      "\"\\ud800\"",
                                                      "\"\xff\xfe\"",
                                                      "\"\\u202e\"",
                                                      "\"%n%s{}\"",
                                                      "01",
                                                      "+1",
                                                      "'x'",
                                                      "[1,]",
                                                      "// comment\n1",
                                                      "\"\n\"",
                                                      "\"model.embed_tokens.weight\"",
                                                      "\"BF16\"",
                                                      "\"I64\"",
                                                      "[0, 0]"};

std::string absurd_value(Random& random) {
  if (random.one_in(40)) return std::string(100'000, '[');
  if (random.one_in(40)) return std::string(2000, '[') + std::string(2000, ']');
  if (random.one_in(40)) return '"' + std::string(200'000, 'n') + '"';
  if (random.one_in(40)) return std::string(400, '9');
  return std::string(random.pick(odd_values));
}

/// Every value below one, as paths.
void paths_of(const ordered& value, const ordered::json_pointer& at,
              std::vector<ordered::json_pointer>& all) {
  all.push_back(at);
  if (value.is_object())
    for (const auto& [name, member] : value.items()) paths_of(member, at / name, all);
  if (value.is_array() && value.size() <= 64)
    for (std::size_t i = 0; i < value.size(); ++i) paths_of(value[i], at / i, all);
}

/// A string that no document holds: what is to stand there is put in its place in the text.
constexpr const char* mark = "\u2603 here";

void replace_mark(std::string& text, const std::string& by) {
  const std::string quoted = fmt::format("\"{}\"", mark);
  const std::size_t at = text.find(quoted);
  if (at != std::string::npos) text.replace(at, quoted.size(), by);
}

std::string change_member(ordered& document, const ordered::json_pointer& at, Random& random,
                          std::string& put) {
  if (at.empty() || !random.one_in(2)) {
    put = absurd_value(random);
    document[at] = mark;
    return fmt::format("{} is {}", at.to_string(), put.substr(0, 60));
  }
  ordered& parent = document[at.parent_pointer()];
  const ordered old = document[at];
  if (parent.is_array()) {
    if (random.one_in(2)) {
      parent.push_back(old);
      return fmt::format("{} once more at the end", at.to_string());
    }
    parent.erase(static_cast<std::size_t>(std::stoul(at.back())));
    return fmt::format("{} is gone", at.to_string());
  }
  switch (random.below(3)) {
    case 0:
      parent.erase(at.back());
      return fmt::format("{} is gone", at.to_string());
    case 1:
      parent.erase(at.back());
      parent[at.back() + (random.one_in(2) ? "\x1b[7m" : "x")] = old;
      return fmt::format("{} has another name", at.to_string());
    default:
      put = fmt::format("0, {}: {}", ordered(at.back()).dump(), absurd_value(random));
      parent[at.back()] = mark;
      return fmt::format("{} is there twice", at.to_string());
  }
}

}  // namespace

std::string damage_json(std::string& text, Random& random) {
  ordered document = ordered::parse(text, nullptr, false);
  if (document.is_discarded() || random.one_in(8)) return damage(text, random);
  std::vector<ordered::json_pointer> all;
  paths_of(document, ordered::json_pointer(), all);
  std::string put;
  const std::string what = change_member(document, random.pick(all), random, put);
  text = document.dump(1, ' ', false, ordered::error_handler_t::replace);
  if (!put.empty()) replace_mark(text, put);
  return what;
}

}  // namespace ztrain::damaged_files
