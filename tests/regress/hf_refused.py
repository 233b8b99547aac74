"""Folders of Hugging Face models that are broken or in another form: each is refused, with a message that says what to do."""

import json
import struct

import hf_model as hf
import ztrain_run as zt


class Broken(hf.Models):
    """Folders that are refused, each with one message, on 2 ranks."""

    def refused(self, name, *patterns, times=1):
        result = zt.run(2, [self.deck, f"--model.from={name}", f"--run.output={self.folder / 'refused'}"])
        self.assert_refused(result, *patterns, times=times)

    def test_missing_unexpected_and_misshapen_tensors(self):
        tensors = dict(self.tensors)
        del tensors["model.norm.weight"], tensors["model.layers.1.mlp.up_proj.weight"]
        tensors["model.layers.9.mlp.up_proj.weight"] = ("F32", [1], bytes(4))
        q = "model.layers.0.self_attn.q_proj.weight"
        tensors[q] = ("F32", [36, 40], tensors[q][2])
        self.write_model("wrong", tensors)
        self.refused(
            "wrong",
            rf"does not hold the {len(self.tensors)} tensors of the model:",
            r"2 tensors are missing:\n    model\.layers\.1\.mlp\.up_proj\.weight\n    model\.norm\.weight\n",
            r"1 tensor is unexpected:\n    model\.layers\.9\.mlp\.up_proj\.weight\n",
            r"1 tensor is of another shape:\n    model\.layers\.0\.self_attn\.q_proj\.weight \[36, 40\] \(the model's is \[40, 36\]\)",
        )

    def test_long_lists_are_cut(self):
        self.write_model("empty", {})
        count = len(self.tensors)
        self.refused("empty", rf"{count} tensors are missing:\n(    \S+\n){{11}}    and {count - 11} more, which the same command with --all names\n")
        said = zt.run(0, ["check", self.deck, "--model.from=empty", "--all"]).err
        self.assertEqual([name for name in self.tensors if f"\n    {name}\n" not in said], [])

    def test_nan_and_infinite_weights(self):
        for name, value in (("nan", float("nan")), ("infinite", float("-inf"))):
            tensors = dict(self.tensors)
            tensor = "model.layers.1.mlp.down_proj.weight"
            dtype, shape, data = tensors[tensor]
            tensors[tensor] = (dtype, shape, data[:-4] + struct.pack("<f", value))
            self.write_model(name, tensors)
            self.refused(name, r"model\.layers\.1\.mlp\.down_proj\.weight holds NaN or infinity")

    def test_integer_weights(self):
        tensors = dict(self.tensors)
        tensors["model.norm.weight"] = ("I32", [36], bytes(144))
        self.write_model("integers", tensors)
        self.refused("integers", r"model\.norm\.weight is I32: ztrain reads F64, F32, BF16 and F16")

    def test_truncated_and_missing_files(self):
        folder = self.write_model("cut", self.tensors, files=3)
        shard = folder / "model-00002-of-00003.safetensors"
        shard.write_bytes(shard.read_bytes()[:-1])
        self.refused("cut", r"model-00002-of-00003\.safetensors: .*truncated")
        shard.unlink()
        self.refused("cut", r"1 of the 3 files that it says weights are in is not there:\n  model-00002-of-00003\.safetensors\ngive a complete folder")
        for path in folder.glob("model*"):
            path.unlink()
        self.refused("cut", r"holds neither model\.safetensors nor model\.safetensors\.index\.json")
        (folder / "pytorch_model.bin").touch()
        self.refused("cut", r"it has pytorch_model\.bin, which only PyTorch reads: .*save_pretrained\('\S+/cut'\)")
        (folder / "config.json").unlink()
        self.refused("cut", r"'.*cut' is neither a Hugging Face model nor a checkpoint: it has no config\.json and no metadata")

    def test_an_index_that_lies(self):
        folder = self.write_model("lies", self.tensors, files=2)
        index = folder / "model.safetensors.index.json"
        weight_map = json.loads(index.read_text())["weight_map"]
        weight_map["model.norm.weight"], weight_map["lm_head.weight"] = sorted(set(weight_map.values()))
        index.write_text(json.dumps({"weight_map": weight_map}))
        self.refused("lies", r"says that \S+ is in \S+, which does not hold it")

    def test_other_architectures_and_dims(self):
        self.write_model("other", self.tensors, config={"architectures": ["FalconForCausalLM"]})
        self.refused("other", r"FalconForCausalLM.*not supported; ztrain reads LlamaForCausalLM, Mistral")
        self.write_model("wide", self.tensors, config={"intermediate_size": 96})
        self.refused("wide", r"6 tensors are of another shape")
        result = zt.run(0, ["check", self.deck, "--model.hidden_size=40"])
        self.assert_refused(result, r"model\.hidden_size = 40 contradicts .*config\.json, which says 36")

    def test_plan_needs_the_dims_alone_and_check_the_headers(self):
        folder = self.write_model("dims", self.tensors)
        words = [self.deck, "--ranks", "4", "--model.from=dims"]
        result = zt.run(0, ["check", *words])
        self.assertEqual(result.code, 0, str(result))
        self.assertIn(f"the {len(self.tensors)} tensors of the model", result.out)
        (folder / "model.safetensors").unlink()
        result = zt.run(0, ["plan", *words])
        self.assertEqual(result.code, 0, str(result))
        self.assert_refused(zt.run(0, ["check", *words]), r"holds neither model\.safetensors nor")

    def test_files_of_other_programs(self):
        for name, file, said in (
            ("llama_cpp", "model.gguf", r"weights for llama\.cpp alone"),
            ("original", "consolidated.00.pth", r"files of the model's authors alone .*consolidated\.00\.pth"),
            ("original_safetensors", "consolidated.safetensors", r"files of the model's authors alone"),
        ):
            folder = self.folder / name
            folder.mkdir()
            for other in (file, "params.json", "tokenizer.model"):
                (folder / other).touch()
            self.refused(name, said + r".*give the folder of the same model that has config\.json and safetensors")
            self.assert_refused(zt.run(0, ["generate", folder, "--prompt-ids", 5, "--tokens", 1]), said)
            (folder / "config.json").write_text(json.dumps(hf.CONFIG))
            self.refused(name, said)


if __name__ == "__main__":
    zt.main()
