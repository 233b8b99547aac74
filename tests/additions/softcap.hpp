#pragma once
// An op that ztrain does not have, added out of tree: y = cap * tanh(x / cap), by which Gemma 2 bounds what
// it attends with and predicts. CONTRIBUTING tells how each of these files is made.

#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"
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

namespace kernels {

/// y = cap * tanh(x / cap), computed in fp32 (fp64 for fp64) and rounded once. T is float, bf16, f16 or
/// double.
template <class T>
void softcap(Exec& exec, Vector<const T> x, double cap, Vector<T> y);
/// dx = dy * (1 - (y / cap)^2).
template <class T>
void softcap_grad(Exec& exec, Vector<const T> y, Vector<const T> dy, double cap, Vector<T> dx);

}  // namespace kernels

namespace model {

/// A pass over graphs: bounds what the head reads.
void cap_head(Graph& graph, double cap);

/// A family: the decoder, with a head that reads bounded values.
Graph capped_decoder(const config::Model& dims, const Request& request);

}  // namespace model

namespace program {

/// A schedule: all forwards of a step, then its backwards from the last micro-batch on.
std::vector<Turn> forwards_first(const ScheduleInput& input);

}  // namespace program
}  // namespace ztrain
