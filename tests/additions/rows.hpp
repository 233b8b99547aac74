#pragma once
// Families and a schedule that ztrain does not have, of which tables are given rows.

#include "config/architectures.hpp"
#include "model/family.hpp"
#include "program/schedules/schedule.hpp"

namespace ztrain::config::families {

std::vector<Architecture> additions();

}  // namespace ztrain::config::families

namespace ztrain::model {

/// Gates the feed-forwards by GeGLU in place of SwiGLU.
void gate_by_geglu(Graph& graph);

/// The decoder with that.
Graph geglu_decoder(const config::Model& dims, const Request& request);

/// Caps scores of a scale of its own. Even layers have a window; the last one turns nothing by its position.
Attention capped_attention(const config::Model& dims, std::int64_t layer);

}  // namespace ztrain::model

namespace ztrain::program {

/// All forwards of a step, then its backwards.
std::vector<Turn> forwards_first(const ScheduleInput& input);

}  // namespace ztrain::program
