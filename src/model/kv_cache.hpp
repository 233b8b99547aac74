#pragma once
// Passes that turn a family's graph of logits into one for generation. They look at ops alone, so that they
// go together with every family and with what other passes add.

#include <cstdint>

#include "model/graph.hpp"

namespace ztrain::model {

/// Every `attention` becomes `attention_cached` over caches "<attention>.k_cache" and "<attention>.v_cache",
/// [capacity, kv_heads * head_dim] with Role::state, to which its keys (with their positions in them) and
/// values are appended first. The graph then takes a few new tokens of one sequence: the int32 [1] input
/// "cache_begin" says how many tokens the caches hold already. document_start is read no more. Throws Error
/// where the graph has no attention, or capacity is below 1.
void add_kv_cache(Graph& graph, std::int64_t capacity);

/// The logits of all tokens, [tokens, vocabulary], where the graph gives those of the token that the input
/// "index" selects. Throws Error where nothing is selected.
void keep_every_row(Graph& graph);

}  // namespace ztrain::model
