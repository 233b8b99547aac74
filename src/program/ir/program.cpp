#include "program/ir/program.hpp"

#include <array>

namespace ztrain::program {
namespace {
template <class E, std::size_t N>
std::string_view pick(const std::array<std::string_view, N>& names, E value) {
  return names[static_cast<std::size_t>(value)];
}
constexpr std::array<std::string_view, stream_count> stream_names{
    "compute", "gather", "reduce",  "exchange",    "p2p",       "to device",    "to host",
    "io",      "host",   "to next", "to previous", "from next", "from previous"};
constexpr std::array<std::string_view, tier_count> tier_names{"device", "host", "nvme"};
constexpr std::array<std::string_view, action_kind_count> action_names{
    "load", "gather", "release", "forward", "backward", "recompute", "reduce",
    "send", "recv",   "fetch",   "evict",   "norm",     "optimize"};
constexpr std::array<std::string_view, category_count> category_names{
    "parameters", "master weights", "optimizer", "gradients", "gathered", "activations",
    "inputs",     "scalars",        "workspace", "cache",     "snapshot"};
constexpr std::array<std::string_view, 9> comm_names{
    "none", "all_gather", "reduce_scatter", "all_reduce", "broadcast", "send", "recv", "all_to_all", "shift"};
}  // namespace

std::string_view name_of(Stream stream) {
  return pick(stream_names, stream);
}
std::string_view name_of(Tier tier) {
  return pick(tier_names, tier);
}
std::string_view name_of(ActionKind kind) {
  return pick(action_names, kind);
}
std::string_view name_of(Category category) {
  return pick(category_names, category);
}
std::string_view name_of(CommKind kind) {
  return pick(comm_names, kind);
}

bool is_compute(ActionKind kind) {
  return kind == ActionKind::forward || kind == ActionKind::backward || kind == ActionKind::recompute;
}

TensorId Program::add(Tensor tensor) {
  tensors.push_back(std::move(tensor));
  return static_cast<TensorId>(tensors.size() - 1);
}

double flops_of(const Program& program) {
  double flops = 0;
  for (OpId id = 0; id < static_cast<OpId>(program.ops.size()); ++id)
    flops += program.times(id) * program.op(id).flops;
  return flops;
}

TensorId Program::find(std::string_view wanted) const {
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].name == wanted) return static_cast<TensorId>(i);
  return no_tensor;
}

}  // namespace ztrain::program
