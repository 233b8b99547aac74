#include "program/tiles/tile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "config/validate/refusals.hpp"
#include "kernels/dropout/record.hpp"
#include "program/ir/placement.hpp"
#include "program/ops/emit.hpp"
#include "program/ops/op_type.hpp"

namespace ztrain::program {
namespace {

/// Names of the nodes of a block's feed-forward, and the tokens of its result.
struct FeedForwardNodes {
  std::set<std::string> names;
  std::int64_t tokens = 0;
};

/// The feed-forward begins with the norms directly before its first product and ends with the block.
std::map<int, FeedForwardNodes> feed_forwards(const model::Graph& graph) {
  std::map<int, FeedForwardNodes> found;
  const auto& nodes = graph.nodes;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].piece != "gate_up" || found.contains(nodes[i].block)) continue;
    FeedForwardNodes& of = found[nodes[i].block];
    std::size_t first = i;
    while (first > 0 && nodes[first - 1].piece == "norm" && nodes[first - 1].block == nodes[i].block) --first;
    for (std::size_t k = first; k < nodes.size() && nodes[k].block == nodes[i].block; ++k) {
      if (op_type(nodes[k].op).between_stages) continue;
      of.names.insert(nodes[k].name);
      of.tokens = graph.value(nodes[k].outputs[0]).shape[0];
    }
  }
  return found;
}

/// Consecutive ops [begin, end) of one feed-forward: its forward, or its recomputation and backward.
struct FeedForwardOps {
  OpId begin = 0, end = 0;
  std::int64_t tokens = 0;
};

std::vector<FeedForwardOps> find_spans(const Program& program, const model::Graph& graph, int parts) {
  const std::map<int, FeedForwardNodes> nodes = feed_forwards(graph);
  std::map<std::tuple<bool, int, int>, FeedForwardOps> spans;
  for (OpId i = 0; i < std::ssize(program.ops); ++i) {
    const Op& op = program.op(i);
    if (!is_compute(op.action.kind)) continue;
    const auto of = nodes.find(op.action.part);
    if (of == nodes.end() || !of->second.names.contains(op.name)) continue;
    if (op.action.half != Half::both) config::refuse("recompute.tiles pipeline.schedule", {{"tiles", parts}});
    const std::tuple key{op.action.kind == ActionKind::forward, op.action.part, op.action.micro};
    spans.try_emplace(key, FeedForwardOps{i, i, of->second.tokens}).first->second.end = i + 1;
  }
  std::vector<FeedForwardOps> ordered;
  for (const auto& [key, span] : spans) ordered.push_back(span);
  std::ranges::sort(ordered, {}, &FeedForwardOps::begin);
  for (std::size_t i = 1; i < ordered.size(); ++i)
    ASSERT(ordered[i - 1].end <= ordered[i].begin, "the feed-forward '{}' has ops of another one inside",
           program.op(ordered[i].begin).name);
  return ordered;
}

/// The tiling of one span.
class Tiler {
 public:
  /// accesses: by tensor with storage, how often the whole Program names it or a view of it.
  Tiler(Program& program, int parts, const FeedForwardOps& span, const std::vector<int>& accesses)
      : program_(program), parts_(parts), tokens_(span.tokens), accesses_(accesses) {}

  /// Appends the ops of the span, part by part.
  void emit(std::vector<Op> ops) {
    for (const Op& op : ops)
      for (const auto* operands : {&op.inputs, &op.outputs})
        for (const TensorId t : *operands) ++inside_[t];
    std::vector<Issue> when;
    for (const Op& op : ops) when.push_back(sort_in(op));
    const auto issue = [&](Issue now, int part) {
      for (std::size_t i = 0; i < ops.size(); ++i) {
        if (when[i] != now) continue;
        if (now == Issue::each_part)
          issue_part(ops[i], part);
        else
          program_.ops.push_back(ops[i]);
      }
    };
    issue(Issue::before, 0);
    for (int part = 0; part < parts_; ++part) issue(Issue::each_part, part);
    issue(Issue::after, 0);
  }

 private:
  /// An op of the span is issued once before all parts, for each part, or once after all parts.
  enum class Issue : std::uint8_t { before, each_part, after };
  /// A tensor holds something that does not depend on the parts, rows of tokens, or a sum over tokens.
  enum class Holds : std::uint8_t { constant, rows, sum };

  Holds holds(TensorId t) {
    const auto it = holds_.find(t);
    if (it != holds_.end()) return it->second;
    const Tensor& tensor = program_.tensor(t);
    const bool rows = tensor.category == Category::activation && !tensor.shape.empty() &&
                      tensor.shape[0] == tokens_ && !tensor.persistent;
    return holds_[t] = rows ? Holds::rows : Holds::constant;
  }

  Issue sort_in(const Op& op) {
    const bool of_rows = std::ranges::any_of(op.inputs, [&](TensorId t) { return holds(t) == Holds::rows; });
    if (of_rows) {
      note_results(op);
      return Issue::each_part;
    }
    const bool of_sums = std::ranges::any_of(op.inputs, [&](TensorId t) { return holds(t) == Holds::sum; });
    for (const TensorId t : op.outputs) holds_[t] = of_sums ? Holds::sum : Holds::constant;
    return of_sums ? Issue::after : Issue::before;
  }

  void note_results(const Op& op) {
    if (op.communicates()) {
      holds_[op.outputs[0]] = Holds::rows;
      return require(op, op.comm.kind == CommKind::all_gather || op.comm.kind == CommKind::reduce_scatter ||
                             op.comm.kind == CommKind::all_reduce);
    }
    const Way* way = way_of(op);
    // An op that is numbered draws by the place of its first row among the step's tokens.
    require(op, way != nullptr && op_type(op.type).number == nullptr);
    for (std::size_t i = 0; i < op.outputs.size(); ++i) {
      if (program_.tensor(op.outputs[i]).category == Category::workspace) continue;
      const Placement& at = way->outputs[way->outputs.size() == 1 ? 0 : i];
      holds_[op.outputs[i]] = at == by_rows ? Holds::rows : Holds::sum;
      require(op, at == by_rows ? program_.tensor(op.outputs[i]).shape[0] % parts_ == 0
                                : op.attributes.has(std::string(accumulate_key)));
    }
  }

  /// The way in which the op takes these rows of its operands and gives rows, or sums over rows. Null: it has
  /// none.
  const Way* way_of(const Op& op) {
    const OperandGroups groups = groups_of(op);
    for (const Way& way : op_type(op.type).ways) {
      bool fits = way.allows(op.attributes, Axis::context) && groups.size() <= way.inputs.size();
      for (std::size_t g = 0; fits && g < groups.size(); ++g)
        for (const TensorId t : groups[g])
          fits = fits && (holds(t) == Holds::rows ? way.inputs[g] == by_rows
                                                  : way.inputs[g].same() && holds(t) == Holds::constant);
      for (const Placement& out : way.outputs) fits = fits && (out == by_rows || out == partial);
      if (fits) return &way;
    }
    return nullptr;
  }

  void require(const Op& op, bool works) const {
    if (works) return;
    const bool masks = op.type == Dropout::op;
    const char* keys = masks                        ? "recompute.tiles lora.dropout"
                       : op.type.starts_with("fp8") ? "recompute.tiles precision.fp8"
                                                    : "recompute.tiles model.family";
    config::refuse(keys, {{"tiles", parts_}, {"op", op.type}, {"name", op.name}});
  }

  void issue_part(const Op& op, int part) {
    if (op.communicates()) return exchange_part(op, part);
    Op own = op;
    const bool has_workspace = program_.tensor(op.outputs.back()).category == Category::workspace;
    if (has_workspace && op_type(op.type).workspace != nullptr) own.outputs.pop_back();
    const std::vector<TensorId> sums = sums_of(own);
    for (auto* operands : {&own.inputs, &own.outputs})
      for (TensorId& t : *operands)
        if (holds(t) == Holds::rows) t = part_of(t, part);
    if (part > 0 && !sums.empty() && !accumulates(op)) {
      own.attributes.set(std::string(accumulate_key), std::int64_t{1});
      own.inputs.insert(own.inputs.end(), sums.begin(), sums.end());
    }
    complete(program_, own);
    program_.ops.push_back(std::move(own));
  }

  std::vector<TensorId> sums_of(const Op& op) {
    std::vector<TensorId> sums;
    for (const TensorId t : op.outputs)
      if (program_.tensor(t).category != Category::workspace && holds(t) == Holds::sum) sums.push_back(t);
    return sums;
  }

  void exchange_part(const Op& op, int part) {
    const TensorId from = part_of(op.inputs[0], part), to = part_of(op.outputs[0], part);
    if (op.comm.kind == CommKind::all_gather)
      emit_all_gather(program_, op.name, from, to, op.comm.axes, op.action);
    else if (op.comm.kind == CommKind::reduce_scatter)
      emit_reduce_scatter(program_, op.name, {from, 0}, to, op.comm.axes, accumulates(op), op.action);
    else
      emit_all_reduce(program_, op.name, from, to, op.comm.axes, op.action);
    move_to_exchange(program_);
  }

  /// The rows of one part: a tensor of their own if nothing outside the span touches them, else a view.
  TensorId part_of(TensorId whole, int part) {
    std::vector<TensorId>& of = part_of_[whole];
    for (int p = static_cast<int>(of.size()); p < parts_; ++p) {
      Tensor t = program_.tensor(whole);
      const bool own = t.base == no_tensor && !t.persistent && accesses_[at(whole)] == inside_[whole];
      t.name = fmt::format("{}.tile{}", t.name, p);
      t.shape[0] /= parts_;
      if (!own) {
        t.offset += p * t.bytes();
        t.base = program_.storage(whole);
      }
      of.push_back(program_.add(std::move(t)));
    }
    return of[at(part)];
  }

  Program& program_;
  int parts_;
  std::int64_t tokens_;  ///< of the whole
  const std::vector<int>& accesses_;
  std::map<TensorId, int> inside_;  ///< how often the span names a tensor
  std::map<TensorId, Holds> holds_;
  std::map<TensorId, std::vector<TensorId>> part_of_;
};

void require_divisible(const FeedForwardOps& span, int parts) {
  if (span.tokens % parts == 0) return;
  std::int64_t legal = parts;
  while (span.tokens % legal != 0) --legal;
  config::refuse("recompute.tiles batch.micro",
                 {{"tiles", parts}, {"tokens", span.tokens}, {"legal", legal}});
}

}  // namespace

void tile_feed_forward(Program& program, const model::Graph& graph, int parts) {
  if (parts == 1) return;
  const std::vector<FeedForwardOps> spans = find_spans(program, graph, parts);
  std::vector<int> accesses(program.tensors.size(), 0);
  for (const Op& op : program.ops)
    for (const auto* operands : {&op.inputs, &op.outputs})
      for (const TensorId t : *operands) ++accesses[at(program.storage(t))];
  std::vector<Op> ops = std::exchange(program.ops, {});
  auto from = ops.begin();
  for (const FeedForwardOps& span : spans) {
    require_divisible(span, parts);
    const auto begin = ops.begin() + span.begin, end = ops.begin() + span.end;
    std::move(from, begin, std::back_inserter(program.ops));
    Tiler(program, parts, span, accesses)
        .emit({std::make_move_iterator(begin), std::make_move_iterator(end)});
    from = end;
  }
  std::move(from, ops.end(), std::back_inserter(program.ops));
}

}  // namespace ztrain::program
