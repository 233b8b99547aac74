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
}


class Families(hf.Models):
    """What the other families have besides."""

    def make(self, family, folder, without=()):
        config = {**hf.CONFIG, **FAMILIES[family]}
        tensors = {n: t for n, t in hf.make_tensors(config, "F32").items() if n not in without}
        self.write_model(folder, tensors, config=FAMILIES[family])
        return tensors

    def test_what_was_read_is_written(self):
        for name, changes in FAMILIES.items():
            tensors = self.make(name, name)
            exported = self.export(self.still(f"still_{name}", name), f"export_{name}")
            self.assertEqual(hf.read_folder(exported), tensors, name)
            config = json.loads((exported / "config.json").read_text())
            for key, value in {**hf.CONFIG, **changes}.items():
                self.assertEqual(config[key], value, f"{name}: {key}")

    def test_missing_tensors_are_listed(self):
        attention = "model.layers.0.self_attn."
        for name, without in (
            ("biases", ["q_proj.bias", "o_proj.bias"]),
            ("qwen2", ["k_proj.bias"]),
            ("qwen3", ["q_norm.weight", "k_norm.weight"]),
        ):
            self.make(name, f"{name}_cut", [attention + tensor for tensor in without])
            result = zt.run(0, ["check", self.deck, f"--model.from={name}_cut"])
            names = ", ".join(attention + tensor for tensor in without).replace(".", r"\.")
            self.assert_refused(result, rf"{len(without)} missing: {names}")

    def test_a_family_decides_what_is_there(self):
        """A Llama's weights in a folder that says Qwen 3, and the reverse."""
        self.write_model("renamed", self.tensors, config=FAMILIES["qwen3"])
        result = zt.run(0, ["check", self.deck, "--model.from=renamed"])
        self.assert_refused(result, r"4 missing: .*layers\.0\.self_attn\.k_norm\.weight")
        tensors = hf.make_tensors({**hf.CONFIG, **FAMILIES["qwen2"]}, "F32")
        self.write_model("biased", tensors)
        result = zt.run(0, ["check", self.deck, "--model.from=biased"])
        self.assert_refused(result, r"6 unexpected: .*layers\.0\.self_attn\.k_proj\.bias")


if __name__ == "__main__":
    zt.main()
