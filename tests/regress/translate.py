"""ztrain translate: twenty configurations of other programs become decks that `ztrain check` accepts, in which each of
their names has a line; and decks become DeepSpeed's and Accelerate's files again."""

import concurrent.futures
import json
import pathlib
import re
import tomllib

import ztrain_run as zt

CONFIGURATIONS = zt.SOURCE / "tests" / "regress" / "translate"
LLAMA = {"model.preset": "llama3.2-1b"}
UNKNOWN_MODEL = {"model.preset": "tinyllama-1.1b"}

# Files, ranks, keys that check needs where the model is not at hand, and values of the deck.
CASES = [
    ("deepspeed_zero2.json", 8, UNKNOWN_MODEL,
     {"batch.global": 64, "sharding.strategy": "zero2", "optimizer.betas": [0.9, 0.98], "schedule.name": "constant",
      "schedule.warmup": 500, "precision.preset": "deepspeed-bf16", "sharding.reduce_bucket_size": 500000000,
      "sparse_attention.mode": "variable", "sparse_attention.block": 128, "sparse_attention.num_local_blocks": 8,
      "sparse_attention.num_global_blocks": 2, "sparse_attention.num_random_blocks": 1}),
    ("deepspeed_zero3_auto.json", 4, UNKNOWN_MODEL, {"sharding.strategy": "FULL_SHARD", "schedule.name": "linear"}),
    ("deepspeed_zero3_offload.json", 4, UNKNOWN_MODEL,
     {"batch.global": 32, "offload.optimizer": "cpu", "offload.optimizer_fraction": 0.5, "offload.parameters": "cpu",
      "offload.activations": "cpu", "sharding.persistence_threshold": 100000, "optimizer.name": "adamw"}),
    ("deepspeed_infinity.json", 8, UNKNOWN_MODEL,
     {"run.steps": 2000, "offload.parameters": "nvme", "offload.nvme_path": ["/local_nvme"], "offload.threads": 2,
      "schedule.min_lr_ratio": 0.05, "sharding.reshard_after_forward": "4", "optimizer.weight_decay": 0,
      "sharding.gather_codes": "int8", "sharding.reduce_codes": "int4"}),
    ("deepspeed_fp16.json", 4, UNKNOWN_MODEL,
     {"precision.preset": "deepspeed-fp16", "loss_scaling.initial_scale_power": 14, "loss_scaling.window": 500,
      "optimizer.name": "lion", "optimizer.max_norm": 0.5, "precision.reduce": "fp32"}),
    ("deepspeed_ulysses_tp.json", 8, UNKNOWN_MODEL,
     {"batch.global": 16, "mesh.context": 2, "mesh.tensor": 2, "context.method": "ulysses"}),
    ("accelerate_fsdp1.yaml", 0, UNKNOWN_MODEL,
     {"batch.global": 16, "sharding.strategy": "HYBRID_SHARD", "sharding.forward_prefetch": 0, "recompute.mode": "full"}),
    ("accelerate_fsdp2.yaml", 0, UNKNOWN_MODEL,
     {"sharding.unit_min_parameters": 2000000, "mesh.tensor": 2, "offload.gradients": "cpu", "precision.preset": "bf16"}),
    ("accelerate_deepspeed.yaml", 0, UNKNOWN_MODEL,
     {"sharding.strategy": "FULL_SHARD", "offload.master": "cpu", "optimizer.max_norm": 1, "batch.global": 16}),
    ("accelerate_multi_gpu.yaml", 0, UNKNOWN_MODEL, {"sharding.strategy": "NO_SHARD", "precision.preset": "deepspeed-fp16"}),
    ("deepspeed_zero3_auto.json accelerate_deepspeed.yaml trl_sft.yaml", 0, {"model.preset": "qwen2.5-0.5b"},
     {"batch.global": 64, "batch.micro": 2, "schedule.warmup": 0.03, "schedule.min_lr_ratio": 0.1, "optimizer.lr": 2e-5,
      "optimizer.weight_decay": 0, "precision.preset": "deepspeed-bf16", "data.packing": "documents", "run.epochs": 1}),
    ("trl_sft.yaml", 4, {"model.preset": "qwen2.5-0.5b"},
     {"precision.preset": "bf16", "checkpoint.keep_best": 1, "evaluation.interval": 100, "run.seed": 7}),
    ("trl_lora.yaml", 2, {"model.preset": "llama3.1-8b"},
     {"run.steps": 1000, "lora.rank": 32, "lora.targets": ["q_proj", "k_proj", "v_proj", "o_proj"],
      "optimizer.name": "adamw_8bit", "lora.quantization": "nf4", "model.trainable": ["*lm_head*"], "data.max_documents": 1, "batch.global": 16}),
    ("trl_dpo.yaml", 2, {"model.preset": "mistral-7b-v0.3"},
     {"lora.alpha": 32, "optimizer.betas": [0.9, 0.98], "schedule.warmup": 0.1, "schedule.min_lr_ratio": 0,
      "preference.loss_type": "sigmoid", "lora.rslora": True}),
    ("training_arguments.json", 8, UNKNOWN_MODEL,
     {"precision.preset": "fp32", "sharding.unit": "block", "offload.parameters": "cpu", "schedule.warmup": 0.06,
      "checkpoint.interval": 0, "watchdog.timeout": 3600, "batch.global": 64}),
    ("axolotl_full.yaml", 4, LLAMA,
     {"data.train": ["data/GPT4_LLM_Cleaned.h5", "data/own.h5"], "data.validation_fraction": 0.02, "batch.global": 32,
      "data.long_documents": "drop", "optimizer.betas": [0.9, 0.999], "run.epochs": 3}),
    ("axolotl_qlora.yaml", 2, {"model.preset": "llama3.1-8b"},
     {"lora.rank": 32, "lora.quantization": "nf4", "schedule.min_lr_ratio": 0.05, "optimizer.name": "adamw", "recompute.mode": "full"}),
    ("axolotl_deepspeed.yaml", 8, {"model.preset": "qwen3-8b"},
     {"mesh.context": 2, "batch.global": 4, "run.steps": 500, "offload.activations": "cpu", "checkpoint.resume": "auto"}),
    ("axolotl_dpo.yaml", 2, {"model.preset": "gemma2-2b"}, {"lora.targets": ["q_proj", "v_proj"], "preference.loss_type": "sigmoid",
                                                                      "lora.dora": True, "model.trainable": ["*model.embed_tokens.weight*"]}),
    ("torchtitan_llama3_8b.toml", 8, {},
     {"model.preset": "llama3-8b", "schedule.name": "wsd", "schedule.decay": 100, "checkpoint.interval": -1,
      "data.train": ["data/c4.h5"], "recompute.mode": "selective", "batch.global": 8}),
    ("torchtitan_llama3_70b.toml", 16, {"model.from": ""},
     {"mesh.pipeline": 2, "mesh.tensor": 8, "pipeline.schedule": "interleaved", "batch.micro": 1, "batch.global": 8,
      "recompute.every": 2, "precision.fp8": "rowwise", "checkpoint.keep": 3}),
]


def names_of(path):
    """Line and last part of each name that has a value."""
    rows = [(number, line.split(" #")[0]) for number, line in enumerate(path.read_text().splitlines(), 1)]
    if path.suffix == ".json":
        return [(n, name) for n, line in rows for name in re.findall(r'"(\w+)":\s*[^{\s]', line)]
    pattern = r"^\s*(?:- )?(\w+):\s+\S" if path.suffix == ".yaml" else r"^(\w+) = "
    return [(n, match[1]) for n, line in rows if (match := re.match(pattern, line))]


def value_at(deck, key):
    section, member = key.split(".", 1)
    return deck.get(section, {}).get(member)


class Translate(zt.Case):
    def translate(self, *words):
        result = zt.run(0, ["translate", *words], timeout=30)
        self.assertEqual(result.code, 0, str(result))
        self.assertEqual(result.said, "", str(result))
        return result.out

    def check_case(self, case):
        files, ranks, given, expected = case
        paths = [CONFIGURATIONS / name for name in files.split()]
        text = self.translate(*paths, *(["--ranks", ranks] if ranks else []))
        lines = [line for line in text.splitlines() if line.startswith("# ")]
        for path in paths:
            for number, name in names_of(path):
                pattern = rf"# {re.escape(path.name)}:{number}: ([\w.]+\.)?{name} = "
                self.assertTrue(any(re.match(pattern, line) for line in lines), f"{path.name}:{number}: {name}\n{text}")
        deck = tomllib.loads(text)
        for key, value in expected.items():
            self.assertEqual(value_at(deck, key), value, f"{files}: {key}\n{text}")
        written = pathlib.Path(self.folder) / f"{paths[-1].stem}{len(paths)}.toml"
        written.write_text(text)
        world = ranks or re.search(r"num_processes = (\d+)", text)[1]
        words = ["check", written, "--without-files", *zt.words_of({"run.epochs": 0, "run.steps": 1000, **given})]
        result = zt.run(0, [*words, "--ranks", world], timeout=60)
        self.assertEqual(result.code, 0, f"{files}\n{result}\n{text}")
        self.assertIn("the deck is valid", result.out)

    def test_each_configuration_becomes_a_deck_that_check_accepts(self):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(self.check_case, CASES))

    def test_the_tables_of_the_page_are_current(self):
        page = (zt.SOURCE / "docs" / "coming-from.md").read_text()
        between = page.split("prints the tables of this section -->\n")[1].split("\n<!-- the end of what it prints -->")[0]
        printed = self.translate("--markdown")
        differing = [pair for pair in zip(between.split("\n"), printed.split("\n")) if pair[0] != pair[1]]
        self.assertTrue(between == printed, f"the page is to have what `ztrain translate --markdown` prints: {differing[:2]}")

    def test_adapters_that_are_there_begin_a_run(self):
        text = (CONFIGURATIONS / "axolotl_qlora.yaml").read_text()
        pathlib.Path("on.yaml").write_text(text + "lora_model_dir: outputs/before\n")
        model = tomllib.loads(self.translate("on.yaml"))["model"]
        self.assertEqual((model["from"], model["base"]), ("outputs/before", "models/Llama-3.1-8B"))

    def test_the_last_value_and_the_command_line_win(self):
        words = [CONFIGURATIONS / "accelerate_deepspeed.yaml", CONFIGURATIONS / "trl_sft.yaml", "--optimizer.lr=1e-3", "--ranks", 8]
        text = self.translate(*words)
        self.assertRegex(text, r'# tools/prepare_data.py RECORDS... --tokenizer "models/\S+" --output data/NAME.h5.*\n# validation = ')
        self.assertRegex(text, r'\[checkpoint\]\n(?:.*\n)*# export = "FOLDER"')
        self.assertIn("set aside: gradient_accumulation_steps counts (trl_sft.yaml:12)", text)
        self.assertIn("# command line: optimizer.lr = 1e-3", text)
        deck = tomllib.loads(text)
        self.assertEqual((deck["optimizer"]["lr"], deck["batch"]["global"]), (1e-3, 128))

    def test_either_of_two_settings_turns_recomputation_on(self):
        pathlib.Path("off.yaml").write_text("distributed_type: FSDP\nfsdp_config:\n  fsdp_activation_checkpointing: false\n")
        for given, mode in (("true", "full"), ("false", "none"), (None, "full")):
            pathlib.Path("sft.yaml").write_text("max_length: 512\n" + (f"gradient_checkpointing: {given}\n" if given else ""))
            for files in (("off.yaml", "sft.yaml"), ("sft.yaml", "off.yaml")):
                self.assertEqual(tomllib.loads(self.translate(*files))["recompute"]["mode"], mode, (given, files))

    def test_what_cannot_be_translated_is_refused(self):
        for name, content, *patterns in [
            ("list.yaml", "- 1\n- 2\n", "a configuration is a mapping"),
            ("broken.json", '{"train_batch_size": [1,\n', r"broken\.json:\d+: this is not valid YAML or JSON"),
            ("deck.toml", "[run]\nsteps = 3\n[data]\ntrain = ['a']\n", "of its 2 names are those of a program"),
            ("deep.yaml", "a: " + "{b: " * 20 + "1" + "}" * 20, "is nested deeper than any configuration"),
            ("deeper.json", '{"a": ' * 3000 + "1" + "}" * 3000, r"deeper\.json:\d+: is nested deeper than any configuration"),
            ("two.yaml", "learning_rate: 1e-4\n---\nlearning_rate: 2e-4\n", r"two\.yaml: holds 2 documents \(---\)"),
            ("wide.json", '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3e18}', r"batch\.global: 3e\+18 is more than any run has"),
        ]:
            pathlib.Path(name).write_text(content)
            self.assert_refused(zt.run(0, ["translate", name], timeout=30), *patterns)
        sft = CONFIGURATIONS / "trl_sft.yaml"
        self.assert_refused(zt.run(0, ["translate", sft, "--from", "keras"], timeout=30), "no program whose files are read; legal: trl")
        self.assert_refused(zt.run(0, ["translate", sft, "--optimizer.rate=1"], timeout=30), "gives no key of a deck")

    def test_reward_models(self):
        for text in ("center_rewards_coefficient: 0.01\npacking: false\n", "reward_model: true\ncenter_rewards_coefficient: 0.01\nsample_packing: false\nbase_model: x\n"):
            pathlib.Path("reward.yaml").write_text("learning_rate: 1e-5\nmax_steps: 10\n" + text)
            deck = tomllib.loads(self.translate("reward.yaml"))
            self.assertEqual(deck["preference"], {"loss_type": "reward", "center_rewards_coefficient": 0.01})
            self.assertEqual(deck["data"]["max_documents"], 2)

    def test_a_deck_goes_back(self):
        sizes = {"run.steps": 100, "batch.micro": 2, "schedule.warmup": 0.1, "schedule.name": "linear", "schedule.min_lr_ratio": 0}
        deck = self.write_deck("back", {**sizes, "precision.preset": "deepspeed-bf16", "sharding.strategy": "zero2",
                                        "offload.optimizer": "cpu", "offload.master": "cpu", "offload.master_fraction": 0.5,
                                        "offload.optimizer_fraction": 0.5, "watchdog.stragglers": 7})
        result = zt.run(0, ["translate", deck, "--to-deepspeed"], timeout=30)
        self.assertEqual(result.code, 0, str(result))
        file = json.loads(result.out)
        self.assertEqual((file["train_batch_size"], file["train_micro_batch_size_per_gpu"]), (4, 2))
        self.assertEqual(file["zero_optimization"]["stage"], 2)
        self.assertEqual(file["zero_optimization"]["offload_optimizer"]["device"], "cpu")
        self.assertEqual(file["optimizer"]["params"]["betas"], [0.9, 0.95])
        self.assertEqual(file["scheduler"]["type"], "WarmupDecayLR")
        self.assertEqual(file["scheduler"]["params"]["warmup_num_steps"], 10)
        self.assertEqual(file["bf16"], {"enabled": True})
        self.assertIn("watchdog.stragglers = 7: no counterpart in this file", result.err)
        self.assertNotRegex(result.err, "schedule.warmup|offload.master")
        self.assertIn("norms and biases are decayed too there", result.err)
        pathlib.Path("again.json").write_text(result.out)
        again = tomllib.loads(self.translate("again.json"))
        self.assertEqual((again["sharding"]["strategy"], again["schedule"]["warmup"], again["optimizer"]["lr"]), ("zero2", 10, 3e-3))

    def test_gathers_within_groups_go_back(self):
        for reshard, size, remark in (("2", 2, False), ("false", None, True)):
            deck = self.write_deck("groups", {"sharding.strategy": "FULL_SHARD", "sharding.reshard_after_forward": reshard})
            result = zt.run(0, ["translate", deck, "--to-deepspeed"], timeout=30)
            self.assertEqual(json.loads(result.out)["zero_optimization"].get("zero_hpz_partition_size"), size)
            self.assertIs("sharding.reshard_after_forward" in result.err, remark, result.err)

    def test_codes_go_back(self):
        there = {"gather": ("weights", "int8", "int4", 8), "reduce": ("gradients", "int4", "int8", 4)}
        for what, (named, same, other, bits) in there.items():
            keys = {"sharding.strategy": "FULL_SHARD", f"sharding.{what}_codes": same}
            result = zt.run(0, ["translate", self.write_deck("codes", keys), "--to-deepspeed"], timeout=30)
            self.assertIs(json.loads(result.out)["zero_optimization"][f"zero_quantized_{named}"], True)
            keys[f"sharding.{what}_codes"] = other
            result = zt.run(0, ["translate", self.write_deck("codes", keys), "--to-deepspeed"], timeout=30)
            self.assertNotIn("zero_quantized", result.out)
            self.assertIn(f'sharding.{what}_codes = "{other}": zero_quantized_{named} has {bits} bits there', result.err)

    def test_layouts_of_blocks_go_back(self):
        keys = {"num_local_blocks": 2, "num_global_blocks": 2}
        keys = {f"sparse_attention.{key}": value for key, value in keys.items()}
        for mode, names in (("fixed", keys), ("variable", {"local_window_blocks": [2], "global_block_indices": [0, 1]})):
            deck = self.write_deck("blocks", {"data.sequence": 128, "sparse_attention.mode": mode, **keys})
            section = json.loads(zt.run(0, ["translate", deck, "--to-deepspeed"], timeout=30).out)["sparse_attention"]
            self.assertEqual((section["mode"], section["block"], section["attention"]), (mode, 64, "unidirectional"))
            for name, value in names.items():
                self.assertEqual(section[name.split(".")[-1]], value)
        (self.folder / "small.json").write_text('{"sparse_attention": {"mode": "fixed"}, "zero_optimization": {"stage": 1}}')
        text = self.translate("small.json")
        self.assertIn("blocks are multiples of 64 tokens here: choose their numbers anew", text)
        self.assertNotIn("\nblock = ", text)

    def test_each_mode_of_blocks_reads_its_own_numbers(self):
        numbers = {"num_local_blocks": 8, "num_global_blocks": 3, "num_random_blocks": 1, "num_sliding_window_blocks": 5,
                   "local_window_blocks": [6], "global_block_indices": [0, 1]}
        here = {"local_window_blocks": ("num_local_blocks", 6), "global_block_indices": ("num_global_blocks", 2)}
        modes = {"fixed": ["num_local_blocks", "num_global_blocks"],
                 "bigbird": ["num_random_blocks", "num_sliding_window_blocks", "num_global_blocks"],
                 "bslongformer": ["num_sliding_window_blocks", "global_block_indices"],
                 "variable": ["num_random_blocks", "local_window_blocks", "global_block_indices"], "dense": []}
        for mode, read in modes.items():
            section = {"mode": mode, "block": 64, "attention": "unidirectional", **numbers}
            pathlib.Path("blocks.json").write_text(json.dumps({"sparse_attention": section}, indent=1))
            text = self.translate("blocks.json")
            found = tomllib.loads(text).get("sparse_attention", {})
            wanted = dict(here.get(name, (name, numbers[name])) for name in read)
            self.assertEqual({name: value for name, value in found.items() if name.startswith("num_")}, wanted, text)
            self.assertEqual(text.count(f"(it is not read in mode {mode})"), len(numbers) - len(read), text)

    def test_steps_ahead_of_the_norm_need_the_host_and_no_muon(self):
        for device, name, ahead in [("cpu", "AdamW", True), ("nvme", "AdamW", None), ("none", "AdamW", None), ("cpu", "Muon", None)]:
            offload = {"device": device, "nvme_path": "/nvme", "super_offload": True, "cpuadam_cores_perc": 0.8}
            zero = {"stage": 3, "offload_optimizer": offload, "zeropp_loco_param": {"err_beta": 0.8}}
            file = {"train_batch_size": 4, "optimizer": {"type": name}, "zero_optimization": zero}
            pathlib.Path("ahead.json").write_text(json.dumps(file))
            result = zt.run(0, ["translate", "ahead.json", "--to", "ahead.toml"], timeout=30)
            names = "1 name" if ahead else "2 names"
            self.assertIn(f"ahead.toml: {names} without a counterpart: see the end of ahead.toml", result.out)
            text = pathlib.Path("ahead.toml").read_text()
            self.assertIs(tomllib.loads(text).get("offload", {}).get("optimizer_ahead"), ahead, text)
            words = ["check", "ahead.toml", "--without-files", *zt.words_of({"run.steps": 10, **UNKNOWN_MODEL})]
            result = zt.run(0, words, timeout=60)
            self.assertEqual(result.code, 0, str(result))

    def test_a_deck_goes_back_to_accelerate(self):
        deck = self.write_deck("fsdp", {"sharding.strategy": "FULL_SHARD", "recompute.mode": "full", "precision.preset": "bf16"})
        result = zt.run(0, ["translate", deck, "--to-accelerate", "--ranks", 4], timeout=30)
        self.assertEqual(result.code, 0, str(result))
        for line in ("distributed_type: FSDP", "  fsdp_reshard_after_forward: true", "  fsdp_activation_checkpointing: true",
                     "mixed_precision: 'bf16'", "num_processes: 4"):
            self.assertIn(line + "\n", result.out)
        self.assertIn("optimizer.lr = 0.003: no counterpart in this file", result.err)
        pathlib.Path("again.yaml").write_text(result.out)
        again = tomllib.loads(self.translate("again.yaml"))
        self.assertEqual((again["sharding"]["strategy"], again["recompute"]["mode"]), ("FULL_SHARD", "full"))


if __name__ == "__main__":
    zt.main()
