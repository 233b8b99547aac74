#pragma once
// Which parameters a deck trains.

#include "config/deck.hpp"
#include "model/graph.hpp"

namespace ztrain::model {

/// Sets Parameter::trainable: adapters are; others are where model.trainable has a pattern of their name
/// (all, where it is empty and there are no adapters) and model.frozen has none. Throws Error naming a
/// pattern that matches no parameter, and where nothing would be trained.
void mark_trainable(Graph& graph, const config::Model& model);

/// A sentence on a pattern that means the head of a model whose head has the embedding's weight; "" for
/// others.
std::string on_tied_head(const Graph& graph, const std::string& pattern);

/// Throws Error where a pattern of this key matches no parameter: what may have been meant, or how parameters
/// are named.
void require_match(const Graph& graph, const char* key, const std::string& pattern);

}  // namespace ztrain::model
