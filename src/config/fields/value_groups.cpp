#include "base/dtype.hpp"
#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "base/text.hpp"
#include "config/fields/value.hpp"

namespace ztrain::config {
namespace {

/// One table of the list. `place` is such as "input.toml:12: optimizer.groups[0]".
struct GroupReader {
  const toml::table& table;
  std::string place;

  double number(std::string_view key, const toml::node& node) const {
    const auto x = node.is_number() ? node.value<double>() : std::nullopt;
    REQUIRE(x && *x >= 0 && *x <= most_fp32, "{}.{} = {} is not legal: expected a number, 0 or more", place,
            key, source_text(node));
    REQUIRE(fits_fp32(*x),
            "{}.{} = {} is not legal: fp32, in which it is computed with, holds nothing so small but 0",
            place, key, source_text(node));
    return *x;
  }

  std::string pattern(const toml::node& node) const {
    const auto text = node.value_exact<std::string>();
    REQUIRE(
        text && !text->empty(),
        "{}.match = {} is not legal: expected a pattern of parameter names, such as \"model.embed_tokens.*\"",
        place, source_text(node));
    REQUIRE(is_plain_text(*text),
            "{}.match = {} is not legal: expected UTF-8 text without control characters", place,
            source_text(node));
    return *text;
  }

  ParameterGroup read() const {
    ParameterGroup group;
    for (const auto& [key, node] : table) {
      if (key == "match") {
        group.match = pattern(node);
      } else if (key == "lr_scale") {
        group.lr_scale = number(key, node);
      } else if (key == "weight_decay") {
        group.weight_decay = number(key, node);
      } else {
        const std::string best = nearest(key.str(), {"match", "lr_scale", "weight_decay"});
        fail("{}: unknown key '{}'{}", place, key.str(),
             best.empty() ? "; a group has match, lr_scale and weight_decay"
                          : fmt::format("; did you mean '{}'?", best));
      }
    }
    REQUIRE(!group.match.empty(), "{}: match is missing: the pattern of the parameters' names", place);
    return group;
  }
};

}  // namespace

std::vector<ParameterGroup> groups_from(const Field& field, const toml::node& value, std::string_view where) {
  const toml::array* list = value.as_array();
  REQUIRE(list != nullptr, "{}: {} = {} is not legal: expected {}", where, field.key, source_text(value),
          legal_text(field));
  std::vector<ParameterGroup> groups;
  for (const auto& element : *list) {
    const std::string place = fmt::format("{}: {}[{}]", where, field.key, groups.size());
    REQUIRE(element.is_table(), "{} = {} is not legal: expected a table {{match, lr_scale, weight_decay}}",
            place, source_text(element));
    groups.push_back(GroupReader{*element.as_table(), place}.read());
  }
  return groups;
}

std::string groups_text(const std::vector<ParameterGroup>& groups) {
  std::string text;
  for (const auto& group : groups) {
    text += fmt::format("{}{{match = {}, lr_scale = {}", text.empty() ? "" : ", ", toml_string(group.match),
                        group.lr_scale);
    if (group.weight_decay) text += fmt::format(", weight_decay = {}", *group.weight_decay);
    text += "}";
  }
  return fmt::format("[{}]", text);
}

}  // namespace ztrain::config
