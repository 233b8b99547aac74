#include "model/trainable.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "base/text.hpp"
#include "config/architectures.hpp"
#include "config/hf/reward_model.hpp"
#include "config/validate/refusals.hpp"

namespace ztrain::model {
namespace {

bool matches(const std::vector<std::string>& patterns, const std::string& name) {
  return std::ranges::any_of(patterns, [&](const std::string& p) { return glob_match(p, name); });
}

void require_matches(const Graph& graph, const char* key, const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) require_match(graph, key, pattern);
}

bool matches_any(const Graph& graph, const std::string& pattern) {
  return std::ranges::any_of(graph.parameters,
                             [&](const Parameter& p) { return glob_match(pattern, p.name); });
}

}  // namespace

std::string on_tied_head(const Graph& graph, const std::string& pattern) {
  const bool untied =
      std::ranges::find(graph.parameters, config::head_weight, &Parameter::name) != graph.parameters.end();
  if (untied || !(glob_match(pattern, "lm_head") || glob_match(pattern, config::head_weight))) return "";
  return fmt::format("the head is tied to the embedding (model.tie_word_embeddings), and its weight is {}",
                     config::embedding_weight);
}

void require_match(const Graph& graph, const char* key, const std::string& pattern) {
  if (matches_any(graph, pattern)) return;
  if (const std::string tied = on_tied_head(graph, pattern); !tied.empty())
    fail("{}: '{}' matches no parameter: {}", key, printable(pattern, most_quoted), tied);
  for (const std::string& meant : {"model." + pattern, "*." + pattern, pattern + ".*", "*." + pattern + ".*"})
    REQUIRE(!matches_any(graph, meant), "{}: '{}' matches no parameter; did you mean '{}'?", key,
            printable(pattern, most_quoted), printable(meant, most_quoted));
  fail("{}: '{}' matches no parameter; parameters are named as {}", key, printable(pattern, most_quoted),
       graph.parameters[graph.parameters.size() / 2].name);
}

void mark_trainable(Graph& graph, const config::Model& model) {
  require_matches(graph, "model.trainable", model.trainable);
  require_matches(graph, "model.frozen", model.frozen);
  const bool adapters = std::ranges::any_of(graph.parameters, &Parameter::adapter);
  const bool all = model.trainable.empty() && !adapters;
  for (Parameter& p : graph.parameters) {
    const bool chosen = !p.constant && (all || matches(model.trainable, p.name));
    // Beside adapters the head of a reward model is trained whole.
    const bool head = adapters && p.name == config::score_weight;
    p.trainable = p.adapter || ((chosen || head) && !matches(model.frozen, p.name));
  }
  if (std::ranges::none_of(graph.parameters, &Parameter::trainable))
    config::refuse("model.frozen model.trainable lora.rank");
}

}  // namespace ztrain::model
