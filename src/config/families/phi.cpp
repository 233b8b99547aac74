// Phi 3, 3.5 (mini), 4 and 4-mini, which share one class.
#include "config/families/families.hpp"

namespace ztrain::config::families {

std::vector<Architecture> phi() {
  return {
      {.family = "phi3",
       .hf_class = "Phi3ForCausalLM",
       .model_type = "phi3",
       .doc = "llama without biases, whose files keep queries, keys and values in one tensor, and gate and "
              "up in another; a window and a partial rotary embedding are possible (Phi 3, 3.5, 4).",
       .files = {{"model.layers.*.self_attn.q_proj.weight", "model.layers.*.self_attn.qkv_proj.weight"},
                 {"model.layers.*.self_attn.k_proj.weight", "model.layers.*.self_attn.qkv_proj.weight"},
                 {"model.layers.*.self_attn.v_proj.weight", "model.layers.*.self_attn.qkv_proj.weight"},
                 {"model.layers.*.mlp.gate_proj.weight", "model.layers.*.mlp.gate_up_proj.weight"},
                 {"model.layers.*.mlp.up_proj.weight", "model.layers.*.mlp.gate_up_proj.weight"}},
       .keys = {silu,
                no_attention_dropout,
                dropped("resid_pdrop"),
                dropped("embd_pdrop"),
                eps("1e-5"),
                window("0"),
                {"model.partial_rotary_factor", "partial_rotary_factor", "1.0"},
                {"model.rope_original_max_position", "original_max_position_embeddings", "4096"}},
       .presets = {{"phi3-mini-4k", 3072, 8192, 32, 32, 32, 32064, "sliding_window=2047"},
                   {"phi4", 5120, 17920, 40, 40, 10, 100352, "rope_theta=250000"}}},
  };
}

}  // namespace ztrain::config::families
