"""Families of Hugging Face models: what each has besides, read and written."""

import json

import hf_model as hf
import ztrain_run as zt

# What configs of other families, and of Llamas with biases, have besides or instead.
FAMILIES = {
    "biases": {"attention_bias": True, "mlp_bias": False},
    "mistral": {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 5},
    "qwen2": {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "use_sliding_window": True,
        "sliding_window": 6,
        "max_window_layers": 1,
        "layer_types": ["full_attention", "sliding_attention"],
    },
    "qwen3": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "attention_bias": False,
        "use_sliding_window": False,
        "sliding_window": None,
        "max_window_layers": 2,
    },
    "gemma2": {
        "architectures": ["Gemma2ForCausalLM"],
        "model_type": "gemma2",
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_act": "gelu_pytorch_tanh",
        "attn_logit_softcapping": 20.0,
        "final_logit_softcapping": None,
        "query_pre_attn_scalar": 14,
        "sliding_window": 7,
        "layer_types": ["full_attention", "sliding_attention"],
    },
    "gemma3": {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_act": "gelu_pytorch_tanh",
        "tie_word_embeddings": True,
        "query_pre_attn_scalar": 14,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "rope_local_base_freq": 2000.0,
        "sliding_window": 7,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "phi3": {
        "architectures": ["Phi3ForCausalLM"],
        "model_type": "phi3",
        "partial_rotary_factor": 0.4,
        "original_max_position_embeddings": 64,
        "rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.5], "long_factor": [2.0, 5.5]},
        "sliding_window": 7,
    },
    "olmo2": {"architectures": ["Olmo2ForCausalLM"], "model_type": "olmo2", "attention_bias": True},
    "olmo3": {
        "architectures": ["Olmo3ForCausalLM"],
        "model_type": "olmo3",
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 16.0},
        "sliding_window": 7,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "smollm3": {
        "architectures": ["SmolLM3ForCausalLM"],
        "model_type": "smollm3",
        "no_rope_layers": [0, 1],
        "use_sliding_window": False,
    },
    "glm": {
        "architectures": ["GlmForCausalLM"],
        "model_type": "glm",
        "attention_bias": True,
        "partial_rotary_factor": 0.4,
        "rope_scaling": None,
    },
    "glm4": {
        "architectures": ["Glm4ForCausalLM"],
        "model_type": "glm4",
        "attention_bias": False,
        "partial_rotary_factor": 0.8,
        "rope_scaling": None,
    },
    "granite": {
        "architectures": ["GraniteForCausalLM"],
        "model_type": "granite",
        "embedding_multiplier": 12.0,
        "residual_multiplier": 0.22,
        "attention_multiplier": 0.25,
        "logits_scaling": 8.0,
    },
    "ministral": {
        "architectures": ["MinistralForCausalLM"],
        "model_type": "ministral",
        "sliding_window": 5,
        "layer_types": ["full_attention", "sliding_attention"],
    },
    "apertus": {"architectures": ["ApertusForCausalLM"], "model_type": "apertus", "hidden_act": "xielu"},
    "starcoder2": {
        "architectures": ["Starcoder2ForCausalLM"],
        "model_type": "starcoder2",
        "hidden_act": "gelu_pytorch_tanh",
        "norm_epsilon": 1e-6,
        "use_bias": True,
        "sliding_window": 7,
    },
    "mixtral": {
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "num_local_experts": 3,
        "num_experts_per_tok": 2,
        "router_aux_loss_coef": 0.02,
        "sliding_window": None,
    },
    "qwen2_moe": {
        "architectures": ["Qwen2MoeForCausalLM"],
        "model_type": "qwen2_moe",
        "qkv_bias": True,
        "num_experts": 5,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 11,
        "shared_expert_intermediate_size": 13,
        "norm_topk_prob": False,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    },
    "qwen3_moe": {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "num_experts": 4,
        "num_experts_per_tok": 1,
        "moe_intermediate_size": 10,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    },
    "olmoe": {
        "architectures": ["OlmoeForCausalLM"],
        "model_type": "olmoe",
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "norm_topk_prob": False,
        "clip_qkv": None,
    },
    "gpt_oss": {
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "attention_bias": True,
        "num_local_experts": 3,
        "num_experts_per_tok": 2,
        "sliding_window": 7,
        "layer_types": ["sliding_attention", "full_attention"],
        "swiglu_limit": 7.0,
    },
    "deepseek_v3": {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "num_key_value_heads": 4,
        "q_lora_rank": 7,
        "kv_lora_rank": 9,
        "qk_nope_head_dim": 4,
        "qk_rope_head_dim": 6,
        "v_head_dim": 8,
        "n_routed_experts": 6,
        "num_experts_per_tok": 2,
        "n_shared_experts": 2,
        "moe_intermediate_size": 11,
        "n_group": 3,
        "topk_group": 2,
        "first_k_dense_replace": 0,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "norm_topk_prob": True,
    },
}

GPT2 = {
    "architectures": ["GPT2LMHeadModel"],
    "model_type": "gpt2",
    "activation_function": "gelu_new",
    "n_embd": 36,
    "n_inner": 80,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 96,
    "vocab_size": 257,
    "layer_norm_epsilon": 1e-6,
    "attn_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "resid_pdrop": 0.0,
    "bos_token_id": 11,
    "eos_token_id": 12,
    "tie_word_embeddings": True,
}


LATENT = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")


def mixture_shapes(config):
    """{name: shape} of the experts of a layer, and of what is beside them."""
    mixtral, hidden = config.get("model_type") == "mixtral", config["hidden_size"]
    width, shared = config.get("moe_intermediate_size", config["intermediate_size"]), config.get("shared_expert_intermediate_size")
    module, names = ("block_sparse_moe", ("w1", "w3", "w2")) if mixtral else ("mlp", ("gate_proj", "up_proj", "down_proj"))
    experts = config.get("num_local_experts" if mixtral else "num_experts", 0)
    found = {f"{module}.gate.weight": [experts, hidden]}
    modules = [(f"{module}.experts.{e}", width) for e in range(experts)] + ([("mlp.shared_expert", shared)] if shared else [])
    for expert, columns in modules:
        found.update({f"{expert}.{name}.weight": [columns, hidden] for name in names[:2]})
        found[f"{expert}.{names[2]}.weight"] = [hidden, columns]
    return {**found, "mlp.shared_expert_gate.weight": [1, hidden]} if shared else found


def latent_shapes(config):
    """What own_shapes() returns, of DeepSeek V3."""
    hidden, heads, width = config["hidden_size"], config["num_attention_heads"], config["moe_intermediate_size"]
    q, kv, still, turned, v = (config[key] for key in LATENT)
    experts, shared = config["n_routed_experts"], "mlp.shared_experts"
    found = {"self_attn.q_a_proj.weight": [q, hidden], "self_attn.q_a_layernorm.weight": [q],
             "self_attn.q_b_proj.weight": [heads * (still + turned), q],
             "self_attn.kv_a_proj_with_mqa.weight": [kv + turned, hidden], "self_attn.kv_a_layernorm.weight": [kv],
             "self_attn.kv_b_proj.weight": [heads * (still + v), kv], "self_attn.o_proj.weight": [hidden, heads * v],
             "mlp.gate.weight": [experts, hidden], "mlp.gate.e_score_correction_bias": [experts]}
    for module, columns in [(f"mlp.experts.{e}", width) for e in range(experts)] + [(shared, config["n_shared_experts"] * width)]:
        found.update({f"{module}.{name}_proj.weight": [columns, hidden] for name in ("gate", "up")})
        found[f"{module}.down_proj.weight"] = [hidden, columns]
    return tuple(f"{module}_proj.weight" for module in
                 ("self_attn.q", "self_attn.k", "self_attn.v", "mlp.gate", "mlp.up", "mlp.down")), found


def own_shapes(config):
    """(names of a Llama's layer that a family lacks, {name: shape} of what its layers have instead or besides)."""
    if "kv_lora_rank" in config:
        return latent_shapes(config)
    hidden, inner, head_dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, keys = head_dim * config["num_attention_heads"], head_dim * config["num_key_value_heads"]
    behind, gate, inputs = "post_feedforward_layernorm.weight", ("mlp.gate_proj.weight",), ("input_layernorm.weight",)
    fused = {"mlp.gate_up_proj.weight": [2 * inner, hidden]}
    each = {"self_attn.q_norm.weight": [head_dim], "self_attn.k_norm.weight": [head_dim]}
    wide = {"self_attn.q_norm.weight": [queries], "self_attn.k_norm.weight": [keys], behind: [hidden]}
    gemma = {behind: [hidden], "pre_feedforward_layernorm.weight": [hidden]}
    xielu = {f"mlp.act_fn.{name}": shape for name, shape in (("alpha_p", [1]), ("alpha_n", [1]), ("beta", []), ("eps", []))}
    qkv = tuple(f"self_attn.{which}_proj.weight" for which in "qkv")
    biases = {"self_attn.q_proj": queries, "self_attn.k_proj": keys, "self_attn.v_proj": keys, "self_attn.o_proj": hidden,
              "mlp.c_fc": inner, "mlp.c_proj": hidden, "input_layernorm": hidden, "post_attention_layernorm": hidden}
    dense = (*gate, "mlp.up_proj.weight", "mlp.down_proj.weight")
    mixture, count = mixture_shapes(config), config.get("num_local_experts", 0)
    fused_experts = {"gate_up_proj": [hidden, 2 * inner], "gate_up_proj_bias": [2 * inner], "down_proj": [inner, hidden],
                     "down_proj_bias": [hidden]}
    return {
        "gpt_oss": (dense, {"self_attn.sinks": [config["num_attention_heads"]], "mlp.router.weight": [count, hidden],
                            "mlp.router.bias": [count],
                            **{f"mlp.experts.{name}": [count, *shape] for name, shape in fused_experts.items()}}),
        "mixtral": (dense, mixture),
        "qwen2_moe": (dense, mixture),
        "qwen3_moe": (dense, {**mixture, **each}),
        "olmoe": (dense, {**mixture, "self_attn.q_norm.weight": [queries], "self_attn.k_norm.weight": [keys]}),
        "gemma2": ((), gemma),
        "gemma3_text": ((), {**gemma, **each}),
        "phi3": ((*qkv, *gate, "mlp.up_proj.weight"), {"self_attn.qkv_proj.weight": [queries + 2 * keys, hidden], **fused}),
        "olmo2": (inputs, wide),
        "olmo3": (inputs, wide),
        "glm": ((*gate, "mlp.up_proj.weight", "self_attn.o_proj.bias"), fused),
        "glm4": ((*gate, "mlp.up_proj.weight"),
                 {**fused, "post_self_attn_layernorm.weight": [hidden], "post_mlp_layernorm.weight": [hidden]}),
        "apertus": ((*gate, *inputs, "post_attention_layernorm.weight"),
                    {"attention_layernorm.weight": [hidden], "feedforward_layernorm.weight": [hidden], **each, **xielu}),
        "starcoder2": ((*gate, "mlp.up_proj.weight", "mlp.down_proj.weight"),
                       {"mlp.c_fc.weight": [inner, hidden], "mlp.c_proj.weight": [hidden, inner],
                        **{f"{name}.bias": [width] for name, width in biases.items()}}),
    }.get(config.get("model_type"), ((), {}))


def shapes(config):
    """{name: shape} of the tensors of a model."""
    if config.get("model_type") == "gpt2":
        return gpt2_shapes(config["n_embd"], config["n_inner"])
    found, (without, own) = hf.shapes({"head_dim": 0, **config}), own_shapes(config)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        found = {name: shape for name, shape in found.items() if name not in {prefix + lacks for lacks in without}}
        found.update({prefix + name: shape for name, shape in own.items()})
    if config.get("norm_epsilon"):
        found["model.norm.bias"] = found["model.norm.weight"]
    return found


def gpt2_shapes(hidden, inner):
    norm = {"weight": [hidden], "bias": [hidden]}
    layer = {"ln_1": norm, "ln_2": norm, "attn.c_attn": {"weight": [hidden, 3 * hidden], "bias": [3 * hidden]},
             "attn.c_proj": {"weight": [hidden, hidden], "bias": [hidden]},
             "mlp.c_fc": {"weight": [hidden, inner], "bias": [inner]},
             "mlp.c_proj": {"weight": [inner, hidden], "bias": [hidden]}}
    modules = {f"h.{number}.{name}": shapes for number in range(2) for name, shapes in layer.items()}
    modules.update({"wte": {"weight": [257, hidden]}, "wpe": {"weight": [96, hidden]}, "ln_f": norm})
    return {f"transformer.{module}.{name}": shape for module, of in modules.items() for name, shape in of.items()}


def tensors_of(config):
    """Drawn; buffers have the values that all models have."""
    constants = {"beta": 0.5, "eps": -1e-6}
    found = hf.draw_tensors(shapes(config), "F32")
    for name in found:
        if name.rpartition(".")[2] in constants:
            found[name] = ("F32", [], hf.encode([constants[name.rpartition(".")[2]]], "F32"))
    return found


class Families(hf.Models):
    """What the other families have besides."""

    @staticmethod
    def config(family):
        if family == "gpt2":
            return GPT2
        config = {**hf.CONFIG, **FAMILIES[family]}
        if "norm_epsilon" in config:
            del config["rms_norm_eps"]
        if "kv_lora_rank" in config:
            del config["head_dim"]
        return config

    def make(self, family, folder, without=()):
        config = self.config(family)
        tensors = {n: t for n, t in tensors_of(config).items() if n not in without}
        (self.write_model(folder, tensors) / "config.json").write_text(json.dumps(config))
        return tensors

    def test_what_was_read_is_written(self):
        for name in (*FAMILIES, "gpt2"):
            with self.subTest(family=name):
                tensors = self.make(name, name)
                exported = self.export(self.still(f"still_{name}", name), f"export_{name}")
                self.assertEqual(hf.read_folder(exported), tensors, name)
                config = json.loads((exported / "config.json").read_text())
                for key, value in self.config(name).items():
                    self.assertEqual(config[key], value, f"{name}: {key}")

    def test_layers_that_predict_further_tokens_are_left_out(self):
        further = {"model.layers.2.eh_proj.weight": tensors_of(self.config("qwen3"))["lm_head.weight"]}
        for family, layers in (("deepseek_v3", 1), ("qwen3", 0)):
            tensors = tensors_of(self.config(family))
            folder = self.write_model(f"further_{family}", {**tensors, **further})
            config = {**self.config(family), "num_nextn_predict_layers": layers}
            (folder / "config.json").write_text(json.dumps(config))
        still = self.still("still_further", "further_deepseek_v3", overrides={"precision.preset": "bf16"})
        exported = self.export(still, "export_further", "--dtype", "fp32")
        read = tensors_of(self.config("deepseek_v3"))
        self.assertEqual(hf.read_folder(exported), read)
        # In bf16 a bias of the choice is fp32 in memory, in checkpoints and in files.
        wide = {name: tensor for name, tensor in hf.read_folder(self.export(still, "export_bf16")).items() if tensor[0] == "F32"}
        self.assertEqual(wide, {name: tensor for name, tensor in read.items() if name.endswith("e_score_correction_bias")})
        self.assertEqual(json.loads((exported / "config.json").read_text())["num_nextn_predict_layers"], 0)
        result = zt.run(0, ["check", self.deck, "--model.from=further_qwen3"])
        self.assert_refused(result, r"1 tensor is unexpected:\n    model\.layers\.2\.eh_proj\.weight")

    def test_missing_tensors_are_listed(self):
        layer = "model.layers.0."
        for name, without in (
            ("biases", [f"{layer}self_attn.q_proj.bias", f"{layer}self_attn.o_proj.bias"]),
            ("qwen2", [f"{layer}self_attn.k_proj.bias"]),
            ("qwen3", [f"{layer}self_attn.q_norm.weight", f"{layer}self_attn.k_norm.weight"]),
            ("gemma3", [f"{layer}pre_feedforward_layernorm.weight"]),
            ("phi3", [f"{layer}self_attn.qkv_proj.weight", f"{layer}mlp.gate_up_proj.weight"]),
            ("olmo2", [f"{layer}self_attn.q_norm.weight", f"{layer}self_attn.k_norm.weight"]),
            ("glm4", [f"{layer}post_self_attn_layernorm.weight"]),
            ("apertus", [f"{layer}mlp.act_fn.alpha_p"]),
            ("starcoder2", [f"{layer}mlp.c_fc.bias"]),
            ("mixtral", [f"{layer}block_sparse_moe.experts.1.w3.weight"]),
            ("qwen2_moe", [f"{layer}mlp.experts.4.down_proj.weight", f"{layer}mlp.shared_expert_gate.weight"]),
            ("gpt_oss", [f"{layer}self_attn.sinks", f"{layer}mlp.experts.down_proj_bias"]),
            ("gpt2", ["transformer.h.0.attn.c_attn.weight", "transformer.h.0.mlp.c_proj.bias"]),
        ):
            with self.subTest(family=name):
                self.make(name, f"{name}_cut", without)
                result = zt.run(0, ["check", self.deck, f"--model.from={name}_cut"])
                self.assert_refused(result, rf"{len(without)} tensors? (is|are) missing:", *(tensor.replace(".", r"\.") for tensor in without))

    def test_a_family_decides_what_is_there(self):
        """A Llama's weights in a folder that says Qwen 3, and the reverse."""
        self.write_model("renamed", self.tensors, config=FAMILIES["qwen3"])
        result = zt.run(0, ["check", self.deck, "--model.from=renamed"])
        self.assert_refused(result, r"4 tensors are missing:\n(    .*\n)*    .*layers\.0\.self_attn\.k_norm\.weight")
        tensors = tensors_of(self.config("qwen2"))
        self.write_model("biased", tensors)
        result = zt.run(0, ["check", self.deck, "--model.from=biased"])
        self.assert_refused(result, r"6 tensors are unexpected:\n(    .*\n)*    .*layers\.0\.self_attn\.k_proj\.bias")


if __name__ == "__main__":
    zt.main()
