#include "config/fields/fields_rows.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "config/strategy.hpp"

namespace ztrain::config::rows {
namespace {

Legal strategy_names() {
  Legal legal;
  for (const Strategy& s : strategies()) {
    legal.choices.emplace_back(s.name);
    for (const auto alias : s.aliases) legal.aliases.emplace_back(alias, s.name);
  }
  const char* hybrid = "HYBRID_SHARD (with sharding.reshard_after_forward = false)";
  return close_to({{"fsdp", "FULL_SHARD"},
                   {"hsdp", "HYBRID_SHARD"},
                   {"_HYBRID_SHARD_ZERO2", hybrid},
                   {"HYBRID_SHARD_ZERO2", hybrid},
                   {"0", "NO_SHARD (DeepSpeed's stage 0)"},
                   {"1", "zero1 (DeepSpeed's stage 1) or FULL_SHARD (1 of Accelerate)"},
                   {"2", "zero2 (DeepSpeed's stage 2) or SHARD_GRAD_OP (2 of Accelerate)"},
                   {"3", "zero3 (DeepSpeed's stage 3) or NO_SHARD (3 of Accelerate)"},
                   {"4", "HYBRID_SHARD (4 of Accelerate)"},
                   {"5", hybrid}},
                  legal);
}

std::string strategy_doc() {
  std::string doc = "Which states are sharded over mesh.shard.";
  for (const Strategy& s : strategies()) {
    doc += fmt::format(" {}{}{}{}: {}", s.name, s.aliases.empty() ? "" : " (", fmt::join(s.aliases, ", "),
                       s.aliases.empty() ? "" : ")", s.doc);
  }
  return doc;
}

Legal reshard() {
  Legal legal = one_of({"auto", "true", "false"});
  legal.understood = {{"default", "auto"}, {"always", "true"}, {"never", "false"}};
  legal.or_from = 2;
  legal.most = 1e6;
  return legal;
}

Legal backward_prefetch() {
  Legal legal = one_of({"pre", "post", "none"});
  legal.aliases = {{"BACKWARD_PRE", "pre"}, {"BACKWARD_POST", "post"}};
  return also({{"NO_PREFETCH", "none"}, {"true", "pre"}, {"false", "none"}}, legal);
}

}  // namespace

std::vector<Field> strategy() {
  return {free({KEY_OF(sharding, strategy), R"("FULL_SHARD")", "", strategy_names(), strategy_doc()})};
}

/// Returns the fields of when parameters are gathered and how long copies live.
std::vector<Field> gathering() {
  return {
      free_without(
          "sharding.reduce_codes",
          {KEY_OF(sharding, reshard_after_forward), R"("auto")", "", reshard(),
           "Whether a gathered unit is dropped after its forward and gathered again for its backward. auto: "
           "as the strategy says. false: it is kept. A number N: each rank keeps the part that it would own "
           "if the unit were sharded over groups of N neighbouring ranks, so that the gather for backward "
           "stays within the group (DeepSpeed's hpZ, FSDP2's integer); N divides mesh.shard, and with "
           "mesh.context > 1 a group is those N with all their ranks of context: N x mesh.context. Of no "
           "effect where parameters stay whole."}),
      free({KEY_OF(sharding, forward_prefetch), "1", "units",
            also({{"true", "1"}, {"false", "0"}}, between(0, 64)),
            "How many units ahead of their use parameters are gathered in forward."}),
      free({KEY_OF(sharding, backward_prefetch), R"("pre")", "", backward_prefetch(),
            "When the next unit of backward is gathered. pre: before the backward of the current one, beside "
            "it. post: after that, beside the reduction of its gradient. none: when it is used. In memory, "
            "pre takes one unit more than post."}),
      free({KEY_OF(sharding, max_gathered_units), "0", "units",
            also({{"true", "2"}, {"false", "0"}}, between(0, 1e6)),
            "Gathered units that may exist at once; gathers ahead wait until there is room. The unit in use "
            "is always gathered. 0: no limit. FSDP's limit_all_gathers is 2. Of no effect where gathered "
            "units are kept (reshard_after_forward = false)."}),
      free({KEY_OF(sharding, max_live_parameters), "0", "elements", count(0),
            "Parameters that may be gathered at once; gathers ahead wait until there is room (DeepSpeed's "
            "stage3_max_live_parameters). 0: no limit."}),
      free({KEY_OF(sharding, max_reuse_distance), "0", "elements", count(0),
            "A gathered unit is kept when it is used again before this many other parameters are gathered "
            "(DeepSpeed's stage3_max_reuse_distance)."}),
      numeric({KEY_OF(sharding, gather_codes), R"("none")", "", one_of({"none", "int8", "int4"}),
               "Units are gathered as whole numbers of 8 or 4 bits, with an fp32 scale for each 64 elements "
               "(ZeRO++'s qwZ, DeepSpeed's zero_quantized_weights): 8.5 or 4.5 bits an element. The model "
               "computes with the rounded weights, also on one rank, while the optimizer, checkpoints and "
               "exports have exact ones. Losses are the same, but for the last bits, on every mesh with the "
               "same mesh.tensor. Weights that precision.fp8 or lora.quantization keep as codes are gathered "
               "as these, and what persistence_threshold keeps whole is not coded."}),
  };
}

/// Returns the fields of how parameters are grouped and how their gradients travel.
std::vector<Field> grouping() {
  return {
      free_without(
          "sharding.gather_codes",
          {KEY_OF(sharding, persistence_threshold), "0", "elements", count(0),
           "Parameters with fewer elements than this stay whole on each rank (DeepSpeed's "
           "stage3_param_persistence_threshold). Those that one product takes count together: queries, keys "
           "and values; gate and up."}),
      numeric(
          {KEY_OF(sharding, reduce_codes), R"("none")", "", one_of({"none", "int8", "int4"}),
           "Gradients are reduced as whole numbers of 8 or 4 bits, with an fp32 scale for each 64 elements "
           "(ZeRO++'s qgZ, DeepSpeed's zero_quantized_gradients): 8.5 or 4.5 bits an element. Each reduction "
           "rounds them, also on one rank, so losses depend on the mesh and on gradient_accumulation. Sums "
           "over mesh.replicate travel in precision.reduce."}),
      free({KEY_OF(sharding, reduce_bucket_size), "0", "elements", count(0),
            "Reductions of more gradients than this are cut into several. 0: one per unit."}),
      free({KEY_OF(sharding, overlap_reduce), "true", "", any(),
            "A unit's gradient is reduced while the next unit's backward computes, so two gradients exist at "
            "once (DeepSpeed's overlap_comm). false: their memory is shared, and backward waits."}),
      free(
          {KEY_OF(sharding, unit), R"("block")", "",
           close_to(
               {{"LlamaDecoderLayer", "block"}, {"transformer_auto_wrap_policy", "block"}, {"auto", "block"}},
               also({{"TRANSFORMER_BASED_WRAP", "block"}, {"SIZE_BASED_WRAP", "size"}, {"NO_WRAP", "model"}},
                    one_of({"block", "size", "model", "pattern"}))),
           "What is gathered and reduced at once. block: a transformer block; the embedding, and the final "
           "norm with the head, are units of their own. size: neighbouring blocks are joined until a unit "
           "has unit_min_parameters. model: everything. pattern: each module that unit_patterns match is a "
           "unit, the rest of its block another; where a product takes several modules, the first one's unit "
           "takes them all: q_proj's, gate_proj's."}),
      free({KEY_OF(sharding, unit_min_parameters), "100_000_000", "elements", count(1),
            "Fewest parameters of a unit, for sharding.unit = size (FSDP's size-based policy)."}),
      free({KEY_OF(sharding, unit_patterns), "[]", "", any(),
            "Patterns (*, ?, [...]) of the names of modules, such as model.layers.*.mlp, for sharding.unit = "
            "pattern. No wildcard stands for a dot; of nested modules that match, the innermost counts."}),
      free(numeric(
          {KEY_OF(sharding, gradient_accumulation), R"("auto")", "", one_of({"auto", "reduce", "no_sync"}),
           "reduce: gradients are reduced after every micro-batch and accumulated as shards. no_sync: they "
           "are accumulated whole and reduced once per step. auto: the one that the strategy implies."})),
  };
}

}  // namespace ztrain::config::rows
