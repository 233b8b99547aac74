"""Small random models of the families, as transformers makes them: those that are compared live, and the golden ones."""
import dataclasses

import torch
import transformers

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16
SHORT = {F32: "fp32", BF16: "bf16", F16: "fp16"}

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
LINEAR = {"rope_type": "linear", "factor": 4.0}
DYNAMIC = {"rope_type": "dynamic", "factor": 4.0}
# With a theta of 10, wavelengths of a small head are between those that are stretched and those that are not.
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
BASE = {"vocab_size": 331, "hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 4, "rms_norm_eps": 1e-5, "initializer_range": 0.08,
        "tie_word_embeddings": False, "max_position_embeddings": 256}
# What the config classes of single families know besides.
OWN_KEYS = ("head_dim", "attention_bias", "mlp_bias", "use_bias", "use_sliding_window", "sliding_window",
            "max_window_layers", "layer_types", "no_rope_layers", "hidden_act", "hidden_activation",
            "activation_function", "norm_epsilon", "layer_norm_epsilon", "n_inner", "query_pre_attn_scalar",
            "attn_logit_softcapping", "final_logit_softcapping", "embedding_multiplier", "residual_multiplier",
            "attention_multiplier", "logits_scaling", "original_max_position_embeddings", "num_experts",
            "num_local_experts", "num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size",
            "norm_topk_prob", "router_aux_loss_coef", "decoder_sparse_step", "mlp_only_layers", "qkv_bias", "clip_qkv",
            "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "n_routed_experts",
            "n_shared_experts", "routed_scaling_factor", "n_group", "topk_group", "topk_method", "first_k_dense_replace")
GROUPED, TIED = {"num_key_value_heads": 2}, {"tie_word_embeddings": True}
LATER_WINDOWS = {"use_sliding_window": True, "sliding_window": 10, "max_window_layers": 1}
# Tokens that end a text are not among these small vocabularies, and a padding token's row of the embedding would get
# no gradient in PyTorch.
NO_TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
SLIDING, FULL = "sliding_attention", "full_attention"
GPT2_KEYS = {"hidden_size": "n_embd", "intermediate_size": "n_inner", "num_hidden_layers": "n_layer",
              "num_attention_heads": "n_head", "max_position_embeddings": "n_positions",
              "rms_norm_eps": "layer_norm_epsilon", "num_key_value_heads": None}
GPT2_NAMES = (("transformer.h.", "model.layers."), ("transformer.wte.", "model.embed_tokens."),
              ("transformer.ln_f.", "model.norm."), (".ln_1.", ".input_layernorm."),
              (".ln_2.", ".post_attention_layernorm."), (".attn.c_proj.", ".self_attn.o_proj."))
NO_DROPOUT = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}

# What models of single families have. Caps and windows are small beside scores and texts here, so that they count.
MIXED = {"layer_types": [SLIDING, FULL], "sliding_window": 9}
GEMMA3 = {**GROUPED, **TIED, **MIXED, "head_dim": 24, "query_pre_attn_scalar": 30}
GEMMA2 = {**GEMMA3, "attn_logit_softcapping": 1.5, "final_logit_softcapping": 2.5}
MULTIPLIERS = {"embedding_multiplier": 6.0, "residual_multiplier": 0.4, "attention_multiplier": 0.08,
               "logits_scaling": 2.5}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 3}
# Large enough for the loss that balances experts to count beside the tokens' own.
COEFFICIENT = {"router_aux_loss_coef": 0.3}
MOE = {**EXPERTS, **COEFFICIENT, "moe_intermediate_size": 40}
MIXTRAL = {**COEFFICIENT, "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 24}
GPT_OSS = {**GROUPED, **MIXED, **MIXTRAL, "attention_bias": True}
LATENT = {"q_lora_rank": 20, "kv_lora_rank": 12, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 14}
DEEPSEEK = {**LATENT, "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 40, "n_shared_experts": 2,
            "n_group": 4, "topk_group": 2, "routed_scaling_factor": 1.7, "first_k_dense_replace": 1}
WHOLE_LATENT = {"q_lora_rank": None, "n_group": None, "topk_group": None, "topk_method": "greedy"}
# Of all runs but those that compare it. transformers leaves the loss out unless it is asked for the routers' logits.
UNBALANCED = {"experts.balance": "none"}
MOVED = {"experts.balance": "sequence", "model.router_aux_loss_coef": 0.1, "experts.bias_update_speed": 0.05}
HALF, THREE_QUARTERS = {"rope_type": "default", "partial_rotary_factor": 0.5}, {"partial_rotary_factor": 0.75}


def longrope(pairs, **more):
    return {"rope_type": "longrope", "short_factor": [1.0 + 0.1 * i for i in range(pairs)],
            "long_factor": [2.0 + 0.7 * i for i in range(pairs)], **more}


@dataclasses.dataclass(frozen=True)
class Family:
    """What is its own: names of classes and of keys of BASE (None: it has no such key), and what all its models have."""
    config: str
    model: str
    # What gets adapters: last parts of names, and, with a dot, patterns of whole ones. Empty: PEFT would have to have
    # those of three layers in one.
    adapted: list
    keys: dict = dataclasses.field(default_factory=dict)
    always: dict = dataclasses.field(default_factory=lambda: NO_TOKENS)
    whole: str = "q_proj"           # a projection that is a tensor of its own, not part of a larger one
    # What ztrain calls parameters: each pair is replaced in transformers' names.
    renamed: tuple = ()
    deck: dict = dataclasses.field(default_factory=dict)    # deck keys of all its runs
    # Of the run "moved", in which biases of the choice follow the load.
    moved: dict = dataclasses.field(default_factory=dict)


def family(name, adapted, **more):
    return Family(name + "Config", name + "ForCausalLM", adapted, **more)


# PEFT's target_parameters, which ztrain takes in lora.targets.
ADAPTED_EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]

FAMILIES = {
    "Llama": family("Llama", ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"], always={}),
    "Mistral": family("Mistral", ["q_proj", "v_proj", "gate_proj"], always={}),
    "Qwen2": family("Qwen2", ["v_proj", "down_proj", "model.layers.1.self_attn.o_proj"], always={}),
    "Qwen3": family("Qwen3", ["k_proj", "o_proj", "model.layers.0.mlp.*"], always={}),
    "Gemma2": family("Gemma2", ["q_proj", "o_proj", "gate_proj"]),
    "Gemma3": Family("Gemma3TextConfig", "Gemma3ForCausalLM", ["k_proj", "v_proj", "up_proj"]),
    "Phi3": family("Phi3", ["o_proj", "down_proj"], whole="o_proj"),
    "Olmo2": family("Olmo2", ["q_proj", "k_proj", "down_proj"]),
    "Olmo3": family("Olmo3", ["q_proj", "v_proj", "gate_proj"]),
    "SmolLM3": family("SmolLM3", ["q_proj", "k_proj", "up_proj"]),
    "Glm": family("Glm", ["q_proj", "v_proj", "down_proj"], always={**NO_TOKENS, "eos_token_id": [2, 3]}),
    "Glm4": family("Glm4", ["k_proj", "o_proj", "down_proj"], always={**NO_TOKENS, "eos_token_id": [2, 3]}),
    "Granite": family("Granite", ["q_proj", "v_proj", "gate_proj", "down_proj"]),
    "Ministral": family("Ministral", ["q_proj", "v_proj", "gate_proj"]),
    "Apertus": family("Apertus", ["q_proj", "k_proj", "up_proj", "down_proj"]),
    "Starcoder2": family("Starcoder2", ["q_proj", "v_proj", "c_fc"], keys={"rms_norm_eps": "norm_epsilon"}),
    "Mixtral": family("Mixtral", ["q_proj", "v_proj", *ADAPTED_EXPERTS], deck=UNBALANCED),
    "Qwen2Moe": family("Qwen2Moe", ["q_proj", "o_proj", "gate_proj", "down_proj"], deck=UNBALANCED),
    "Qwen3Moe": family("Qwen3Moe", ["k_proj", "o_proj", ADAPTED_EXPERTS[1]], deck=UNBALANCED),
    "Olmoe": family("Olmoe", ADAPTED_EXPERTS[:1], deck=UNBALANCED),
    "GptOss": family("GptOss", ["q_proj", "v_proj", "o_proj", *ADAPTED_EXPERTS], deck=UNBALANCED),
    "DeepseekV2": family("DeepseekV2", ["kv_b_proj", "o_proj"], whole="kv_b_proj", deck=UNBALANCED),
    "DeepseekV3": family("DeepseekV3", ["q_b_proj", "kv_a_proj_with_mqa", "model.layers.*.mlp.experts.*"],
                         whole="q_b_proj", deck=UNBALANCED, moved=MOVED),
    "GPT2": Family("GPT2Config", "GPT2LMHeadModel", [], GPT2_KEYS, {**NO_TOKENS, **NO_DROPOUT},
                   whole="o_proj", renamed=GPT2_NAMES),
}


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    family: str                         # of FAMILIES
    changes: dict                       # what differs from BASE
    theta: float | None                 # None: the family has no rotary embedding
    scaling: dict | None = None
    dtype: torch.dtype = F32            # of the saved weights
    local_theta: float | None = None    # of layers with windows; then the others alone are scaled
    adapted: tuple = ()                 # instead of the family's
    by_length: bool = False             # transformers turns by the length of each sequence, ztrain by data.sequence
    magnitudes: bool = False            # adapters are compared with magnitudes too (DoRA)
    quantizes: bool = False             # adapters are compared beside a base in few bits too
    balanced: bool = False              # golden: windows are trained with the loss that balances experts

    def make(self):
        """The same weights whenever it is called."""
        torch.manual_seed(7)
        config = getattr(transformers, self.about.config)(**self.keys(), **self.rope())
        model = getattr(transformers, self.about.model)(config)
        with torch.no_grad():   # norms that are not all ones, biases that are not zero
            for name, parameter in model.named_parameters():
                if parameter.dim() == 1 or name.endswith("_bias"):
                    parameter.add_(0.2 * torch.randn_like(parameter))
            for name, buffer in model.named_buffers():
                if name.endswith("e_score_correction_bias"):
                    buffer.add_(0.2 * torch.randn_like(buffer))
        return model.to(self.dtype)

    def keys(self):
        names = self.about.keys
        renamed = {names.get(key, key): value for key, value in {**BASE, **self.changes}.items()}
        return {key: value for key, value in {**self.about.always, **renamed}.items() if key is not None}

    def rope(self):
        if self.theta is None:
            return {}
        scaling = self.scaling or {"rope_type": "default"}
        if int(transformers.__version__.split(".")[0]) < 5:
            return {"rope_theta": self.theta, "rope_scaling": self.scaling}
        whole = {"rope_theta": self.theta, **scaling}
        if self.local_theta is not None:
            whole = {FULL: whole, SLIDING: {"rope_theta": self.local_theta, "rope_type": "default"}}
        return {"rope_parameters": whole}

    @property
    def about(self):
        return FAMILIES[self.family]

    @property
    def targets(self):
        return list(self.adapted) or self.about.adapted

    def our_name(self, name):
        for theirs, ours in self.about.renamed:
            name = name.replace(theirs, ours)
        return name

    @property
    def vocabulary(self):
        return {**BASE, **self.changes}["vocab_size"]


MODELS = [
    Model("like Llama 2", "Llama", {}, 1e4, quantizes=True),
    Model("Llama in whole blocks of 64", "Llama", {**GROUPED, "intermediate_size": 192}, 1e4, quantizes=True,
          magnitudes=True),
    Model("like Llama 3: grouped queries", "Llama", GROUPED, 5e5),
    Model("like Llama 3.1: scaled RoPE", "Llama", GROUPED, 5e5, LLAMA3),
    Model("like Llama 3.2: tied, bf16", "Llama", {"num_key_value_heads": 1, **TIED}, 5e5, LLAMA3, BF16, quantizes=True),
    Model("odd dims, head_dim of its own", "Llama", {"hidden_size": 72, "head_dim": 20, "intermediate_size": 100}, 1e4,
          dtype=F16, quantizes=True),
    Model("Llama with biases", "Llama", {"attention_bias": True, **GROUPED}, 1e4, quantizes=True, magnitudes=True),
    Model("Llama, linear scaling", "Llama", GROUPED, 1e4, LINEAR),
    Model("Llama, longrope, own factor", "Llama", GROUPED, 1e4, longrope(8, original_max_position_embeddings=64,
                                                                              attention_factor=0.8, factor=4.0)),
    Model("Llama, YaRN with mscales", "Llama", GROUPED, 10.0, {**YARN, "mscale": 0.7, "mscale_all_dim": 1.4}),
    Model("like Mistral 0.1: window 10", "Mistral", {"sliding_window": 10, **GROUPED}, 1e4),
    Model("like Mistral 0.3: no window", "Mistral", {"sliding_window": None, **GROUPED}, 1e6, dtype=BF16),
    Model("like Qwen 2.5", "Qwen2", GROUPED, 1e6, quantizes=True, magnitudes=True),
    Model("like Qwen 2.5: tied, bf16", "Qwen2", {**GROUPED, **TIED}, 1e6, dtype=BF16),
    Model("like Qwen 2.5 for long texts", "Qwen2", GROUPED, 10.0, YARN),
    Model("Qwen 2, windows after layer 1", "Qwen2", {**GROUPED, **LATER_WINDOWS, "num_hidden_layers": 3}, 1e6),
    Model("like Qwen 3: tied, bf16", "Qwen3", {**GROUPED, **TIED, "head_dim": 24}, 1e6, dtype=BF16),
    Model("like Qwen 3", "Qwen3", {**GROUPED, "head_dim": 24}, 1e6),
    Model("Qwen 3, biases and windows", "Qwen3", {**GROUPED, **LATER_WINDOWS, "attention_bias": True, "head_dim": 16},
          1e6),
    Model("Qwen 3, YaRN, own factor", "Qwen3", {**GROUPED, "head_dim": 24}, 10.0,
          {**YARN, "attention_factor": 1.4, "beta_fast": 6.0, "beta_slow": 0.5, "truncate": False}),
    Model("like Gemma 2", "Gemma2", GEMMA2, 1e4),
    Model("like Gemma 2: odd dims, bf16", "Gemma2", {**GEMMA2, "hidden_size": 72, "head_dim": 20}, 1e4, dtype=BF16),
    Model("like Gemma 3", "Gemma3", GEMMA3, 1e6, LINEAR, local_theta=1e4),
    Model("like Gemma 3 1B: not scaled, bf16", "Gemma3", {**GEMMA3, "num_key_value_heads": 1}, 1e6, dtype=BF16,
          local_theta=1e4),
    Model("like Phi 3: window 10", "Phi3", {**GROUPED, "sliding_window": 10}, 1e4),
    Model("like Phi 4 mini: longrope, bf16", "Phi3", {**GROUPED, **TIED, "original_max_position_embeddings": 64}, 1e4,
          longrope(6, **THREE_QUARTERS), BF16),
    Model("like OLMo 2", "Olmo2", GROUPED, 5e5),
    Model("like OLMo 3: YaRN, windows", "Olmo3", {**GROUPED, "sliding_window": 10, "num_hidden_layers": 4}, 10.0, YARN,
          local_theta=10.0),
    Model("like SmolLM 3: no RoPE in a layer", "SmolLM3", {**GROUPED, **TIED, "no_rope_layers": [1, 0, 1],
                                                          "num_hidden_layers": 3}, 2e6, dtype=BF16),
    Model("like GLM 4 chat", "Glm", {**GROUPED, "head_dim": 20}, 1e4, HALF, magnitudes=True),
    Model("like GLM 4 0414", "Glm4", {**GROUPED, "head_dim": 24}, 1e4, HALF),
    Model("like Granite 3: tied, bf16", "Granite", {**GROUPED, **TIED, **MULTIPLIERS}, 1e4, dtype=BF16),
    Model("like Granite 3", "Granite", {**GROUPED, **MULTIPLIERS}, 1e4),
    Model("like Ministral", "Ministral", {**GROUPED, **MIXED, "head_dim": 20}, 1e6),
    Model("like Apertus", "Apertus", GROUPED, 1e4, LLAMA3),
    Model("like Apertus: bf16", "Apertus", GROUPED, 1e4, LLAMA3, BF16),
    Model("like StarCoder 2: tied, window 10", "Starcoder2", {**GROUPED, **TIED, "sliding_window": 10}, 1e5),
    Model("StarCoder 2 without biases", "Starcoder2", {**GROUPED, "use_bias": False}, 1e5, magnitudes=True),
    Model("like Mixtral", "Mixtral", {**GROUPED, **MIXTRAL}, 1e6),
    Model("like Mixtral: tied, bf16, window 10", "Mixtral", {**GROUPED, **MIXTRAL, **TIED, "sliding_window": 10}, 1e6,
          dtype=BF16),
    Model("like Qwen 2 MoE", "Qwen2Moe", {**GROUPED, **MOE, "shared_expert_intermediate_size": 72}, 1e6),
    Model("Qwen 2 MoE, a dense layer, bf16", "Qwen2Moe", {**GROUPED, **MOE, "shared_expert_intermediate_size": 72,
                                                          "mlp_only_layers": [1], "num_hidden_layers": 3}, 1e6,
          dtype=BF16),
    Model("like Qwen 3 MoE", "Qwen3Moe", {**GROUPED, **MOE, "head_dim": 24, "norm_topk_prob": True}, 1e6),
    Model("Qwen 3 MoE, every other layer", "Qwen3Moe", {**GROUPED, **MOE, "decoder_sparse_step": 2}, 1e6),
    Model("like OLMoE", "Olmoe", {**EXPERTS, **COEFFICIENT}, 1e4),
    Model("like gpt-oss", "GptOss", GPT_OSS, 10.0, {**YARN, "truncate": False}),
    Model("like gpt-oss: not scaled, bf16", "GptOss", GPT_OSS, 1e4, dtype=BF16),
    Model("like DeepSeek V2", "DeepseekV2", {**DEEPSEEK, "topk_method": "group_limited_greedy"}, 10.0,
          {**YARN, "mscale": 0.7, "mscale_all_dim": 0.7}),
    Model("like DeepSeek V2 Lite: bf16", "DeepseekV2", {**DEEPSEEK, **WHOLE_LATENT}, 1e4, dtype=BF16),
    Model("like DeepSeek V3: odd dims", "DeepseekV3", {**DEEPSEEK, "qk_nope_head_dim": 13}, 10.0,
          {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}),
    Model("like GPT-2", "GPT2", TIED, None),
    Model("like GPT-2: bf16, own width", "GPT2", {**TIED, "intermediate_size": 100}, None, dtype=BF16),
]

# Small enough for the repository. With the first one's theta some wavelengths are between those that are stretched and
# those that are not.
TINY = {"vocab_size": 61, "hidden_size": 16, "num_key_value_heads": 2, "initializer_range": 0.5}
SMALL = {**TINY, "intermediate_size": 24}
FEW = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 12}
FEW_DEEPSEEK = {"q_lora_rank": 10, "kv_lora_rank": 8, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 5,
                "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 12, "n_shared_experts": 1,
                "n_group": 3, "topk_group": 2, "first_k_dense_replace": 1, "num_key_value_heads": 4}
FIRST_ADAPTED = ("q_proj", "v_proj", "down_proj")
GOLDEN = [
    Model("llama", "Llama", {**TINY, **TIED, "intermediate_size": 40, "head_dim": 8}, 1e2, LLAMA3,
          adapted=FIRST_ADAPTED, quantizes=True, magnitudes=True),
    Model("mistral", "Mistral", {**SMALL, "sliding_window": 9}, 1e4, adapted=FIRST_ADAPTED),
    Model("qwen2", "Qwen2", {**TINY, **TIED, **LATER_WINDOWS, "intermediate_size": 24}, 1e4, adapted=FIRST_ADAPTED,
          magnitudes=True),
    Model("qwen3", "Qwen3", {**SMALL, "head_dim": 6}, 1e4, adapted=FIRST_ADAPTED),
    Model("qwen2_dynamic", "Qwen2", {**SMALL, "max_position_embeddings": 32}, 1e2, DYNAMIC, by_length=True),
    Model("qwen3_yarn", "Qwen3", {**SMALL, "head_dim": 8}, 10.0, {**YARN, "attention_factor": 1.4}),
    Model("gemma2", "Gemma2", {**SMALL, **GEMMA2, "head_dim": 6, "query_pre_attn_scalar": 10,
                               "tie_word_embeddings": False}, 1e3),
    Model("gemma3", "Gemma3", {**SMALL, **GEMMA3, "head_dim": 8, "query_pre_attn_scalar": 12, "num_hidden_layers": 3,
                               "layer_types": [SLIDING, FULL, SLIDING], "initializer_range": 0.2}, 1e3, LINEAR,
          local_theta=1e2),
    Model("phi3", "Phi3", {**SMALL, "sliding_window": 9}, 1e3),
    Model("phi3_long", "Phi3", {**SMALL, **TIED, "num_attention_heads": 2, "num_key_value_heads": 1,
                                "original_max_position_embeddings": 16}, 1e2, longrope(3, **THREE_QUARTERS),
          by_length=True),
    Model("olmo2", "Olmo2", SMALL, 1e3),
    Model("olmo3", "Olmo3", {**SMALL, **MIXED}, 10.0, YARN, local_theta=10.0),
    Model("smollm3", "SmolLM3", {**SMALL, **TIED, "no_rope_layers": [1, 0]}, 1e3),
    Model("glm", "Glm", {**SMALL, "head_dim": 8}, 1e2, HALF),
    Model("glm4", "Glm4", {**SMALL, "head_dim": 12}, 1e2, HALF, magnitudes=True),
    Model("granite", "Granite", {**SMALL, **MULTIPLIERS, "attention_multiplier": 0.3}, 1e3),
    Model("ministral", "Ministral", {**SMALL, **MIXED, "head_dim": 6}, 1e3),
    Model("apertus", "Apertus", SMALL, 1e2, LLAMA3),
    Model("starcoder2", "Starcoder2", {**SMALL, **TIED, "sliding_window": 9}, 1e3, magnitudes=True),
    Model("mixtral", "Mixtral", {**SMALL, **MIXTRAL, "head_dim": 8}, 1e3, balanced=True),
    Model("qwen2_moe", "Qwen2Moe", {**SMALL, **FEW, "shared_expert_intermediate_size": 12}, 1e3),
    Model("qwen3_moe", "Qwen3Moe", {**SMALL, **FEW, "head_dim": 6, "norm_topk_prob": True, "mlp_only_layers": [0]}, 1e3),
    Model("olmoe", "Olmoe", {**SMALL, "num_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 20}, 1e3),
    Model("gpt_oss", "GptOss", {**SMALL, **MIXED, **MIXTRAL, "head_dim": 8, "initializer_range": 0.3}, 10.0,
          {**YARN, "truncate": False}),
    Model("deepseek_v2", "DeepseekV2", {**SMALL, **FEW_DEEPSEEK, "q_lora_rank": None,
                                        "topk_method": "group_limited_greedy"}, 1e3),
    Model("deepseek_v3", "DeepseekV3", {**SMALL, **FEW_DEEPSEEK, "initializer_range": 0.3}, 10.0,
          {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}),
    Model("gpt2", "GPT2", {**SMALL, **TIED, "num_attention_heads": 2, "max_position_embeddings": 64}, None),
]
