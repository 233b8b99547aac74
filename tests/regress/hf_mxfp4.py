"""A model of gpt-oss whose experts are in MXFP4 trains as one that holds their values, decoded here."""

import json

import hf_families as families
import hf_model as hf
import numpy as np
import ztrain_run as zt


def mxfp4(experts, rows, columns, seed):
    """Blocks and scales of a tensor in MXFP4, and its values. The lower half of a byte is the first of its two codes."""
    draw = np.random.default_rng(seed)
    scales = draw.integers(122, 126, (experts, rows, columns // 32), dtype=np.uint8)
    blocks = draw.integers(0, 256, (*scales.shape, 16), dtype=np.uint8)
    codes = np.stack([blocks & 15, blocks >> 4], axis=-1).reshape(*scales.shape, 32)
    positive = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    values = np.concatenate([positive, -positive])[codes] * np.exp2(scales - 127.0)[..., None]
    return blocks, scales, values.reshape(experts, rows, columns)


class Mxfp4(hf.Models):
    def test_experts_in_mxfp4_train_as_their_values(self):
        config = {**hf.CONFIG, **families.FAMILIES["gpt_oss"], "hidden_size": 64, "intermediate_size": 32}
        values, quantized = families.tensors_of(config), families.tensors_of(config)
        for layer in range(config["num_hidden_layers"]):
            for name, columns in (("gate_up_proj", 64), ("down_proj", 32)):
                tensor = f"model.layers.{layer}.mlp.experts.{name}"
                blocks, scales, decoded = mxfp4(3, 64, columns, layer)
                values[tensor] = ("F32", [3, columns, 64], decoded.transpose(0, 2, 1).astype("<f4").tobytes())
                del quantized[tensor]
                for what, codes in (("blocks", blocks), ("scales", scales)):
                    quantized[f"{tensor}_{what}"] = ("U8", list(codes.shape), codes.tobytes())
        runs = []
        for name, tensors, more in (("values", values, {}),
                                    ("mxfp4", quantized, {"quantization_config": {"quant_method": "mxfp4"}})):
            (self.write_model(name, tensors) / "config.json").write_text(json.dumps({**config, **more}))
            runs.append(self.train(2, f"from_{name}", {"model.from": name, "run.steps": 1}))
        self.assert_same(*(zt.losses(run) for run in runs))
        self.assert_same_tensors(*(run / "checkpoints" / "step_1" for run in runs))


if __name__ == "__main__":
    zt.main()
