#include "config/fields/fields_rows.hpp"

namespace ztrain::config::rows {
namespace {

Legal degree() {
  return {.least = 1, .most = 1e6, .minus_one = true, .understood = {{"auto", "-1"}}};
}

/// Adds torchtitan's and Megatron's words for schedules.
Legal schedule() {
  Legal legal = also(
      {{"GPipe", "gpipe"},
       {"Interleaved1F1B", "interleaved"},
       {"ZBVZeroBubble", "zb-v"},
       {"DualPipeV", "dualpipe-v"},
       {"one_f_one_b", "1f1b"}},
      one_of({"1f1b", "gpipe", "interleaved", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "dualpipe-v"}));
  return legal.or_ending = schedule_file_ending, legal;
}

}  // namespace

std::vector<Field> batch_and_degrees() {
  return {
      on_request(numeric(
          example("64", {KEY_OF(batch, global), "", "sequences", between(1, 1e9),
                         "Sequences per optimizer step over all ranks. A multiple of batch.micro x "
                         "data-parallel ranks; the quotient is the number of micro-batches accumulated."}))),
      free(numeric({KEY_OF(batch, micro), "1", "sequences", between(1, 1e6),
                    "Sequences per rank that go through the model at once."})),
      free(numeric({KEY_OF(mesh, pipeline), "1", "ranks", degree(),
                    "Ranks over which the model's layers are spread: each has some, and hands activations "
                    "on. One degree of the mesh may be -1: what is left of the ranks."})),
      free(numeric({KEY_OF(mesh, replicate), "1", "ranks", degree(),
                    "Groups of ranks that hold whole copies of the sharded states."})),
      free(numeric({KEY_OF(mesh, shard), "-1", "ranks", degree(),
                    "Ranks over which the states are sharded; each has its own part of the batch."})),
      free(numeric(
          {KEY_OF(mesh, expert), "1", "ranks", between(1, 1e6),
           "Neighbouring ranks of mesh.shard that, with those of mesh.tensor, divide the experts. Each "
           "has some experts whole, and rows of tokens go to the ranks of their experts and come back. It "
           "divides mesh.shard; mesh.expert x mesh.tensor divides model.num_experts. Losses are those of "
           "mesh.expert = 1 but for the order of sums."})),
      free(numeric(
          {KEY_OF(mesh, context), "1", "ranks", degree(),
           "Ranks that share each micro-batch: every one has its part of the tokens. Where these do not "
           "divide, padding is added. States are sharded over these ranks as over those of mesh.shard."})),
      free(numeric(
          {KEY_OF(mesh, tensor), "1", "ranks", degree(),
           "Ranks that share each layer: heads of attention, columns and rows of the feed-forward, words of "
           "the vocabulary. They exchange activations in every layer, so they belong on one node. Up to the "
           "heads of attention; nothing has to divide, but where it does not, ranks wait for the first. With "
           "optimizer states of 8 bits a checkpoint resumes on the same degree alone."})),
  };
}

std::vector<Field> pipeline() {
  return {
      free(read_path(
          {KEY_OF(pipeline, schedule), R"("1f1b")", "", schedule(),
           "Where mesh.pipeline > 1, in which order a rank does forwards and backwards of the step's "
           "micro-batches; all give the same numbers. 1f1b: one forward, one backward; a rank holds the "
           "activations of as many micro-batches as there are stages from it to the end. gpipe: all forwards "
           "first; holds those of all. interleaved: 1f1b with several stages on every rank, which divides "
           "the time in which ranks wait by their number and sends more. zb-h1, zb-h2: gradients of weights "
           "are computed where a rank would wait; zb-h2 holds the activations of nearly twice as many "
           "micro-batches. zb-v, dualpipe-v: two stages on every rank, back and forth, and the gradients of "
           "weights likewise: the least waiting; both ends of the model are on the first rank. v-half, "
           "v-min: as zb-v with a half and a third of its activations, and more waiting. A file: a line for "
           "each rank, as PyTorch's _dump_csv writes it."})),
      free({KEY_OF(pipeline, stages_per_rank), "0", "stages", between(0, 1024),
            "With pipeline.schedule = \"interleaved\": how many stages every rank has (virtual stages). 0: "
            "2. The others have the number of their own."}),
      free({KEY_OF(pipeline, layers), "[]", "layers", between(1, 1e6),
            "Of each stage, from the first to the last; the embedding goes with the first and the head with "
            "the last. []: so that stages take equally long in forward and backward, the head counted."}),
      free({KEY_OF(pipeline, max_outstanding), "1", "turns", between(0, 1024),
            "How many forwards or backwards before it needs an activation or a gradient a rank begins to "
            "receive it: so far its neighbours may run ahead. Each has memory of its own from then on."}),
      free({KEY_OF(pipeline, late_weights), R"("all")", "", one_of({"all", "kept"}),
            "With schedules that compute gradients of weights later than those of inputs (zb-*, v-*, "
            "dualpipe-v) and recomputation: of which weights. all: of all; what was recomputed for them is "
            "held until then. kept: of those whose input forward kept; the others' are computed at once, "
            "which holds no more than 1f1b does of what is recomputed, and waits more."}),
  };
}

/// Returns the fields of how sequences and layers are shared.
std::vector<Field> context_and_tensor() {
  return {
      free({KEY_OF(context, method), R"("gather")", "", one_of({"gather", "ring", "ulysses"}),
            "Where mesh.context > 1: how the tokens of a rank attend to those of other ranks. All methods "
            "give the same numbers, up to rounding. gather: in every layer each rank gathers the keys and "
            "values of all tokens of the micro-batch. ring: keys and values are passed on from rank to rank "
            "while attention is computed, once in forward and once more in backward, so that a rank holds "
            "those of at most three ranks at a time. ulysses: before attention the ranks exchange tokens for "
            "heads, so that each has some of the heads of all tokens, and afterwards they exchange them "
            "back. For that mesh.context x mesh.tensor has to divide both the heads and the heads of keys. "
            "Where it does not, the ranks form groups of equal size, as large as the heads allow; the ranks "
            "of a group exchange heads, and keys and values are passed on from group to group as with ring. "
            "Where not even two ranks can exchange heads, ulysses is the same as ring. With gather, with "
            "ring and with several groups, each rank (or group) has a chunk of tokens from the beginning of "
            "the micro-batch and one from its end, so that all compute for equally long."}),
      free({KEY_OF(tensor, sequence_parallel), "true", "", any(),
            "Where mesh.tensor > 1. true: each of its ranks computes norms, dropout and the residual stream "
            "for its part of the tokens, which saves memory and sends no more bytes. Padding is added where "
            "mesh.tensor does not divide the tokens of a micro-batch (with mesh.context, of one of its "
            "ranks). false: every rank computes them for all of these tokens."}),
      free({KEY_OF(tensor, overlap), "false", "", any(),
            "Where mesh.tensor > 1, with tensor.sequence_parallel: what a layer gathers or reduces over "
            "these ranks is sent part by part while its products are computed, which are cut into as many "
            "parts as ranks (asynchronous tensor parallelism). It pays where the products are large and the "
            "links are what a step waits for; ztrain plan shows both. With precision.fp8 = \"tensorwise\" "
            "inputs are gathered as 8-bit codes, which are half the bytes."}),
  };
}

}  // namespace ztrain::config::rows
