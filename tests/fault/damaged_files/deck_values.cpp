#include "deck_values.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <vector>

namespace ztrain::damaged_files {
namespace {

using Texts = std::vector<std::string>;

std::string quoted(const std::string& text) {
  return '"' + text + '"';
}

/// Of files and folders that a run may read or make: nothing of them lies outside the case's folder.
const Texts& paths() {
  static const Texts all{"",
                         "text.txt",
                         "text.txt/sub",
                         "none",
                         "/dev/null",
                         "/dev/zero",
                         "/dev/full",
                         "/proc/self/mem",
                         "*",
                         "**",
                         "[",
                         "text.*",
                         "{a,b}",
                         "${HOME",
                         "${UNSET_ONE}/x",
                         "a\\u0007b",
                         "a\\u001b[31mb",
                         "caf\\u00e9",
                         "text.txt\\u0000x",
                         "%s%n",
                         "~",
                         "fifo",
                         "loop",
                         "folder",
                         std::string(300, 'n'),
                         "a/../text.txt",
                         "//text.txt"};
  return all;
}

const Texts& words() {
  static const Texts all{"",   " ",        "auto",  "none",       "true",       "nan",     "-1",
                         "0",  "NO_SHARD", "adamw", "FULL_SHARD", "caf\\u00e9", "\\u0000", "\\u001b[2J",
                         "{}", "%s",       "*",     "\\u202e",    "layers.*",   "model.*", "custom"};
  return all;
}

std::string near_border(const config::Field& field, Random& random) {
  const auto whole = [](double value) {
    return std::abs(value) < 9e18 ? fmt::format("{:.0f}", value) : "9223372036854775807";
  };
  const double border = random.one_in(2) ? field.legal.least : field.legal.most;
  if (!std::isfinite(border)) return "0";
  if (field.access.index() == 1) return whole(border + static_cast<double>(random.below(3)) - 1);
  static constexpr std::array<double, 4> factors{1, 0.999999, 1.000001, -1};
  return fmt::format("{:e}", border * random.pick(factors));
}

const Texts& numbers() {
  static const Texts all{"1",     "2",       "3",          "4",          "5",          "7",
                         "8",     "16",      "64",         "100",        "1000",       "65536",
                         "0",     "0.5",     "1e-3",       "1.5",        "1e6",        "1e10",
                         "10000", "1000000", "1000000000", "4294967297", "2147483648", "9223372036854775807",
                         "1e18",  "1e308",   "1e-300",     "1e-8",       "0.1",        "0.9"};
  return all;
}

std::string number_for(const config::Field& field, Random& random) {
  if (random.one_in(3)) return near_border(field, random);
  const std::string& text = random.pick(numbers());
  // Integers that are written as floats belong to the absurd.
  return field.access.index() == 1 && text.find_first_of(".e") != std::string::npos ? "3" : text;
}

std::string text_for(const config::Field& field, Random& random) {
  const auto& legal = field.legal;
  if (legal.or_from > 0 && random.one_in(2))
    return random.pick(Texts{"true", "false", "1", "2", "3", "1000"});
  if (!legal.aliases.empty() && random.one_in(3)) return quoted(random.pick(legal.aliases).first);
  if (!legal.choices.empty()) return quoted(random.pick(legal.choices));
  return quoted(random.pick(field.path == config::PathKind::none ? words() : paths()));
}

std::string group(Random& random) {
  static const Texts all{R"([{match = "*", lr_scale = 0.5}])",
                         R"([{match = "*.weight", weight_decay = 0.1}])",
                         R"([{match = "*"}])",
                         R"([{lr_scale = 1}])",
                         R"([{match = "[", lr_scale = 1}])",
                         R"([{match = "*", lr_scale = -1}])",
                         R"([{match = "*", lr_scale = nan}])",
                         R"([{match = "*", lr_scale = 1e308}])",
                         R"([{match = "", x = 1}])",
                         "[{}]",
                         "[[]]",
                         "[]"};
  return random.pick(all);
}

std::string list_of(const std::string& item, Random& random) {
  std::string text = "[" + item;
  for (std::size_t i = 0, more = random.below(3); i < more; ++i) text += ", " + item;
  return text + "]";
}

}  // namespace

std::string plausible_value(const config::Field& field, Random& random) {
  switch (field.access.index()) {
    case 0:
      return text_for(field, random);
    case 1:
    case 2:
      return number_for(field, random);
    case 3:
      return random.one_in(2) ? "true" : "false";
    case 4:
      return quoted(random.pick(Texts{"fp32", "bf16", "fp16", "fp64", "float8", "uint8"}));
    case 5:
      return list_of(text_for(field, random), random);
    case 6:
      return list_of(number_for(field, random), random);
    case 7:
      return fmt::format("[{}, {}]", number_for(field, random), number_for(field, random));
    default:
      return group(random);
  }
}

std::string absurd_value(const config::Field& field, Random& random) {
  static const Texts any{"-1",
                         "-2",
                         "-9223372036854775808",
                         "9223372036854775808",
                         "0x7fffffffffffffff",
                         "-0.0",
                         "1e-320",
                         "1e309",
                         "nan",
                         "-nan",
                         "inf",
                         "-inf",
                         "9.3e18",
                         "-1e308",
                         "1.5",
                         "true",
                         "false",
                         "[]",
                         "[[]]",
                         "[1, \"a\"]",
                         "{}",
                         "{a = 1}",
                         "{match = 1}",
                         "1979-05-27",
                         "07:32:00",
                         "1979-05-27T07:32:00Z",
                         "[\"\"]",
                         "[nan]",
                         "[-1, -1]",
                         "[1e308, 1e308]",
                         "[0, 0]",
                         "[1, 2, 3, 4, 5, 6, 7, 8, 9]",
                         "''",
                         "\"\"\"\n\n\"\"\"",
                         "01",
                         "+1",
                         "1_000",
                         "0b1",
                         ""};
  if (random.one_in(30)) return std::string(500, '[') + std::string(500, ']');
  if (random.one_in(30)) return quoted(std::string(50'000, 'n'));
  if (random.one_in(30)) {
    std::string list = "[1";
    for (int i = 0; i < 20'000; ++i) list += ", 1";
    return list + "]";
  }
  if (random.one_in(3)) return quoted(random.pick(field.path == config::PathKind::none ? words() : paths()));
  return random.pick(any);
}

}  // namespace ztrain::damaged_files
