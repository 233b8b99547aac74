#pragma once
// Internal to config. Tools for writing rows of the field table, and the parts of the table.

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "config/fields/fields.hpp"

namespace ztrain::config::rows {

/// Macros of a row: the function that reaches a member of the deck, and the key and access of a member that
/// is named as its key.
#define MEMBER_OF(path) +[](Deck& deck) -> decltype(auto) { return (deck.path); }
#define KEY_OF(section, member) #section "." #member, MEMBER_OF(section.member)

inline Legal any() {
  return {};
}
/// Returns bounds of a whole number without a limit of its own.
inline Legal count(double least) {
  return {.least = least, .most = most_count};
}
/// Returns bounds of a number without a limit of its own.
inline Legal from(double least) {
  return {.least = least, .most = std::numeric_limits<float>::max()};
}
inline Legal above(double least) {
  return {.least = least, .most = std::numeric_limits<float>::max(), .open_least = true};
}
inline Legal between(double least, double most) {
  return {.least = least, .most = most};
}
inline Legal multiple_of(std::int64_t multiple, double most) {
  return {.least = static_cast<double>(multiple), .most = most, .multiple = multiple};
}
/// Returns bounds of a count that may be written as a share below 1 instead.
inline Legal count_or_share() {
  return {.least = 0, .most = most_count, .whole_from_one = true};
}
inline Legal below_one() {
  return {.least = 0, .most = 1, .open_most = true};
}
/// Returns bounds of a share: above 0, at most 1.
inline Legal share() {
  return {.least = 0, .most = 1, .open_least = true};
}
inline Legal one_of(std::vector<std::string> choices) {
  return {.choices = std::move(choices)};
}
/// Sets Legal::understood and Legal::hints of a row.
inline Legal also(Spellings understood, Legal legal) {
  return legal.understood = std::move(understood), legal;
}
inline Legal close_to(Spellings hints, Legal legal) {
  return legal.hints = std::move(hints), legal;
}
/// Adds PyTorch's names of dtypes.
inline Legal dtype_of(std::vector<std::string> choices) {
  return also({{"bfloat16", "bf16"}, {"float16", "fp16"}, {"float32", "fp32"}}, one_of(std::move(choices)));
}

// These set marks of a row, so that one row stays one statement.
inline Field free(Field f) {
  return f.on_resume = OnResume::free, f;
}
inline Field free_without(std::string_view codes, Field f) {
  return f.rounds_with = codes, free(std::move(f));
}
inline Field on_request(Field f) {
  return f.on_resume = OnResume::on_request, f;
}
inline Field numeric(Field f) {
  return f.numeric = true, f;
}
/// docs/inputs.md explains both kinds of paths at its beginning.
inline Field read_path(Field f) {
  f.doc += " Paths are relative to the deck; on the command line, to the working folder.";
  return f.path = PathKind::read, f;
}
inline Field written_path(Field f) {
  f.doc += " Relative to the working folder.";
  return f.path = PathKind::written, f;
}
inline Field on_gpus(Field f) {
  return f.only_on = "GPU", f;
}
inline Field on_cpus(Field f) {
  return f.only_on = "CPU", f;
}
inline Field example(std::string value, Field f) {
  return f.example = std::move(value), f;
}

// Parts of the table, in its order. Each row has key, access, default, unit, legal values and documentation.
std::vector<Field> run();
std::vector<Field> data();
std::vector<Field> model();
std::vector<Field> rotary();     ///< of model
std::vector<Field> attention();  ///< of model
std::vector<Field> mixture();    ///< of model: experts
std::vector<Field> trained();    ///< of model
std::vector<Field> sparse_attention();
std::vector<Field> experts();
std::vector<Field> lora();
std::vector<Field> loss();
std::vector<Field> preference();
std::vector<Field> distillation();
std::vector<Field> batch_and_degrees();
std::vector<Field> pipeline();
std::vector<Field> context_and_tensor();
std::vector<Field> strategy();   ///< of sharding
std::vector<Field> gathering();  ///< of sharding
std::vector<Field> grouping();   ///< of sharding
std::vector<Field> precision();
std::vector<Field> loss_scaling();
std::vector<Field> recompute();
std::vector<Field> offload();
std::vector<Field> optimization();  ///< optimizer, schedule
std::vector<Field> checkpoint();
std::vector<Field> resume_and_export();  ///< of checkpoint
std::vector<Field> operation();          ///< evaluation, metrics
std::vector<Field> watchdog();
std::vector<Field> size_of_machine();   ///< of cluster
std::vector<Field> speed_of_machine();  ///< of cluster
std::vector<Field> device();
std::vector<Field> debug();

}  // namespace ztrain::config::rows
