#pragma once
// An op that ztrain does not have, added out of tree: y = cap * tanh(x / cap), by which Gemma 2 bounds what
// it attends with and predicts. CONTRIBUTING tells how each of these files is made.

#include "model/family.hpp"
#include "model/op_records.hpp"
#include "program/schedules/schedule.hpp"

namespace ztrain {

/// x -> y.
struct Softcap {
  static constexpr std::string_view op = "softcap";
  enum In : std::size_t { x };
  enum Out : std::size_t { y };
  static constexpr Count reads = 1, writes = 1;
  double cap = 1;
  static constexpr auto fields() { return std::tuple{Given{"cap", &Softcap::cap}}; }
};
/// y, dy -> dx.
struct SoftcapGrad {
  static constexpr std::string_view op = "softcap_grad";
  enum In : std::size_t { y, dy };
  enum Out : std::size_t { dx };
  static constexpr Count reads = 2, writes = 1;
  double cap = 1;
  static constexpr auto fields() { return std::tuple{Given{"cap", &SoftcapGrad::cap}}; }
};

namespace model {

/// Bounds what the head reads.
void cap_head(Graph& graph, double cap);

/// A pass, of models of the family "capped": those are the decoder with bounded values before its head.
void cap_head_of_family(Graph& graph, const config::Deck& deck, const Request& request);

}  // namespace model

namespace program {

/// A schedule: all forwards of a step, then its backwards from the last micro-batch on.
std::vector<Turn> forwards_first(const ScheduleInput& input);

}  // namespace program
}  // namespace ztrain
