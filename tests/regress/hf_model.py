"""Hugging Face models: weights read on any mesh, written back bit for bit; broken folders are refused."""

import json
import pathlib
import random
import struct

import token_files
import ztrain_run as zt

# Dims that are no multiples of each other, with a head_dim of its own.
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_act": "silu",
    "hidden_size": 36,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "vocab_size": 257,
    "rms_norm_eps": 1e-6,
    "rope_theta": 500000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "tie_word_embeddings": False,
    "bos_token_id": 11,
    "eos_token_id": [12, 13],
    "max_position_embeddings": 777,
}


def shapes(config):
    """{name: shape} of the tensors of a model."""
    hidden, inner, head_dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, keys = head_dim * config["num_attention_heads"], head_dim * config["num_key_value_heads"]
    found = {"model.embed_tokens.weight": [config["vocab_size"], hidden]}
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        found.update(
            {
                p + "input_layernorm.weight": [hidden],
                p + "self_attn.q_proj.weight": [queries, hidden],
                p + "self_attn.k_proj.weight": [keys, hidden],
                p + "self_attn.v_proj.weight": [keys, hidden],
                p + "self_attn.o_proj.weight": [hidden, queries],
                p + "post_attention_layernorm.weight": [hidden],
                p + "mlp.gate_proj.weight": [inner, hidden],
                p + "mlp.up_proj.weight": [inner, hidden],
                p + "mlp.down_proj.weight": [hidden, inner],
            }
        )
        qwen = {c[:5] for c in config["architectures"] if c.startswith("Qwen")}
        if config.get("attention_bias") or "Qwen2" in qwen:
            for which, width in (("q", queries), ("k", keys), ("v", keys)):
                found[f"{p}self_attn.{which}_proj.bias"] = [width]
        if config.get("attention_bias"):
            found[p + "self_attn.o_proj.bias"] = [hidden]
        if "Qwen3" in qwen:
            found[p + "self_attn.q_norm.weight"] = found[p + "self_attn.k_norm.weight"] = [head_dim]
    found["model.norm.weight"] = [hidden]
    if not config["tie_word_embeddings"]:
        found["lm_head.weight"] = [config["vocab_size"], hidden]
    return found


def encode(values, dtype):
    if dtype == "F16":
        return struct.pack(f"<{len(values)}e", *values)
    bits = struct.pack(f"<{len(values)}f", *values)
    if dtype == "F32":
        return bits
    return b"".join(bits[i + 2 : i + 4] for i in range(0, len(bits), 4))  # cut to bf16


def make_tensors(config, dtype, seed=1):
    """{name: (dtype, shape, bytes)}: normal, norms near 1."""
    draw, tensors = random.Random(seed), {}
    for name, shape in shapes(config).items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        mean, spread = (1, 0.2) if len(shape) == 1 else (0, 0.15)
        tensors[name] = (dtype, shape, encode([draw.gauss(mean, spread) for _ in range(count)], dtype))
    return tensors


def write_file(path, tensors):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (dtype, shape, value) in tensors.items():
        begin = len(data)
        data += value
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_file(path):
    """{name: (dtype, shape, bytes)} of a safetensors file."""
    content, tensors = path.read_bytes(), {}
    (length,) = struct.unpack("<Q", content[:8])
    for name, entry in json.loads(content[8 : 8 + length]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            value = content[8 + length + begin : 8 + length + end]
            tensors[name] = (entry["dtype"], entry["shape"], value)
    return tensors


def read_folder(folder):
    """The tensors of all safetensors files."""
    tensors = {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        tensors.update(read_file(path))
    return tensors


class Models(zt.Case):
    """A deck that starts from a model, which lies beside it."""

    @classmethod
    def sections(cls):
        sections = super().sections()
        sections["model"] = {"from": str(cls.folder / "model")}
        sections["run"]["steps"] = 2
        return sections

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tensors = make_tensors(CONFIG, "F32")
        cls.write_model("model", cls.tensors)

    @classmethod
    def write_model(cls, name, tensors, files=1, config=None):
        folder = cls.folder / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({**CONFIG, **(config or {})}))
        if files == 1:
            write_file(folder / "model.safetensors", tensors)
            return folder
        weight_map, names = {}, list(tensors)
        for f in range(files):
            file = f"model-{f + 1:05}-of-{files:05}.safetensors"
            mine = names[f::files]
            write_file(folder / file, {n: tensors[n] for n in mine})
            weight_map.update({n: file for n in mine})
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
        return folder

    # A step that changes nothing: the checkpoint after it holds what was read.
    STILL = {**zt.STILL, "run.steps": 1}

    def still(self, name, model, ranks=2, overrides=None):
        output = self.train(ranks, name, {**self.STILL, "model.from": model, **(overrides or {})})
        return output / "checkpoints" / "step_1"

    def export(self, checkpoint, name, *words, ranks=0):
        result = zt.run(ranks, ["export", checkpoint, "--to", self.folder / name, *words])
        self.assertEqual(result.code, 0, str(result))
        self.assertFalse((self.folder / f"{name}.tmp").exists())
        return self.folder / name


class ReadAndWrite(Models):
    def test_the_first_loss_is_the_same_on_every_mesh(self):
        first = {}
        for ranks in (1, 2, 4):
            per_strategy = {}
            for strategy in ("FULL_SHARD", "NO_SHARD", "SHARD_GRAD_OP"):
                overrides = {"sharding.strategy": strategy, "batch.micro": 4 // ranks}
                output = self.train(ranks, f"{strategy}_{ranks}", overrides)
                per_strategy[strategy] = zt.losses(output)
            self.assert_same(per_strategy["FULL_SHARD"], per_strategy["NO_SHARD"])
            self.assert_same(per_strategy["FULL_SHARD"], per_strategy["SHARD_GRAD_OP"])
            first[ranks] = per_strategy["FULL_SHARD"][1][0]
        self.assertLess(abs(first[1] - first[4]), 1e-6 * first[1])
        self.assertLess(abs(first[1] - first[2]), 1e-6 * first[1])
        drawn = self.train(1, "drawn", {**self.model_keys(), "model.from": ""})
        self.assertGreater(abs(zt.losses(drawn)[1][0] - first[1]), 1e-3, "the weights were not read")

    def model_keys(self):
        keys = {f"model.{k}": v for k, v in CONFIG.items() if k in zt.SMALL_MODEL}
        return {**keys, "model.head_dim": CONFIG["head_dim"]}

    def test_what_was_read_is_written(self):
        for strategy in ("FULL_SHARD", "NO_SHARD"):
            checkpoint = self.still(f"still_{strategy}", "model", 4, {"sharding.strategy": strategy})
            name = f"export_{strategy}"
            self.assertEqual(read_folder(self.export(checkpoint, name)), self.tensors)
        config = json.loads((self.folder / name / "config.json").read_text())
        for key, value in CONFIG.items():
            self.assertEqual(config[key], value, key)
        self.assertEqual(config["torch_dtype"], "float32")

    def test_bf16_and_fp16_weights_keep_their_bits(self):
        for dtype, name in (("BF16", "bf16"), ("F16", "fp16")):
            tensors = make_tensors(CONFIG, dtype)
            self.write_model(name, tensors, files=3)
            checkpoint = self.still(f"still_{name}", name)
            exported = self.export(checkpoint, f"export_{name}", "--dtype", name, ranks=2)
            self.assertEqual(read_folder(exported), tensors)
            again = self.still(f"again_{name}", f"export_{name}")
            self.assert_same_tensors(checkpoint, again)

    def test_many_files(self):
        checkpoint = self.still("still_files", "model")
        total = sum(len(value) for _, _, value in self.tensors.values())
        for name, most, files in (("two", 0.6 * total, range(2, 3)), ("many", 30_000, range(6, 100))):
            exported = self.export(checkpoint, f"export_{name}", "--max-shard-size", f"{most / 1e9:.9f}")
            self.assertIn(len(list(exported.glob("model-0*.safetensors"))), files)
            self.assertEqual(read_folder(exported), self.tensors)
            index = json.loads((exported / "model.safetensors.index.json").read_text())
            self.assertEqual(sorted(index["weight_map"]), sorted(self.tensors))
            self.assertEqual(index["metadata"]["total_size"], total)
            self.assert_same_tensors(checkpoint, self.still(f"again_{name}", f"export_{name}"))

    def test_a_sequence_beyond_the_models_context_is_noted(self):
        for sequence, noted in ((777, False), (778, True)):
            result = zt.run(0, ["check", self.deck, f"--data.sequence={sequence}"])
            self.assertEqual(result.code, 0, str(result))
            self.assertEqual("above the 777 tokens" in result.out, noted, str(result))

    def test_texts_that_end_otherwise_than_the_models_are_noted(self):
        for end, noted in ((5, True), (13, False), (-1, False)):
            about = {"tokenizer_hash": "0" * 16, "vocab_size": 257, "eos_id": end}
            token_files.write_tokens(self.folder / "ends.h5", 40 * [range(30)], None, about)
            result = zt.run(0, ["check", self.deck, "--data.train=ends.h5"])
            self.assertEqual(result.code, 0, str(result))
            told = r"warning: texts of the data end with token 5, but the files of \S+/model end a text at 12, 13: "
            (self.assertRegex if noted else self.assertNotRegex)(result.out, told)

    def test_a_tied_head_may_be_there_or_not(self):
        config = {"tie_word_embeddings": True}
        tensors = {n: t for n, t in self.tensors.items() if n != "lm_head.weight"}
        self.write_model("tied", tensors, config=config)
        rotary = {"model.layers.0.self_attn.rotary_emb.inv_freq": ("F32", [5], bytes(20))}
        same = {"lm_head.weight": tensors["model.embed_tokens.weight"]}
        self.write_model("tied_with_head", {**tensors, **same, **rotary}, config=config)
        one, other = self.still("still_tied", "tied"), self.still("still_head", "tied_with_head")
        self.assert_same_tensors(one, other)
        self.assertEqual(read_folder(self.export(one, "export_tied")), tensors)

    def test_a_tied_head_that_differs_is_kept_or_left_out_as_the_deck_says(self):
        config, key = {"tie_word_embeddings": True}, "model.tie_word_embeddings"
        self.write_model("own_head", self.tensors, config=config)
        differs = r"lm_head\.weight differs from model\.embed_tokens\.weight \(at element \d+\).* set model\.tie_word"
        keys = ["--model.from=own_head", f"--run.output={self.folder / 'refused'}"]
        for ranks, words in ((0, ["check", self.deck]), (2, [self.deck])):
            self.assert_refused(zt.run(ranks, [*words, *keys]), differs, times=ranks or 1)
        name, embedding = "lm_head.weight", self.tensors["model.embed_tokens.weight"]
        near = bytes(b ^ (i % 4 == 0) for i, b in enumerate(embedding[2]))  # the same in bf16
        self.write_model("near_head", {**self.tensors, name: (*embedding[:2], near)}, config=config)
        nearly = ["--model.from=near_head", "--precision.preset=bf16-pure", keys[1]]
        for ranks, words in ((0, ["check", self.deck]), (2, [self.deck])):
            self.assert_refused(zt.run(ranks, [*words, *nearly]), differs, times=ranks or 1)
        generate = ["generate", self.folder / "own_head", "--prompt-ids", 5]
        self.assert_refused(zt.run(0, generate), differs)
        kept = self.export(self.still("own_kept", "own_head", 2, {key: "false"}), "export_kept")
        self.assertEqual(read_folder(kept), self.tensors)
        self.assertFalse(json.loads((kept / "config.json").read_text())["tie_word_embeddings"])
        left = self.export(self.still("own_left", "own_head", 0, {key: "true"}), "export_left")
        self.assertEqual(read_folder(left), {n: t for n, t in self.tensors.items() if n != "lm_head.weight"})

    def test_the_index_says_which_of_two_tensors_counts(self):
        folder = self.write_model("twice", self.tensors, files=2)
        head = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]["lm_head.weight"]
        for path in folder.glob("*.safetensors"):
            if path.name != head:
                other = (*self.tensors["lm_head.weight"][:2], self.tensors["model.embed_tokens.weight"][2])
                write_file(path, {**read_file(path), "lm_head.weight": other})
        self.assertEqual(read_folder(self.export(self.still("still_twice", "twice", 0), "export_twice")), self.tensors)

    def test_a_resumed_run_keeps_its_weights(self):
        steps = {"run.steps": 4, "checkpoint.resume": "auto", "schedule.name": "constant"}
        self.write_model("gone", self.tensors)
        whole = zt.losses(self.train(2, "whole", {**steps, "model.from": "gone"}))
        half = self.train(2, "half", {**steps, "model.from": "gone", "run.steps": 2})
        for path in (self.folder / "gone").glob("*.safetensors"):
            path.unlink()
        self.train(2, "half", {**steps, "model.from": "gone"})
        self.assert_same(whole, zt.losses(half))
        # The exported config does not need the folder either.
        (self.folder / "gone" / "config.json").unlink()
        exported = self.export(half / "checkpoints" / "step_4", "export_half")
        self.assertEqual(json.loads((exported / "config.json").read_text())["head_dim"], 10)

    def test_exports_that_cannot_be(self):
        checkpoint = self.still("still_refused", "model")
        exists = self.folder / "exists"
        exists.mkdir()
        for words, message in (
            ([checkpoint, "--to", exists], r"'.*exists' exists: give another folder"),
            ([self.folder, "--to", self.folder / "no"], r"index\.h5"),
            ([checkpoint, "--to", self.deck / "x"], r"cannot make the folder"),
        ):
            self.assert_refused(zt.run(0, ["export", *words]), message)
        big = dict(self.tensors)
        dtype, shape, value = big["model.norm.weight"]
        big["model.norm.weight"] = (dtype, shape, struct.pack("<f", 1e5) + value[4:])
        self.write_model("big", big)
        saved = self.still("still_big", "big")
        for model in ("big", saved):
            half = zt.run(0, [self.deck, f"--model.from={model}", "--precision.preset=deepspeed-fp16"])
            self.assert_refused(half, r"tensor model\.norm\.weight holds what fp16 cannot hold .*: set precision\.parameters to bf16")
        words = ["export", saved, "--to", self.folder / "half_big", "--dtype", "fp16"]
        self.assert_refused(zt.run(0, words), r"model\.norm\.weight holds NaN or infinity, or what fp16 cannot")
        self.assertEqual(list(self.folder.glob("half_big*")), [])


class Broken(Models):
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
            r"2 missing: model\.layers\.1\.mlp\.up_proj\.weight, model\.norm\.weight",
            r"1 unexpected: model\.layers\.9\.mlp\.up_proj\.weight",
            r"1 of another shape: model\.layers\.0\.self_attn\.q_proj\.weight \[36, 40\] \(the model's is \[40, 36\]\)",
        )

    def test_long_lists_are_cut(self):
        self.write_model("empty", {})
        self.refused("empty", rf"{len(self.tensors)} missing: (\S+, ){{10}}\.\.\.")

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
        self.refused("cut", r"weights are in model-00002-of-00003\.safetensors, which is not there; give a complete folder")
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
        self.write_model("other", self.tensors, config={"architectures": ["MixtralForCausalLM"]})
        self.refused("other", r"MixtralForCausalLM.*not supported; ztrain reads LlamaForCausalLM, Mistral")
        self.write_model("wide", self.tensors, config={"intermediate_size": 96})
        self.refused("wide", r"6 of another shape")
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


if __name__ == "__main__":
    zt.main()
