"""Models that go out: at the end of a run and later, by any number of ranks, with adapters merged or alone."""

import json
import os
import re
import shutil

import golden
import numpy as np

import hf_model as hf
import token_files
import xxhash
import ztrain_run as zt

LORA = {"lora.rank": 3, "lora.alpha": 5, "lora.targets": ["q_proj", "v_proj", "model.layers.1.mlp.down_proj"]}
FAST = {"optimizer.lr": 1e-2, "schedule.name": "constant"}


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class AtTheEnd(hf.Models):
    def refused(self, overrides, *patterns, ranks=2):
        words = {"run.output": self.folder / "refused", **overrides}
        self.assert_refused(zt.run(ranks, [self.deck, *zt.words_of(words)]), *patterns)
        self.assert_refused(zt.run(0, ["check", self.deck, *zt.words_of(words)]), *patterns)

    def test_it_is_what_the_command_writes(self):
        for dtype, words in (("auto", []), ("fp16", ["--dtype", "fp16"])):
            to = self.folder / f"end_{dtype}"
            output = self.train(
                2, f"run_{dtype}", {**FAST, "checkpoint.export": f"{to}/", "checkpoint.export_dtype": dtype}
            )
            self.assertRegex(self.last.out, rf"{to}: 21 tensors, \S+ KiB of \S+ in 1 file, and config\.json")
            checkpoint = output / "checkpoints" / "step_2"
            for ranks in (0, 2, 3):
                exported = self.export(checkpoint, f"later_{dtype}_{ranks}", *words, ranks=ranks)
                self.assertEqual(files_of(to), files_of(exported), f"{dtype} on {ranks} ranks")

    def test_ranks_share_many_files(self):
        checkpoint = self.still("still", "model")
        exported = [
            self.export(checkpoint, f"many_{ranks}", "--max-shard-size", "0.00003", ranks=ranks) for ranks in (0, 4)
        ]
        self.assertEqual(files_of(exported[0]), files_of(exported[1]))
        self.assertEqual(hf.read_folder(exported[1]), self.tensors)

    def test_a_run_that_was_complete_is_exported(self):
        keys = {**FAST, "checkpoint.resume": "auto"}
        self.train(2, "complete", keys)
        keys["checkpoint.export"] = self.folder / "complete_export"
        # A run that was killed while it removed what need not stay: nothing follows that would sweep up behind it.
        remains = self.folder / "complete" / "checkpoints" / "step_1.tmp"
        remains.mkdir()
        self.train(2, "complete", keys)
        self.assertFalse(remains.exists())
        self.assertRegex(self.last.out, r"\nnothing to do: .* ends at step (\d+) \(run\.steps\): raise that key to go on\n")
        content = files_of(self.folder / "complete_export")
        self.train(2, "complete", keys)
        self.assertIn("complete_export' is there already", self.last.out)
        self.assertEqual(content, files_of(self.folder / "complete_export"))
        keys["run.output"] = self.folder / "complete"
        checked = zt.run(0, ["check", self.deck, *zt.words_of({**keys, "run.steps": 2})])
        self.assertIn("the deck is valid", str(checked))
        self.refused(
            {**keys, "run.steps": 4},
            r"checkpoint\.export: '\S+/complete_export' exists: give another folder with checkpoint\.export",
        )

    def test_what_cannot_be_is_refused_before_the_first_step(self):
        new, there = self.folder / "new", self.folder / "there"
        there.mkdir()
        self.refused({"checkpoint.export": there}, r"checkpoint\.export: '\S+' exists")
        left = self.folder / "new.tmp"
        left.mkdir()
        self.refused({"checkpoint.export": new}, r"checkpoint\.export: '\S+/new\.tmp' exists and is not of an interrupted")
        left.rmdir()
        self.refused({"checkpoint.export": self.folder}, r"checkpoint\.export: '\S+' would be in the way of '\S+/refused'")
        self.refused({"checkpoint.export": self.deck / "x"}, r"checkpoint\.export: (cannot create the folder|the run would write '\S+x', but '\S+' is no folder)")
        self.refused(
            {"checkpoint.export": new, "checkpoint.interval": -1}, r"checkpoint\.export needs the checkpoint at the end"
        )
        self.refused(
            {"checkpoint.export": new, "checkpoint.export_adapter": True},
            r"checkpoint\.export_adapter = true needs adapters, and lora\.rank = 0",
        )
        self.assertEqual(zt.losses(self.folder / "refused"), {})

    def test_what_an_interrupted_export_left(self):
        checkpoint = self.still("still_left", "model")
        left = self.folder / "left.tmp"
        left.mkdir()
        (left / "model.safetensors").write_bytes(b"half")
        words = ["export", checkpoint, "--to", self.folder / "left"]
        self.assert_refused(zt.run(2, words), r"left\.tmp' exists and is not of an interrupted export: remove it")
        (left / ".ztrain_export").touch()
        result = zt.run(2, words)
        self.assertEqual(result.code, 0, str(result))
        self.assertIn("left.tmp, which an interrupted export had left, was removed", result.out)
        self.assertEqual(hf.read_folder(self.folder / "left"), self.tensors)
        self.assertEqual(sorted(files_of(self.folder / "left")), ["config.json", "generation_config.json", "model.safetensors"])

    def test_what_lies_beside_the_weights_is_copied(self):
        """By one rank, so that it alone is refused where there is something else; and nobody waits for a pipe."""
        beside = self.folder / "model" / "tokenizer.json"
        checkpoint = self.still("still_beside", "model")
        content = bytes(range(256)) * 4096
        self.addCleanup(beside.unlink)
        os.mkfifo(beside)
        refused = zt.run(4, ["export", checkpoint, "--to", self.folder / "from_a_pipe"], timeout=30)
        self.assert_refused(refused, r"rank 0: cannot read '\S+/tokenizer\.json': it is a FIFO, and a regular file")
        beside.unlink()
        beside.write_bytes(content)
        exported = self.export(checkpoint, "beside", ranks=4)
        self.assertEqual((exported / "tokenizer.json").read_bytes(), content)

    def test_exports_list_the_ends_of_the_model_and_of_the_data(self):
        tokenizer = self.folder / "own_tokenizer"
        tokenizer.mkdir()
        for name in ("tokenizer.json", "chat_template.jinja"):
            (tokenizer / name).write_text(f"the data's {name}")
        beside = self.folder / "model" / "tokenizer.json"
        beside.write_text("another")
        self.addCleanup(beside.unlink)
        about = {"vocab_size": 257, "eos_id": 13, "turn_end_ids": 7, "tokenizer_folder": str(tokenizer)}
        about["tokenizer_hash"] = xxhash.xxh3_64((tokenizer / "tokenizer.json").read_bytes()).hexdigest()
        token_files.write_tokens(self.folder / "turns.h5", 40 * [range(30)], None, about)
        for model, ends in (("model", [12, 13, 7]), ("", [7, 13])):
            keys = {**(self.model_keys() if not model else {}), "model.from": model, "data.train": "turns.h5"}
            output = self.train(2, f"turns_{model}", {**self.STILL, **keys, "checkpoint.export": self.folder / f"ends_{model}"})
            exported = self.folder / f"ends_{model}"
            for file in ("config.json", "generation_config.json"):
                self.assertEqual(json.loads((exported / file).read_text())["eos_token_id"], ends, file)
            self.assertEqual((exported / "tokenizer.json").read_text(), "the data's tokenizer.json")
            self.assertTrue((exported / "chat_template.jinja").exists())
        (tokenizer / "tokenizer.json").write_text("has changed")
        later = self.export(output / "checkpoints" / "step_1", "changed")
        self.assertFalse((later / "tokenizer.json").exists())

    def test_a_rank_that_cannot_read_fails_all(self):
        checkpoint = self.folder / "broken"
        shutil.copytree(self.still("still_broken", "model"), checkpoint)
        shard = checkpoint / "shard_0000.h5"
        data = bytearray(shard.read_bytes())
        data[len(data) // 10] ^= 255
        shard.write_bytes(data)
        words = ["export", checkpoint, "--to", self.folder / "not_there"]
        self.assert_refused(zt.run(4, words), r"rank \d: \S+shard_0000\.h5: \d+ bytes at offset \d+ do not have")
        self.assertEqual(list(self.folder.glob("not_there*")), [])


class OfAdapters(hf.Models):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.keys = {**FAST, **LORA, "run.steps": 4}
        cls.output = cls.train(3, "lora", {**cls.keys, "checkpoint.export": cls.folder / "end", "batch.global": 6})
        cls.checkpoint = cls.output / "checkpoints" / "step_4"
        cls.weights = {n[6:]: a for n, a in zt.tensors(cls.checkpoint).items() if n.startswith("model/")}
        cls.weights |= {n: np.frombuffer(d, "<f4").reshape(s) for n, (_, s, d) in cls.tensors.items()}

    def test_merged(self):
        found = {n: np.frombuffer(d, "<f4").reshape(s) for n, (_, s, d) in hf.read_folder(self.folder / "end").items()}
        self.assertEqual(sorted(found), sorted(self.tensors))
        changed = 0
        for name, array in found.items():
            a, b = (self.weights.get(name.replace(".weight", f".lora_{x}.weight")) for x in "AB")
            before = self.weights[name]
            if a is None:
                self.assertEqual(array.tobytes(), before.tobytes(), name)
                continue
            changed += 1
            exact = before.astype("f8") + 5 / 3 * (b.astype("f8") @ a.astype("f8"))
            self.assertLessEqual(np.abs(array - exact).max(), 2.0**-24 * np.abs(exact).max(), name)
            self.assertGreater(np.abs(array - before).max(), 1e-3, f"{name}: training changed nothing")
        self.assertEqual(changed, 5)
        self.assertEqual(files_of(self.export(self.checkpoint, "later", ranks=2)), files_of(self.folder / "end"))

    def test_merged_weights_are_rounded_once(self):
        for dtype, bits in (("bf16", 8), ("fp16", 11)):
            exported = self.export(self.checkpoint, f"merged_{dtype}", "--dtype", dtype)
            wide = hf.read_folder(self.folder / "end")
            for name, (_, _, data) in hf.read_folder(exported).items():
                exact = np.frombuffer(wide[name][2], "<f4").astype("f8")
                half = np.frombuffer(data, "<u2")
                got = half.view("<f2") if dtype == "fp16" else (half.astype("<u4") << 16).view("<f4")
                normal = np.abs(exact) > 1e-4
                error = np.abs(got.astype("f8") - exact)[normal]
                self.assertLessEqual((error / np.abs(exact[normal])).max(), 2.0**-bits, name)

    def test_alone(self):
        keys = {**self.keys, "checkpoint.export_adapter": True, "checkpoint.export": self.folder / "end_adapter"}
        self.train(3, "again", {**keys, "batch.global": 6})
        exported = self.export(self.checkpoint, "adapter", "--adapter", ranks=2)
        self.assertEqual(files_of(exported), files_of(self.folder / "end_adapter"))
        self.assertEqual(sorted(files_of(exported)), ["adapter_config.json", "adapter_model.safetensors"])
        expected = {
            f"base_model.model.{n}": ("F32", list(a.shape), a.tobytes())
            for n, a in self.weights.items()
            if ".lora_" in n
        }
        self.assertEqual(len(expected), 10)
        self.assertEqual(hf.read_folder(exported), expected)
        config = json.loads((exported / "adapter_config.json").read_text())
        self.assertEqual((config["r"], config["lora_alpha"], config["peft_type"]), (3, 5, "LORA"))
        self.assertEqual(config["base_model_name_or_path"], str(self.folder / "model"))
        # down_proj has adapters in one layer only: last parts of names would not say so.
        self.assertEqual(len(config["target_modules"]), 5)
        weights = re.sub(r"base_model\.model\.|\.lora_[AB]\.weight", "", " ".join(sorted(expected))).split()
        self.assertEqual(sorted(config["target_modules"]), sorted(set(weights)))
        merged = self.export(exported, "merged_from_peft", "--merge", "--dtype", "fp32", ranks=2)
        self.assertEqual(hf.read_folder(merged), hf.read_folder(self.folder / "end"))
        self.assertEqual(json.loads((merged / "config.json").read_text())["max_position_embeddings"], 777)
        self.assert_refused(zt.run(0, ["export", exported, "--adapter", "--to", self.folder / "no"]), r"is PEFT's folder already")
        self.assert_refused(zt.run(0, ["export", self.checkpoint, "--adapter", "--base", exported, "--to", self.folder / "no"]), r"--base: adapters are exported alone")
        from_it = lambda saved: {"run.steps": 1, "lora.targets": self.keys["lora.targets"], "model.from": saved}
        whole = self.train(2, "whole", {**from_it(self.checkpoint), "checkpoint.frozen": True}) / "checkpoints" / "step_1"
        for words in (["export", whole, "--to", self.folder / "no"], ["generate", whole, "--prompt-ids", 5], ["generate", self.folder / "model", "--prompt-ids", 5]):
            self.assert_refused(zt.run(0, [*words, "--base", self.folder / "model"]), r"--base: '\S+' holds all of its weights")
        last = self.train(2, "latest", from_it(whole)) / "checkpoints" / "step_1"
        tokenizer = self.folder / "model" / "tokenizer.json"
        tokenizer.write_text("its own")
        self.addCleanup(tokenizer.unlink)
        exported = self.export(last, "last_adapter", "--adapter")
        self.assertEqual((exported / "tokenizer.json").read_text(), "its own")
        again = json.loads((exported / "adapter_config.json").read_text())
        self.assertEqual(again["base_model_name_or_path"], config["base_model_name_or_path"])

    def test_last_parts_of_names_where_they_say_all(self):
        keys = {**LORA, "lora.targets": ["q_proj", "up_proj"], "model.from": self.still("base", "model")}
        output = self.train(2, "parts", keys)
        exported = self.export(output / "checkpoints" / "step_2", "parts_adapter", "--adapter")
        config = json.loads((exported / "adapter_config.json").read_text())
        self.assertEqual(config["target_modules"], ["q_proj", "up_proj"])
        self.assertIsNone(config["base_model_name_or_path"], "the run started from a checkpoint")

    def test_adapters_alone_that_would_not_be_all(self):
        words = ["--to", self.folder / "no", "--adapter"]
        plain = self.still("plain", "model")
        self.assert_refused(zt.run(2, ["export", plain, *words]), r"holds no adapters \(lora\.rank = 0\)")
        more = self.train(2, "more", {**LORA, "model.trainable": ["lm_head.weight", "model.norm.*"]})
        saved = more / "checkpoints" / "step_2"
        merged, alone = self.export(saved, "more_merged"), self.export(saved, "more_alone", "--adapter", ranks=2)
        found = hf.read_folder(alone)
        for name in ("lm_head.weight", "model.norm.weight"):
            self.assertEqual(found[f"base_model.model.{name}"], hf.read_folder(merged)[name])
        self.assertEqual(json.loads((alone / "adapter_config.json").read_text())["modules_to_save"], ["lm_head", "model.norm"])
        self.assertEqual(len(found), 12)
        begun = [zt.losses(self.train(2, f"more_{n}", {**FAST, "model.from": m})) for n, m in enumerate((saved, alone, merged))]
        self.assertEqual(begun[0][1][0], begun[1][1][0])
        self.assert_close({1: begun[0][1]}, {1: begun[2][1]}, 1e-6)
        self.assertIn("model.norm.weight, lm_head.weight", self.run_text("check", self.deck, f"--model.from={alone}"))
        for trainable, why in (("*.q_proj.weight", "its layer has adapters too"), ("model.layers.0.mlp.up_proj.*", "")):
            more = self.train(2, f"whole_{bool(why)}", {**LORA, "model.trainable": [trainable]})
            result = zt.run(2, ["export", more / "checkpoints" / "step_2", "--to", self.folder / f"whole_alone_{bool(why)}", "--adapter"])
            if why:
                self.assert_refused(result, rf"q_proj\.weight was trained besides the adapters .*: {why}; export the merged model")
            else:
                self.assertEqual(result.code, 0, str(result))

    def run_text(self, *words):
        result = zt.run(0, words)
        self.assertEqual(result.code, 0, str(result))
        return result.out


def arrays_of(folder):
    return {name: np.frombuffer(data, "<f4").reshape(shape).astype("f8")
            for name, (_, shape, data) in hf.read_folder(folder).items()}


def fused_experts(tensors, layer):
    """The weights of gate and up, and of down, for all experts: outputs x inputs each."""
    experts = f"{layer}.block_sparse_moe.experts"
    if f"{experts}.0.w1.weight" not in tensors:     # of gpt-oss
        return [tensors[f"{layer}.mlp.experts.{name}"].swapaxes(1, 2) for name in ("gate_up_proj", "down_proj")]
    w1, w2, w3 = (np.stack([tensors[f"{experts}.{e}.w{i}.weight"] for e in range(4)]) for i in (1, 2, 3))
    return [np.concatenate([w1, w3], axis=1), w2]


class OfExperts(golden.Numbers):
    """PEFT has two matrices for all experts (ParamWrapper), and wraps the module once for each parameter."""

    def test_alone_they_are_what_is_merged(self):
        for model in ("mixtral", "gpt_oss"):
            run = golden.golden(model)["runs"]["lora"]
            output = self.run_as(run, model, 2, model, {"run.steps": 2})
            merged, alone = self.folder / f"{model}_merged", self.folder / f"{model}_alone"
            for words in ([merged], [alone, "--adapter"]):
                words = ["export", output / "checkpoints" / "step_2", "--dtype", "fp32", "--to", *words]
                self.assertEqual(zt.run(2, words).code, 0)
            base, merged, factors = map(arrays_of, (golden.GOLDEN / model, merged, alone))
            scale = run["settings"]["lora.alpha"] / run["settings"]["lora.rank"]
            for layer in ("model.layers.0", "model.layers.1"):
                pairs = zip((".base_layer", ""), fused_experts(base, layer), fused_experts(merged, layer))
                for wrapper, before, after in pairs:
                    a, b = (factors[f"base_model.model.{layer}.mlp.experts{wrapper}.lora_{x}.weight"] for x in "AB")
                    experts, _, inputs = before.shape
                    added = np.einsum("ore,eri->eoi", b.reshape(len(b), -1, experts), a.reshape(experts, -1, inputs))
                    self.assertLess(np.abs(after - before - scale * added).max(), 1e-6 * np.abs(after).max(), layer)
                    self.assertGreater(np.abs(added).max(axis=(1, 2)).min(), 1e-4, f"{layer}: untrained experts")


if __name__ == "__main__":
    zt.main()
