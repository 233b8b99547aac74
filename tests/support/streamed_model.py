"""Writes a Llama model of any size as a Hugging Face folder, a block of random bf16 weights at a time."""

import json
import struct

import numpy as np

BLOCK = 1 << 22  # elements


def shapes(config):
    """{name: shape} of the tensors of a Llama model, in the order of its layers."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    keys = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    found = {"model.embed_tokens.weight": [config["vocab_size"], hidden]}
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        found[p + "input_layernorm.weight"] = found[p + "post_attention_layernorm.weight"] = [hidden]
        for name, shape in (
            ("self_attn.q_proj", [hidden, hidden]),
            ("self_attn.k_proj", [keys, hidden]),
            ("self_attn.v_proj", [keys, hidden]),
            ("self_attn.o_proj", [hidden, hidden]),
            ("mlp.gate_proj", [inner, hidden]),
            ("mlp.up_proj", [inner, hidden]),
            ("mlp.down_proj", [hidden, inner]),
        ):
            found[f"{p}{name}.weight"] = shape
    found["model.norm.weight"] = [hidden]
    found["lm_head.weight"] = [config["vocab_size"], hidden]
    return found


def count(shape):
    return int(np.prod(shape))


def config_of(hidden, inner, layers, heads, vocabulary, key_heads=None):
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads or heads,
        "vocab_size": vocabulary,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
    }


def blocks(tensors, seed):
    """Pairs (name, bf16 bits), tensor after tensor: norms are one, the others normal with deviation 0.02."""
    draw = np.random.Generator(np.random.SFC64(seed))
    for name, shape in tensors.items():
        left = count(shape)
        while left > 0:
            n = min(left, BLOCK)
            values = np.ones(n, "f4") if len(shape) == 1 else draw.standard_normal(n, "f4") * np.float32(0.02)
            values[values == 0] = 0.02  # an optimizer's step makes 0 of -0
            yield name, (values.view("u4") >> 16).astype("<u2")
            left -= n


def write(folder, config, file_bytes=2_000_000_000, seed=1):
    """Gives the bytes of the weights."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    tensors, files, total = shapes(config), [{}], 0
    for name, shape in tensors.items():
        if files[-1] and sum(map(count, files[-1].values())) * 2 + count(shape) * 2 > file_bytes:
            files.append({})
        files[-1][name] = shape
        total += count(shape) * 2
    names = [f"model-{f + 1:05}-of-{len(files):05}.safetensors" for f in range(len(files))]
    source = blocks(tensors, seed)
    for name, mine in zip(names, files):
        header, at = {"__metadata__": {"format": "pt"}}, 0
        for tensor, shape in mine.items():
            header[tensor] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + 2 * count(shape)]}
            at += 2 * count(shape)
        text = json.dumps(header).encode()
        with open(folder / name, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            while at > 0:
                bits = next(source)[1].tobytes()
                file.write(bits)
                at -= len(bits)
    weight_map = {tensor: name for name, mine in zip(names, files) for tensor in mine}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return total
