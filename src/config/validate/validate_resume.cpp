#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/error.hpp"
#include "base/text.hpp"
#include "config/fields/fields.hpp"
#include "config/fields/value.hpp"
#include "config/validate/validate.hpp"
#include "config/validate/validate_rules.hpp"

namespace ztrain::config {
namespace {

struct Reason {
  std::string_view keys;  ///< pattern
  std::string_view text;
};

/// Reasons that keys can never differ from the checkpoint's, the first match first.
constexpr std::array reasons{
    Reason{"optimizer.name", "the states of another optimizer are others"},
    Reason{"precision.*", "weights and states are kept in these types"},
    Reason{"lora.*", "the adapters and their states are of this shape and scale"},
    Reason{"model.trainable", "it decides which weights have states"},
    Reason{"model.frozen", "it decides which weights have states"},
    Reason{"model.*", "the weights and states are those of this model"},
    Reason{"*", "it decides what is computed"},
};

std::string_view reason_of(std::string_view key) {
  return std::ranges::find_if(reasons, [&](const Reason& row) { return glob_match(row.keys, key); })->text;
}

/// Returns that a key can never change in this way, and why; "" if it can.
std::string never_because(const Deck& now, const Field& field, const std::string& before,
                          const std::string& after) {
  if (field.on_resume == OnResume::never) return fmt::format("it can never change: {}", reason_of(field.key));
  if ((before == "0") == (after == "0")) return "";
  const bool is_sum = field.key == "optimizer.momentum" && now.optimizer.name == "sgd";
  const char* kept = is_sum ? "a running sum" : field.key == "optimizer.ema_decay" ? "averages" : nullptr;
  if (kept == nullptr) return "";
  return fmt::format("it cannot change from or to 0: the checkpoint holds {} only if it was above 0", kept);
}

/// Returns whether a key of placement decides here which values are rounded to codes, or how often.
bool decides_codes(const Deck& deck, const Field& field) {
  return !field.rounds_with.empty() && render(*find_field(field.rounds_with), deck) != R"("none")";
}

bool is_free(const Deck& deck, const Field& field) {
  return field.on_resume == OnResume::free && !decides_codes(deck, field);
}

/// Returns why a change is refused, in parentheses; "" if only checkpoint.override is missing.
std::string reason_text(const Deck& now, const Field& field, const std::string& never) {
  if (!never.empty()) return fmt::format(" ({})", never);
  return decides_codes(now, field)
             ? fmt::format(" (with {} it decides which values are rounded)", field.rounds_with)
             : "";
}

void drop_folders(Deck& deck) {
  for (auto* list : {&deck.data.train, &deck.data.validation}) {
    for (auto& pattern : *list) pattern = std::filesystem::path(pattern).filename();
  }
  std::string& layout = deck.sparse_attention.layout;
  layout = std::filesystem::path(layout).filename();
}

std::string keys_on_request() {
  std::string keys;
  for (const Field& field : fields())
    if (field.on_resume == OnResume::on_request) keys += (keys.empty() ? "" : ", ") + field.key;
  return keys;
}

}  // namespace

bool is_listed(const Deck& deck, std::string_view key) {
  return std::ranges::any_of(deck.checkpoint.changes,
                             [&](const std::string& pattern) { return glob_match(pattern, key); });
}

void check_overrides(const Deck& deck) {
  for (const std::string& pattern : deck.checkpoint.changes) {
    const Field* matched = nullptr;
    bool may_change = false;
    for (const Field& field : fields()) {
      if (!glob_match(pattern, field.key)) continue;
      matched = &field;
      may_change = may_change || field.on_resume != OnResume::never;
    }
    if (may_change) continue;
    const std::string where =
        fmt::format("{}: checkpoint.override: ", source_of(deck, "checkpoint.override"));
    const std::string legal = fmt::format(
        "legal are {}, patterns of them such as \"schedule.*\", and keys "
        "that may always change",
        keys_on_request());
    REQUIRE(matched == nullptr, "{}{} can never change on resume: {}; {}", where, toml_string(pattern),
            reason_of(matched->key), legal);
    const std::string near = nearest(pattern, field_keys());
    fail("{}{} is no key, and a pattern of none{}; {}", where, toml_string(pattern),
         near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near), legal);
  }
}

bool DeckChanges::has(std::string_view pattern) const {
  return std::ranges::any_of(keys, [&](const KeyChange& change) { return glob_match(pattern, change.key); });
}

DeckChanges changes_on_resume(const Deck& now, const std::string& saved_resolved_toml,
                              const std::string& where) {
  const toml::table table = parse_toml(saved_resolved_toml, where);
  DeckChanges changes{now, {}};
  Deck current = now;
  for (const auto& field : fields()) {
    const toml::node* value = table[field.section()][field.member()].node();
    if (value != nullptr) assign(field, *value, changes.before, where);
  }
  drop_folders(changes.before);
  drop_folders(current);
  for (const auto& field : fields()) {
    if (field.path == PathKind::written) continue;
    if (is_free(now, field) && !is_listed(now, field.key)) continue;
    const std::string before = render(field, changes.before), after = render(field, current);
    if (before == after) continue;
    const std::string never = never_because(now, field, before, after);
    const bool may = never.empty() && (is_free(now, field) || is_listed(now, field.key));
    KeyChange change{field.key, before, after, "", never.empty()};
    if (!may)
      change.refusal =
          fmt::format("{}: {} was {} when the checkpoint was written and is {} now{}",
                      source_of(now, field.key), field.key, before, after, reason_text(now, field, never));
    changes.keys.push_back(std::move(change));
  }
  return changes;
}

std::vector<std::string> forbidden(const DeckChanges& changes) {
  std::vector<std::string> messages;
  for (const KeyChange& change : changes.keys)
    if (!change.refusal.empty()) messages.push_back(change.refusal);
  return messages;
}

std::string override_for(const DeckChanges& changes) {
  std::vector<std::string> keys;
  for (const KeyChange& change : changes.keys) {
    if (change.refusal.empty()) continue;
    if (!change.can_change) return "";
    keys.push_back(toml_string(change.key));
  }
  return fmt::format("[{}]", fmt::join(keys, ", "));
}

}  // namespace ztrain::config
