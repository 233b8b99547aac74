#include "program/ir/program.hpp"

#include <array>

#include "base/error.hpp"

namespace ztrain::program {
namespace {
template <class E, std::size_t N>
std::string_view pick(const std::array<std::string_view, N>& names, E value) {
  return names[static_cast<std::size_t>(value)];
}
constexpr std::array<std::string_view, stream_count> stream_names{"compute",
                                                                  "gather",
                                                                  "reduce",
                                                                  "exchange",
                                                                  "p2p",
                                                                  "to device",
                                                                  "to host",
                                                                  "io",
                                                                  "host",
                                                                  "to next",
                                                                  "to previous",
                                                                  "from next",
                                                                  "from previous",
                                                                  "to next, beside",
                                                                  "to previous, beside",
                                                                  "from next, beside",
                                                                  "from previous, beside"};
constexpr std::array<std::string_view, tier_count> tier_names{"device", "host", "nvme"};
constexpr std::array<std::string_view, action_kind_count> action_names{
    "load", "gather", "release", "forward", "backward", "recompute", "reduce",
    "send", "recv",   "fetch",   "evict",   "norm",     "optimize"};
constexpr std::array<std::string_view, category_count> category_names{
    "parameters", "master weights", "optimizer", "gradients", "gathered", "activations",
    "inputs",     "scalars",        "workspace", "cache",     "snapshot"};
constexpr std::array<std::string_view, 10> comm_names{
    "none", "all_gather", "reduce_scatter", "all_reduce",      "broadcast",
    "send", "recv",       "all_to_all",     "all_to_all_rows", "shift"};
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

std::int64_t Program::moved_by(TensorId id, OpId op, int time) const {
  if (op < repeat.begin) return 0;
  const Tensor& holder = tensor(storage(id));
  const bool behind = op >= repeat.end;
  const std::int64_t bytes = behind ? 0 : time * tensor(id).step;
  // Behind the body ops name the inputs of their own micro-batches.
  if (holder.ring < 0 || (behind && holder.persistent)) return bytes;
  const int moved = behind ? repeat.times - 1 : time;
  const TensorId slot = repeat.rings[at(holder.ring)].slot_of(holder.ring_index + moved);
  return bytes + tensor(slot).address - holder.address;
}

TensorId Program::add(Tensor tensor) {
  tensors.push_back(std::move(tensor));
  return static_cast<TensorId>(tensors.size() - 1);
}

TensorId Program::add_workspace(std::string called, std::int64_t bytes) {
  return add(
      {.name = std::move(called), .dtype = DType::u8, .shape = {bytes}, .category = Category::workspace});
}

TensorId Program::add_view(std::string called, TensorId of, std::int64_t begin, std::int64_t count) {
  Tensor view = tensor(of);
  ASSERT(view.base == no_tensor, "{} is a view, and has no views itself", view.name);
  view.name = std::move(called);
  view.base = of;
  view.offset = begin * size_of(view.dtype);
  view.shape = {count};
  return add(std::move(view));
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
