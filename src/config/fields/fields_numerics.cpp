#include "config/fields/fields_rows.hpp"

#include <fmt/format.h>

#include "config/fields/presets.hpp"
#include "config/recompute_pieces.hpp"

namespace ztrain::config::rows {
namespace {

Legal dtypes() {
  Legal legal = dtype_of({"fp32", "bf16", "fp16", "fp64"});
  legal.understood.emplace_back("float64", "fp64");
  return legal;
}

Legal preset_names() {
  Legal legal =
      also({{"bfloat16", "bf16"}, {"float32", "fp32"}, {"no", "fp32"}}, one_of(precision_preset_names()));
  return close_to({{"fp16", "deepspeed-fp16"}, {"float16", "deepspeed-fp16"}, {"mixed", "fsdp-mixed"}},
                  legal);
}

Legal piece_names() {
  Legal legal;
  for (const RecomputePiece& piece : recompute_pieces()) legal.choices.emplace_back(piece.name);
  return legal;
}

std::string pieces_doc() {
  std::string doc = "What mode = selective runs again.";
  for (const RecomputePiece& piece : recompute_pieces()) doc += fmt::format(" {}: {}", piece.name, piece.doc);
  return doc;
}

}  // namespace

std::vector<Field> precision() {
  return {
      free(
          {KEY_OF(precision, preset), R"("bf16")", "", preset_names(),
           "Sets the six keys below; keys given below win over it. bf16, fsdp-mixed: parameters in bf16, the "
           "rest in fp32 (FSDP's MixedPrecision over fp32 parameters). bf16-pure: all in bf16, parameters "
           "stepped with stochastic rounding. fsdp-bf16: all in bf16, rounded to nearest (FSDP with a bf16 "
           "model). deepspeed-bf16, deepspeed-fp16: parameters, gradients and their reduction in 16 bits, "
           "the optimizer in fp32. fp64 is meant for numerical tests, and for all five together only."}),
      numeric({KEY_OF(precision, parameters), R"("bf16")", "", dtypes(),
               "Parameters and activations in forward and backward."}),
      numeric({KEY_OF(precision, gradients), R"("fp32")", "", dtypes(),
               "Accumulated gradients: fp32, or the type of the parameters."}),
      numeric({KEY_OF(precision, reduce), R"("fp32")", "", dtypes(),
               "Least width of the sums of gradients over ranks: fp32, or the type of the parameters; bf16 "
               "goes with fp32 parameters too. The narrower of this and precision.gradients travels, which "
               "changes no bit of a sum: sums are formed in fp32, and kept in the wider of the two (those of "
               "fp16 gradients in fp32)."}),
      numeric({KEY_OF(precision, master), R"("fp32")", "", dtypes(),
               "The parameters that the optimizer steps: fp32, or bf16 where the parameters are."}),
      numeric({KEY_OF(precision, moments), R"("fp32")", "", dtypes(),
               "The optimizer's moments: fp32 or bf16. adamw_8bit has its own."}),
      numeric({KEY_OF(precision, rounding), R"("auto")", "", one_of({"auto", "nearest", "stochastic"}),
               "How stepped parameters are rounded to 16 bits. stochastic rounds up or down with "
               "probabilities that keep the mean, so that steps smaller than half a unit in the last place "
               "are not lost; it needs precision.master = bf16. auto: stochastic there, nearest elsewhere."}),
      numeric({KEY_OF(precision, fp8), R"("none")", "",
               close_to({{"true", "tensorwise"}, {"hybrid", "tensorwise"}, {"e4m3", "tensorwise"}},
                        also({{"false", "none"}, {"rowwise_with_gw_hp", "rowwise"}},
                             one_of({"none", "tensorwise", "rowwise"}))),
               "Whether the linear layers of the blocks multiply 8-bit floats (Micikevicius et al., \"FP8 "
               "formats for deep learning\", 2022): weights and activations are e4m3, gradients e5m2, sums "
               "fp32. tensorwise: each tensor has one scale, and all three products of a layer are 8-bit: "
               "forward, the gradient of the input, and that of the weight. rowwise: each row has a scale; "
               "the gradient of the weight is then a bf16 product. Weights are gathered as 8-bit codes, "
               "which are half the bytes. In bf16 stay the embedding, the head, adapters, experts and their "
               "routers, and layers whose "
               "weight has a number of rows or columns that is not a multiple of 16. precision.parameters "
               "must be bf16. Padding makes the tokens of a micro-batch (with mesh.context, of each of its "
               "ranks) a multiple of 16. With mesh.tensor the rows and columns of these "
               "weights that a rank has must be multiples of 16, and rowwise needs at most as many of its "
               "ranks as heads of keys; ztrain refuses other degrees and names those that work."}),
  };
}

std::vector<Field> loss_scaling() {
  return {
      on_request(numeric({KEY_OF(loss_scaling, scale), "0", "", also({{"dynamic", "0"}}, from(0)),
                          "Factor on the loss. 0: dynamic, as the keys below say."})),
      on_request(numeric({KEY_OF(loss_scaling, initial_scale_power), "16", "", between(0, 64),
                          "The dynamic factor starts at 2 to this power."})),
      on_request(numeric({KEY_OF(loss_scaling, window), "1000", "steps", between(1, 1e9),
                          "After this many steps without overflow the factor is doubled."})),
      on_request(numeric({KEY_OF(loss_scaling, hysteresis), "2", "steps", between(1, 1e6),
                          "How many steps must overflow before the factor is halved."})),
      on_request(
          numeric({KEY_OF(loss_scaling, consecutive_hysteresis), "false", "", any(),
                   "A step without overflow starts the count of the hysteresis anew; otherwise a rise of the "
                   "factor does."})),
      on_request(numeric({KEY_OF(loss_scaling, min_scale), "1", "", above(0),
                          "The dynamic factor does not fall below this."})),
  };
}

std::vector<Field> recompute() {
  return {
      free({KEY_OF(recompute, mode), R"("none")", "",
            close_to({{"uniform", "full"}, {"block", "full"}, {"op", "selective"}},
                     also({{"true", "full"}, {"false", "none"}}, one_of({"none", "full", "selective"}))),
            "full: of a transformer block only the input is kept, and its forward is run again before its "
            "backward. selective: the pieces below are run again, in every block."}),
      free({KEY_OF(recompute, every), "1", "blocks", between(1, 1e4),
            "mode = full applies to every k-th block; the others keep their activations."}),
      free({KEY_OF(recompute, pieces), "[]", "", piece_names(), pieces_doc()}),
      free({KEY_OF(recompute, tiles), "1", "parts", between(1, 1e6),
            "Above 1, the feed-forward of each block, with its norms, is computed for this many equal parts "
            "of a rank's tokens, one after another (ALST's tiled feed-forward), and again in backward, "
            "whatever the mode. Memory of its intermediate results falls by this factor. It divides the "
            "tokens "
            "that a rank has of a micro-batch. Losses differ in the last bits."}),
  };
}

}  // namespace ztrain::config::rows
