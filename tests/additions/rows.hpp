#pragma once
// A family and a schedule that ztrain does not have, of which tables are given rows.

#include "model/family.hpp"
#include "program/schedules/schedule.hpp"

namespace ztrain::model {

/// Gates the feed-forwards by GeGLU in place of SwiGLU.
void gate_by_geglu(Graph& graph);

/// The decoder with that.
Graph geglu_decoder(const config::Model& dims, const Request& request);

}  // namespace ztrain::model

namespace ztrain::program {

/// All forwards of a step, then its backwards.
std::vector<Turn> forwards_first(const ScheduleInput& input);

}  // namespace ztrain::program
