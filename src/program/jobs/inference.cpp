#include "program/jobs/inference.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "kernels/embedding/record.hpp"
#include "model/kv_cache.hpp"
#include "program/jobs/pass_list.hpp"
#include "program/passes/final_passes.hpp"

namespace ztrain::program {
namespace {

using model::Graph;
using model::Role;

/// Returns the graph of this many new tokens. every_row: it has logits of all of them, not of one.
Graph graph_of(const LogitsGraph& emit, std::int64_t tokens, bool every_row) {
  Graph graph = emit(tokens);
  if (every_row) model::keep_every_row(graph);
  return graph;
}

/// The ids of what prefill and decode have for themselves, added to the base. logits: of the whole model,
/// which a rank of a pipeline may have none of.
InferenceTensors add_tensors(Program& base, const Graph& graph, const model::Value& logits,
                             const std::string& prefix) {
  const auto input = [&](const char* name) {
    return base.find(input_name(fmt::format("{}.{}", prefix, name), 0));
  };
  for (const model::Value& v : graph.values)
    if (v.role == Role::input && base.find(input_name(v.name, 0)) == no_tensor)
      base.add(persistent(input_name(v.name, 0), v.dtype, v.shape, Category::input));
  InferenceTensors p;
  p.tokens = input("tokens");
  p.positions = input("positions");
  p.cache_begin = input("cache_begin");
  const auto selects = [](const model::Node& node) { return node.op == SelectRow::op; };
  if (std::any_of(graph.nodes.begin(), graph.nodes.end(), selects)) p.index = input("index");
  p.rows = base.tensor(p.tokens).shape[0];
  p.logits = base.add(
      persistent(fmt::format("{}.logits", prefix), logits.dtype, logits.shape, Category::activation));
  return p;
}

void add_caches(Program& base, const Graph& graph) {
  for (const model::Value& v : graph.values)
    if (v.role == Role::state) base.add(persistent(v.name, v.dtype, v.shape, Category::cache));
}

Program cached_program(const Base& base, const JobSpec& spec, TensorId logits, std::string_view name) {
  Making making = start(base, spec, ProgramKind::infer, name);
  making.logits = logits;
  return make(std::move(making));
}

}  // namespace

Inference compile_inference(const LogitsGraph& emit, const JobSpec& spec, const InferenceOptions& options,
                            int rank) {
  ASSERT(options.chunk >= 1 && spec.micro_batches == 1,
         "a prefill of {} tokens in {} micro-batches makes no sense", options.chunk, spec.micro_batches);
  const CachedGraph of_prefill{options.capacity, "prefill"}, of_decode{options.capacity, "decode"};
  Graph chunk = graph_of(emit, options.chunk, options.every_row), token = graph_of(emit, 1, true);
  const model::Value of_chunk = chunk.value(chunk.result), of_token = token.value(token.result);
  Base prefill = make_base(std::move(chunk), spec, rank, &of_prefill);
  Base decode = make_base(std::move(token), spec, rank, &of_decode);
  Inference out{prefill.cut.layout, prefill.tensors};
  add_caches(prefill.program, prefill.graph);
  out.prefill = add_tensors(prefill.program, prefill.graph, of_chunk, of_prefill.inputs);
  out.decode = add_tensors(prefill.program, decode.graph, of_token, of_decode.inputs);
  decode.program = prefill.program;
  decode.tensors = prefill.tensors;
  out.programs.add(make(start(prefill, spec, ProgramKind::load, load_name)), {""});
  out.programs.add(cached_program(prefill, spec, out.prefill.logits, prefill_name),
                   {load_name, prefill_name, decode_name});
  out.programs.add(cached_program(decode, spec, out.decode.logits, decode_name), {prefill_name, decode_name});
  verify_successions(out.programs, given(prefill.program, prefill.tensors));
  return out;
}

}  // namespace ztrain::program
