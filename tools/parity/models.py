"""Small random models of the families, as transformers makes them: those that are compared live, and the golden ones."""
import dataclasses

import torch
import transformers

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16
SHORT = {F32: "fp32", BF16: "bf16", F16: "fp16"}

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
BASE = {"vocab_size": 331, "hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 4, "rms_norm_eps": 1e-5, "initializer_range": 0.08,
        "tie_word_embeddings": False, "max_position_embeddings": 256}
# What the config classes of single families know besides.
OWN_KEYS = ("head_dim", "attention_bias", "mlp_bias", "use_sliding_window", "sliding_window", "max_window_layers",
            "layer_types")
GROUPED, TIED = {"num_key_value_heads": 2}, {"tie_word_embeddings": True}
LATER_WINDOWS = {"use_sliding_window": True, "sliding_window": 10, "max_window_layers": 1}

# What gets adapters: last parts of names, and, where there is a dot, a pattern of whole ones.
ADAPTED = {
    "Llama": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    "Mistral": ["q_proj", "v_proj", "gate_proj"],
    "Qwen2": ["v_proj", "down_proj", "model.layers.1.self_attn.o_proj"],
    "Qwen3": ["k_proj", "o_proj", "model.layers.0.mlp.*"],
}


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    family: str                         # as transformers spells it
    changes: dict                       # what differs from BASE
    theta: float
    scaling: dict | None = None
    dtype: torch.dtype = F32            # of the saved weights

    def make(self):
        """The same weights whenever it is called."""
        rope = {"rope_theta": self.theta, **(self.scaling or {"rope_type": "default"})}
        torch.manual_seed(7)
        dims = {**BASE, **self.changes}
        if int(transformers.__version__.split(".")[0]) >= 5:
            config = self.of_family("Config")(**dims, rope_parameters=rope)
        else:
            config = self.of_family("Config")(**dims, rope_theta=self.theta, rope_scaling=self.scaling)
        model = self.of_family("ForCausalLM")(config)
        with torch.no_grad():   # norms that are not all ones, biases that are not zero
            for parameter in model.parameters():
                if parameter.dim() == 1:
                    parameter.add_(0.2 * torch.randn_like(parameter))
        return model.to(self.dtype)

    def of_family(self, what):
        return getattr(transformers, self.family + what)

    @property
    def vocabulary(self):
        return {**BASE, **self.changes}["vocab_size"]


MODELS = [
    Model("like Llama 2", "Llama", {}, 1e4),
    Model("like Llama 3: grouped queries", "Llama", GROUPED, 5e5),
    Model("like Llama 3.1: scaled RoPE", "Llama", GROUPED, 5e5, LLAMA3),
    Model("like Llama 3.2: tied, bf16", "Llama", {"num_key_value_heads": 1, **TIED}, 5e5, LLAMA3, BF16),
    Model("odd dims, head_dim of its own", "Llama", {"hidden_size": 72, "head_dim": 20, "intermediate_size": 100}, 1e4,
          dtype=F16),
    Model("Llama with biases", "Llama", {"attention_bias": True, **GROUPED}, 1e4),
    Model("like Mistral 0.1: window 10", "Mistral", {"sliding_window": 10, **GROUPED}, 1e4),
    Model("like Mistral 0.3: no window", "Mistral", {"sliding_window": None, **GROUPED}, 1e6, dtype=BF16),
    Model("like Qwen 2.5", "Qwen2", GROUPED, 1e6),
    Model("like Qwen 2.5: tied, bf16", "Qwen2", {**GROUPED, **TIED}, 1e6, dtype=BF16),
    Model("Qwen 2, windows after layer 1", "Qwen2", {**GROUPED, **LATER_WINDOWS, "num_hidden_layers": 3}, 1e6),
    Model("like Qwen 3: tied, bf16", "Qwen3", {**GROUPED, **TIED, "head_dim": 24}, 1e6, dtype=BF16),
    Model("like Qwen 3", "Qwen3", {**GROUPED, "head_dim": 24}, 1e6),
    Model("Qwen 3, biases and windows", "Qwen3", {**GROUPED, **LATER_WINDOWS, "attention_bias": True, "head_dim": 16},
          1e6),
]

# Small enough for the repository. With the first one's theta some wavelengths are between those that are stretched and
# those that are not.
TINY = {"vocab_size": 61, "hidden_size": 16, "num_key_value_heads": 2, "initializer_range": 0.5}
GOLDEN = [
    Model("llama", "Llama", {**TINY, **TIED, "intermediate_size": 40, "head_dim": 8}, 1e2, LLAMA3),
    Model("mistral", "Mistral", {**TINY, "intermediate_size": 24, "sliding_window": 9}, 1e4),
    Model("qwen2", "Qwen2", {**TINY, **TIED, **LATER_WINDOWS, "intermediate_size": 24}, 1e4),
    Model("qwen3", "Qwen3", {**TINY, "intermediate_size": 24, "head_dim": 6}, 1e4),
]
