#include "tests/random/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/json.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/diff.hpp"

namespace ztrain::random_decks {
namespace {

/// The last value that the words give the key.
std::string value_of(const Words& words, const std::string& key, const std::string& standard) {
  std::string value = standard;
  for (const std::string& word : words)
    if (word.starts_with("--" + key + "=")) value = word.substr(word.find('=') + 1);
  return value;
}

bool gives(const Words& words, const std::string& key) {
  return !value_of(words, key, "").empty();
}

/// By key and step: the numbers of metrics.jsonl that do not depend on time.
std::map<std::pair<std::string, std::int64_t>, double> numbers_of(const std::string& folder,
                                                                  std::int64_t from) {
  std::map<std::pair<std::string, std::int64_t>, double> numbers;
  std::ifstream file(folder + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json record = parse_json(line, "metrics");
    for (const char* key : {"loss", "grad_norm", "validation_loss", "lr", "tokens"})
      if (record.contains(key) && record.at("step") > from)
        numbers[{key, record.at("step").get<std::int64_t>()}] =
            record.at(key).is_null() ? NAN : record.at(key).get<double>();
  }
  return numbers;
}

double relative(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b) ? 0 : INFINITY;
  return a == b ? 0 : std::abs(a - b) / std::max(std::abs(a), std::abs(b));
}

void compare_numbers(const std::string& run, const std::string& one_rank, std::int64_t from,
                     const Bound& bound, Apart& apart, std::vector<std::string>& lines) {
  const auto found = numbers_of(run, from), expected = numbers_of(one_rank, from);
  if (expected.empty()) lines.emplace_back("one rank has no metrics");
  for (const auto& [key, value] : expected) {
    const auto it = found.find(key);
    if (it == found.end()) {
      lines.push_back(fmt::format("step {} has no {}", key.second, key.first));
      continue;
    }
    const double difference = relative(it->second, value);
    double most = 0;
    double* worst = nullptr;
    if (key.first == "loss") most = bound.apart.loss, worst = &apart.loss;
    if (key.first == "grad_norm") most = bound.apart.norm, worst = &apart.norm;
    if (key.first == "validation_loss") most = bound.apart.validation, worst = &apart.validation;
    if (worst) *worst = std::max(*worst, difference);
    if (!(difference <= most))
      lines.push_back(fmt::format("step {}: {} is {}, on one rank {} (relatively {:.2g}, allowed {:.2g})",
                                  key.second, key.first, it->second, value, difference, most));
  }
  if (found.size() > expected.size()) lines.emplace_back("it has more numbers than one rank's run");
}

/// How many times the bound a parameter may differ by whose gradient is little more, in 16 bits, than what
/// was rounded: Adam makes whole steps of it. Keys, norms of heads and sinks have small gradients. What a
/// bias adds to all keys the softmax does not see, but for rotation.
double noise_of(const std::string& parameter, bool narrow) {
  const auto has = [&](const char* part) { return parameter.find(part) != parameter.npos; };
  if (parameter.ends_with(".k_proj.bias")) return narrow ? 6 : 100;
  // Single numbers: a mean hides no whole step that the sign of a rounded gradient turns round.
  if (has(".act_fn.") && narrow) return 4;
  return has(".k_proj.") || (narrow && (has(".q_norm.") || has(".k_norm.") || has(".sinks"))) ? 2 : 1;
}

void compare_weights(const std::string& run, const std::string& one_rank, const Bound& bound, Apart& apart,
                     std::vector<std::string>& lines) {
  const auto a = checkpoint::newest(run + "/checkpoints"), b = checkpoint::newest(one_rank + "/checkpoints");
  if (!a || !b) {
    lines.emplace_back("there is no checkpoint");
    return;
  }
  for (const checkpoint::TensorDifference& t : checkpoint::diff(*a, *b).tensors) {
    if (t.state != "model") continue;
    const double most = bound.apart.weights * noise_of(t.name, bound.narrow);
    const bool stray = t.what.empty() && t.differing <= bound.strays && std::isfinite(t.mean);
    if (!stray) apart.weights = std::max(apart.weights, t.what.empty() ? t.mean : INFINITY);
    if (!stray && (!t.what.empty() || !(t.mean <= most)))
      lines.push_back(fmt::format("{} {}: {} (means {:.2g} apart, allowed {:.2g})", t.state, t.name, t.what,
                                  t.mean, most));
  }
}

}  // namespace

Bound bound_of(const Words& numerics) {
  const std::string preset = value_of(numerics, "precision.preset", "bf16"),
                    optimizer = value_of(numerics, "optimizer.name", "adamw");
  const bool narrow = preset != "fp64" && preset != "fp32";
  const bool coarse = gives(numerics, "precision.fp8") ||
                      value_of(numerics, "precision.reduce", "") == "bf16" ||
                      value_of(numerics, "precision.gradients", "") == "bf16";
  // How far steps carry what rounding began: sign and codes turn a small difference into a whole step.
  const bool jumps =
      optimizer == "lion" || optimizer == "adamw_8bit" || gives(numerics, "sharding.gather_codes");
  const double lr = std::stod(value_of(numerics, "optimizer.lr", "3e-4"));
  const double unit = narrow || coarse ? 4e-3 : preset == "fp32" ? 1e-6 : 1e-13;
  Bound bound{
      fmt::format("{}{} {}", preset, coarse ? " coarse" : "", jumps ? "jumping" : "smooth"), {}, 0, narrow};
  bound.apart = {unit, 10 * unit, unit, lr * (coarse || (jumps && narrow) ? 1 : narrow ? 0.5 : 1000 * unit)};
  // Rounding sends tokens between two experts to the other one.
  if (narrow && gives(numerics, "model.num_experts")) bound.apart.norm *= 2;
  if (preset == "bf16-pure" && value_of(numerics, "precision.rounding", "") != "nearest") bound.strays = 2;
  if (jumps && !narrow && !coarse) bound.apart = {1e-4, 1e-3, 1e-4, 0.05 * lr};
  if (const std::string codes = value_of(numerics, "sharding.reduce_codes", ""); !codes.empty()) {
    Apart& apart = bound.apart;
    const double least = codes == "int4" ? 5e-3 : 1e-3;
    apart = {std::max(apart.loss, least), std::max(apart.norm, 10 * least), std::max(apart.validation, least),
             2 * lr};
    bound.name =
        fmt::format("{} {} {}", codes, narrow || coarse ? "narrow" : "wide", jumps ? "jumping" : "smooth");
  }
  // After a sum in signs the norm is mostly that of what they round away, and an element whose gradients
  // were near 0 in a warm-up of one step or two moves far.
  if (optimizer == "onebit_adam" && std::stoi(value_of(numerics, "optimizer.freeze_step", "0")) < 3)
    bound = {"signs", {0.1, 1e9, 0.1, 1}, bound.strays, narrow};
  return bound;
}

std::vector<std::string> differences(const std::string& run, const std::string& one_rank, std::int64_t from,
                                     const Bound& bound, Apart& apart) {
  std::vector<std::string> lines;
  compare_numbers(run, one_rank, from, bound, apart, lines);
  compare_weights(run, one_rank, bound, apart, lines);
  return lines;
}

// Averages follow the weights, which the update changes.
std::vector<std::string> differences_before_update(const std::string& run, const std::string& other,
                                                   std::int64_t from) {
  std::vector<std::string> lines;
  const auto found = numbers_of(run, from), expected = numbers_of(other, from);
  for (const auto& [key, value] : expected) {
    const bool fixed = key.first == "loss" || key.first == "grad_norm";
    const auto it = found.find(key);
    if (fixed && (it == found.end() || relative(it->second, value) != 0))
      lines.push_back(fmt::format("step {}: {} is not {}", key.second, key.first, value));
  }
  const auto a = checkpoint::newest(run + "/checkpoints"), b = checkpoint::newest(other + "/checkpoints");
  if (expected.empty() || !a || !b) return {"there is nothing to compare"};
  for (const checkpoint::TensorDifference& t : checkpoint::diff(*a, *b).tensors)
    if (t.state != "model" && t.state != "optimizer/ema" && (!t.what.empty() || t.differing > 0))
      lines.push_back(fmt::format("{} {} differs", t.state, t.name));
  return lines;
}

}  // namespace ztrain::random_decks
