"""model.from: the weights of a Hugging Face model or of a checkpoint, and nothing else of it; with and without adapters."""

import json
import os
import pathlib
import shutil

import golden
import hf_model as hf
import ztrain_run as zt

LORA = {"lora.rank": 3, "lora.alpha": 6, "lora.targets": ["q_proj", "v_proj", "down_proj"]}
FAST = {"optimizer.lr": 1e-2, "schedule.name": "constant"}


class FromCheckpoints(hf.Models):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.first = cls.train(2, "first", {**FAST, "run.steps": 3}) / "checkpoints" / "step_3"

    def copy(self, name):
        folder = self.folder / name
        shutil.copytree(self.first, folder)
        return folder

    def test_a_run_is_that_from_the_exported_weights(self):
        exported = self.export(self.first, "exported")
        for ranks, strategy in ((1, "FULL_SHARD"), (2, "zero1"), (4, "FULL_SHARD")):
            keys = {"sharding.strategy": strategy, "run.steps": 3}
            one = self.train(ranks, f"model_{ranks}", {**keys, "model.from": exported})
            other = self.train(ranks, f"saved_{ranks}", {**keys, "model.from": self.first})
            self.assert_same(zt.losses(one), zt.losses(other), f"{strategy} on {ranks} ranks")
        self.assertNotEqual(zt.losses(other)[1], zt.losses(self.first.parent.parent)[1])
        self.assert_same_tensors(one / "checkpoints" / "step_3", other / "checkpoints" / "step_3")

    def test_optimizer_data_and_precision_may_be_others(self):
        keys = {"optimizer.name": "lion", "data.sequence": 16, "precision.preset": "bf16", "run.steps": 2}
        output = self.train(3, "others", {**keys, "batch.global": 6, "model.from": self.first})
        self.assertEqual(list(zt.losses(output)), [1, 2])
        self.assertIn("a checkpoint, and nothing else of it", self.last.out)

    def test_what_an_export_takes_along_is_still_found(self):
        """The tokenizer lies beside the model that the first of three runs started from."""
        model = self.write_model("with_tokenizer", self.tensors)
        (model / "tokenizer.json").write_text('{"tokens": 1}')
        one = self.still("chain_1", "with_tokenizer")
        (self.folder / "zeros.bin").write_bytes(bytes(8000))
        two = self.still("chain_2", one, overrides={"data.train": "zeros.bin"})
        shutil.rmtree(one)
        exported = self.export(two, "export_chain")
        self.assertEqual((exported / "tokenizer.json").read_text(), '{"tokens": 1}')
        config = json.loads((exported / "config.json").read_text())
        self.assertEqual(config["eos_token_id"], hf.CONFIG["eos_token_id"])
        self.assertEqual(hf.read_folder(exported), self.tensors)
        shutil.rmtree(model)
        config = json.loads((self.export(two, "export_of_none") / "config.json").read_text())
        self.assertEqual(config["eos_token_id"], hf.CONFIG["eos_token_id"])
        self.assertEqual([config["bos_token_id"], config["pad_token_id"]], [None, None])

    def test_check_and_plan_know_the_dims(self):
        words = [self.deck, f"--model.from={self.first}", "--ranks", "4"]
        for command in ("check", "plan"):
            result = zt.run(0, [command, *words])
            self.assertEqual(result.code, 0, str(result))
        self.assertIn(f"the {len(self.tensors)} tensors", zt.run(0, ["check", *words]).out)
        result = zt.run(0, ["check", *words, "--model.hidden_size=40"])
        self.assert_refused(result, r"model\.hidden_size = 40 contradicts \S+step_3/metadata\.json, which says 36")

    def refused(self, folder, *patterns, words=(), ranks=2, times=1):
        words = [self.deck, f"--model.from={folder}", f"--run.output={self.folder / 'refused'}", *words]
        self.assert_refused(zt.run(ranks, words), *patterns, times=times)

    def test_dims_that_the_tensors_have_not(self):
        folder = self.copy("other_dims")
        metadata = folder / "metadata.json"
        text = json.loads(metadata.read_text())
        deck = text["deck"].replace("num_hidden_layers = 2", "num_hidden_layers = 3")
        deck = deck.replace("intermediate_size = 80", "intermediate_size = 81")
        self.assertNotEqual(deck, text["deck"])
        metadata.write_text(json.dumps({**text, "deck": deck}))
        self.refused(
            folder,
            r"9 tensors are missing:\n    model\.layers\.2\.input_layernorm\.weight\n",
            r"6 tensors are of another shape:\n    model\.layers\.0\.mlp\.gate_proj\.weight \[80, 36\] \(the model's is \[81, 36\]\)",
            r"a run with the same \[model\] keys \(model\.from\)",
        )

    def test_metadata_that_are_damaged(self):
        folder = self.copy("bad_metadata")
        for text, pattern in (
            ("", r"metadata\.json: is not valid JSON"),
            ("{}", r"metadata\.json: holds no deck"),
            ("[" * 1000000, r"metadata\.json: its JSON is nested more than 16 deep"),
            (json.dumps({"deck": "[model"}), r"metadata\.json:1: not valid TOML"),
            (json.dumps({"deck": "[model]\nhidden_size = -3"}), r"metadata\.json: model\.hidden_size = -3 is not legal"),
            (" " * (1 << 24) + "{}", r"metadata\.json' has 16777218 bytes, and no such file has more than 16777216"),
        ):
            (folder / "metadata.json").write_text(text)
            self.refused(folder, pattern, ranks=0 if text else 2)

    def test_damaged_weights(self):
        folder = self.copy("damaged")
        shard = folder / "shard_0000.h5"
        data = bytearray(shard.read_bytes())
        # The weights come first, then two moments: what is behind them does not matter here.
        for place, matters in ((len(data) * 2 // 3, False), (len(data) // 6, True)):
            data[place : place + 4] = bytes(255 - b for b in data[place : place + 4])
            shard.write_bytes(data)
            if not matters:
                self.still("moments_damaged", folder)
        # Whichever ranks read the bytes.
        self.refused(folder, r"damaged/shard_0000\.h5: \d+ bytes at offset \d+ do not have their checksum", times=2)
        os.truncate(shard, len(data) - 1000)
        self.refused(folder, r"damaged/shard_0000\.h5: is truncated or was changed")

    def test_folders_that_are_neither(self):
        empty, old = self.folder / "nothing", self.copy("old")
        empty.mkdir()
        (old / "metadata.json").unlink()
        neither = r"is neither a Hugging Face model nor a checkpoint: it has no config\.json and no metadata\.json; "
        for folder, hint in (
            (self.folder / "nowhere", "there is no such folder; the files of a model of the Hugging Face hub"),
            (self.deck, "it is no folder"),
            (empty, "give the folder of a checkpoint or of a model"),
            (old, "it is a checkpoint that has lost its own: give another"),
            (self.first.parent, r"it holds checkpoints: give one of them, such as '\S+/step_3'"),
        ):
            self.refused(folder, neither + hint, ranks=2 if folder == self.first.parent else 0)
        own = {"run.output": self.first.parent.parent, "checkpoint.resume": "none", "model.from": self.first}
        result = zt.run(2, [self.deck, *zt.words_of(own)])
        self.assert_refused(result, r"lies in the folder of this run's own checkpoints")
        self.assertTrue(self.first.exists())
        self.assert_refused(zt.run(0, ["export", old, "--to", self.folder / "export_old"]), r"old/metadata\.json: is missing")


class WithAdapters(hf.Models):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.lora = cls.train(2, "lora", {**FAST, **LORA, "run.steps": 4}) / "checkpoints" / "step_4"

    def test_adapters_are_drawn_where_there_are_none(self):
        """From a model and from a checkpoint of the same weights; a model starts as without them."""
        plain = self.still("plain", "model")
        self.assertIn("12 adapter tensors are drawn from seed 1234", self.lora_output())
        one = zt.losses(self.train(2, "from_model", {**FAST, **LORA, "run.steps": 4}))
        other = zt.losses(self.train(2, "from_checkpoint", {**FAST, **LORA, "run.steps": 4, "model.from": plain}))
        self.assert_same(one, other)
        self.assertEqual(one[1][0], zt.losses(self.train(2, "without", FAST))[1][0])
        for ranks in (1, 4):
            again = zt.losses(self.train(ranks, f"drawn_{ranks}", {**FAST, **LORA, "run.steps": 4}))
            self.assert_close(one, again, 1e-5, f"{ranks} ranks")

    def lora_output(self):
        return zt.run(2, [self.deck, *zt.words_of({**LORA, "run.output": self.folder / "again"})]).out

    def test_a_run_goes_on_with_trained_adapters(self):
        merged = self.export(self.lora, "merged")
        start = zt.losses(self.train(2, "from_merged", FAST))[1][0]
        with_merged = zt.losses(self.train(2, "merged_run", {**FAST, "model.from": merged}))[1][0]
        with_adapters = zt.losses(self.train(4, "adapters_run", {**FAST, **LORA, "model.from": self.lora}))[1][0]
        self.assertLess(abs(with_adapters - with_merged), 1e-6 * with_merged)
        self.assertGreater(abs(start - with_merged), 1e-3, "training changed nothing")

    def test_adapters_that_do_not_fit(self):
        for change, pattern in (
            ({"lora.rank": 0}, r"lora\.rank = 0 contradicts the adapters in model\.from \(\S+/metadata\.json\), which have 3.*`ztrain export"),
            ({**LORA, "lora.rank": 4}, r"lora\.rank = 4 contradicts the adapters in model\.from \(\S+\), which have 3"),
            ({**LORA, "lora.alpha": 5}, r"lora\.alpha = 5 contradicts the adapters in model\.from \(\S+\), which have 6"),
            ({**LORA, "lora.targets": ["q_proj"]}, r"8 tensors are unexpected:\n    model\.layers\.0\.mlp\.down_proj\.lora_A\.weight"),
        ):
            words = {"model.from": self.lora, "run.output": self.folder / "refused", **change}
            self.assert_refused(zt.run(2, [self.deck, *zt.words_of(words)]), pattern)
        more = {**LORA, "lora.targets": LORA["lora.targets"] + ["up_proj"]}
        self.train(2, "more", {**more, "model.from": self.lora})
        self.assertIn("4 adapter tensors are drawn", self.last.out)
        silent = [self.train(2, f"silent_{n}", {**keys, "model.from": self.lora}) for n, keys in enumerate(({}, LORA))]
        self.assert_same(*map(zt.losses, silent))


class FromPeft(golden.Numbers):
    """Folders of the PEFT library: adapters and the model that they belong to."""

    def keys(self, model, folder=None):
        """The deck of the golden run with adapters, without a word on them."""
        run = golden.golden(model)["runs"]["lora"]
        silent = {key: value for key, value in run["settings"].items() if not key.startswith("lora.")}
        paths = {"data.train": [str(golden.GOLDEN / run["data"])], "model.from": str(folder or golden.GOLDEN / model / "lora")}
        return {**silent, **paths, "model.base": str(golden.GOLDEN / model)}

    def folder_of(self, name, changes, without=()):
        """A copy of llama's with another adapter_config.json, or without some tensors."""
        folder, of = self.folder / name, golden.GOLDEN / "llama" / "lora"
        folder.mkdir()
        config = json.loads((of / "adapter_config.json").read_text())
        (folder / "adapter_config.json").write_text(json.dumps({**config, **changes}))
        tensors = hf.read_folder(of)
        hf.write_file(folder / "adapter_model.safetensors", {n: t for n, t in tensors.items() if not n.endswith(tuple(without) or "!")})
        return folder

    def test_losses_are_those_of_peft(self):
        for model, ranks, more in (("llama", 2, {}), ("mixtral", 2, {}), ("gpt_oss", 4, {"mesh.expert": 2})):
            losses = zt.losses(self.train(ranks, model, more, self.write_deck(model, self.keys(model))))
            for step, expected in enumerate(golden.golden(model)["runs"]["lora"]["losses"], 1):
                self.assertLess(abs(losses[step][0] / expected - 1), 2e-6 if step == 1 else 1e-5, f"{model}, step {step}")

    def test_they_generate(self):
        prompt = ["--prompt-ids", "5,6,7", "--tokens", 4, "--dtype", "fp32", "--logits", self.folder / "logits.bin"]
        base = ["--base", golden.GOLDEN / "llama"]
        result = zt.run(2, ["generate", golden.GOLDEN / "llama" / "lora", *base, *prompt])
        self.assertEqual(result.code, 0, str(result))
        found = (self.folder / "logits.bin").read_bytes()
        saved = self.train(2, "saved", {**zt.STILL, "run.steps": 1}, self.write_deck("saved", self.keys("llama")))
        result = zt.run(2, ["generate", saved / "checkpoints" / "step_1", *prompt])
        self.assertEqual((result.code, (self.folder / "logits.bin").read_bytes()), (0, found), str(result))

    def test_what_cannot_be_is_one_message(self):
        for number, (change, without, overrides, pattern) in enumerate((
            ({"use_dora": True}, (), {}, r"does not hold the adapters that its adapter_config\.json says: \S+lora_magnitude_vector is missing"),
            ({"rank_pattern": {"q_proj": 3}}, (), {}, r"rank_pattern = \{\"q_proj\":3\}: ztrain has no ranks that differ"),
            ({"bias": "all"}, (), {}, r"bias = \"all\""),
            ({"peft_type": "IA3"}, (), {}, r"peft_type = \"IA3\": ztrain has LORA alone"),
            ({"init_lora_weights": "pissa"}, (), {}, r"init_lora_weights = \"pissa\": the adapters belong to weights that PEFT has changed"),
            ({}, (), {"model.base": ""}, r"base_model_name_or_path is missing: .* model\.base"),
            ({"base_model_name_or_path": "/no/where"}, (), {"model.base": ""}, r"\"/no/where\": there is no such folder: .* model\.base"),
            ({}, (), {"lora.rank": 5}, r"lora\.rank = 5 contradicts the adapters in model\.from \(\S+adapter_config\.json\), which have \d"),
            ({}, (), {"lora.targets": ["o_proj"]}, r"lora\.targets = \[\"o_proj\"\] contradicts .* which have \[\""),
            ({"target_modules": []}, (), {}, r"target_modules = \[\] leaves out model\.layers\.0\.\S+, of which adapter_model\.safetensors beside it"),
            ({"exclude_modules": ["q_proj"]}, (), {}, r"exclude_modules = \[\"q_proj\"\] leaves out \S+q_proj,"),
            ({"layers_to_transform": [0]}, (), {}, r"layers_to_transform = \[0\] leaves out model\.layers\.1\."),
            ({"modules_to_save": ["lm_head"]}, (), {}, r"modules_to_save has lm_head, of which adapter_model\.safetensors beside it holds no"),
            ({}, ("1.self_attn.q_proj.lora_A.weight",), {}, r"does not hold the adapters that its adapter_config\.json says: \S+q_proj\.lora_A\.weight is missing"),
        )):
            deck = self.write_deck(f"no_{number}", {**self.keys("llama", self.folder_of(f"bad_{number}", change, without)), **overrides})
            self.assert_refused(zt.run(2, [deck, f"--run.output={self.folder / 'no'}"]), pattern)


class FromDenseModels(golden.Numbers):
    """A mixture whose experts are copies of a dense feed-forward, and whose weights sum to one, is the dense model."""

    EXPERTS = {"model.num_experts": 4, "model.num_experts_per_tok": 2, "model.norm_topk_prob": True, "experts.balance": "none"}
    STILL = {**zt.STILL, "run.steps": 1}

    def starts_as(self, model, family, ranks, name, keys, routers=2):
        run = golden.golden(model)["runs"]["windows"]
        output = self.run_as(run, model, ranks, name, {**self.STILL, **self.EXPERTS, "model.family": family, **keys})
        self.assertRegex(self.last.out, rf"\n{routers} router tensors? (is|are) drawn from seed 1234\n")
        self.assertLess(abs(zt.losses(output)[1][0] / run["losses"][0] - 1), 2e-6, name)
        return output / "checkpoints" / "step_1"

    def test_mixtures_start_as_dense_models(self):
        for model, family in (("mistral", "mixtral"), ("qwen3", "qwen3_moe")):
            mixture = self.starts_as(model, family, 2, family, {})
            prompt = golden.golden(model)["prompt"]
            file, ids = self.folder / f"{family}.bin", ",".join(map(str, prompt))
            words = ["generate", mixture, "--dtype", "fp32", "--prompt-ids", ids, "--tokens", "0", "--logits", file]
            self.assertEqual(zt.run(0, words).code, 0)
            self.assert_logits(model, file)
            found, dense = zt.tensors(mixture), hf.read_folder(golden.GOLDEN / model)
            for layer in ("model.layers.0.mlp", "model.layers.1.mlp"):
                for part in ("gate_proj", "up_proj", "down_proj"):
                    _, shape, data = dense[f"{layer}.{part}.weight"]
                    experts = found[f"model/{layer}.experts.{part}.weight"]
                    self.assertEqual((list(experts.shape), experts.tobytes()), ([4, *shape], 4 * data), f"{layer}.{part}")
            routers = [found[f"model/model.layers.{layer}.mlp.gate.weight"] for layer in (0, 1)]
            self.assertGreater(min(abs(routers[0]).max(), abs(routers[0] - routers[1]).max()), 0.1)

    def test_from_a_checkpoint_and_on_another_mesh(self):
        run = golden.golden("qwen3")["runs"]["windows"]
        dense = self.run_as(run, "qwen3", 2, "dense", self.STILL) / "checkpoints" / "step_1"
        keys = {"mesh.tensor": 2, "mesh.expert": 2, "model.from": dense, "model.mlp_only_layers": [0]}    # a layer stays dense
        self.starts_as("qwen3", "qwen3_moe", 4, "mixture", keys, routers=1)

    def test_what_does_not_fit(self):
        for keys, pattern in (
            ({"model.moe_intermediate_size": 12}, r"moe_intermediate_size = 12 contradicts \S+config\.json, which says 24"),
            ({"lora.rank": 2}, r"'\S+' is a dense model, whose feed-forward each expert copies: .*; set lora\.rank = 0"),
            ({"model.family": "qwen3"}, r"num_experts = 4 contradicts .* 0; leave the key out, or name as model\.family a mixture"),
            ({"model.family": "olmoe"}, r"model\.family = \"olmoe\" contradicts \S+config\.json, which says \"qwen3\""),
        ):
            keys = {"data.train": ["x"], "model.from": str(golden.GOLDEN / "qwen3"), "model.family": "qwen3_moe", **self.EXPERTS, **keys}
            deck = self.write_deck("refused", {**golden.golden("qwen3")["runs"]["windows"]["settings"], **keys})
            self.assert_refused(zt.run(0, ["check", deck, "--without-files"]), pattern)


if __name__ == "__main__":
    zt.main()
