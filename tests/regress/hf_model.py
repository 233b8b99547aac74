"""Hugging Face models: weights read on any mesh, written back bit for bit; broken folders are refused."""

import json
import math
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
    return draw_tensors(shapes(config), dtype, seed)


def draw_tensors(of_names, dtype, seed=1):
    """{name: (dtype, shape, bytes)} of {name: shape}: normal, norms near 1."""
    draw, tensors = random.Random(seed), {}
    for name, shape in of_names.items():
        mean, spread = (1, 0.2) if len(shape) == 1 else (0, 0.15)
        values = [draw.gauss(mean, spread) for _ in range(math.prod(shape))]
        tensors[name] = (dtype, shape, encode(values, dtype))
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

    def model_keys(self):
        keys = {f"model.{k}": v for k, v in CONFIG.items() if k in zt.SMALL_MODEL}
        return {**keys, "model.head_dim": CONFIG["head_dim"]}

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
        for end, turn_end, noted in ((5, 13, "5"), (13, 7, "7"), (5, 7, "5, 7"), (13, 12, ""), (-1, 12, "")):
            about = {"tokenizer_hash": "0" * 16, "vocab_size": 257, "eos_id": end, "turn_end_ids": turn_end}
            token_files.write_tokens(self.folder / "ends.h5", 40 * [range(30)], None, about)
            result = zt.run(0, ["check", self.deck, "--data.train=ends.h5"])
            self.assertEqual(result.code, 0, str(result))
            told = rf"texts of the data end with token {noted}, and those of \S+/model with 12, 13: generation stops at"
            (self.assertRegex if noted else self.assertNotRegex)(result.out, told if noted else "texts of the data end with")

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

    def test_a_tied_head_that_differs_is_kept_unless_the_deck_ties_it(self):
        config, key, name = {"tie_word_embeddings": True}, "model.tie_word_embeddings", "lm_head.weight"
        own = self.write_model("own_head", self.tensors, config=config)
        embedding = self.tensors["model.embed_tokens.weight"]
        near = bytes(b ^ (i % 4 == 0) for i, b in enumerate(embedding[2]))  # the same in bf16
        near_tensors = {**self.tensors, name: (*embedding[:2], near)}
        self.write_model("near_head", near_tensors, config=config)
        told = r"lm_head\.weight differs from model\.embed_tokens\.weight, although config\.json ties them"
        for model in ("own_head", "near_head", "model"):
            result = zt.run(0, ["check", self.deck, f"--model.from={model}"])
            self.assertEqual(result.code, 0, str(result))
            (self.assertNotRegex if model == "model" else self.assertRegex)(result.out, told)
        self.assertEqual(zt.run(0, ["generate", own, "--prompt-ids", 5, "--tokens", 1]).code, 0)
        for model, tensors in (("own_head", self.tensors), ("near_head", near_tensors)):
            for said, overrides in (("silent", None), ("false", {key: "false"})):
                kept = self.export(self.still(f"{model}_{said}", model, 2, overrides), f"export_{model}_{said}")
                self.assertEqual(read_folder(kept), tensors)
                self.assertFalse(json.loads((kept / "config.json").read_text())["tie_word_embeddings"])
        left = self.export(self.still("own_left", "own_head", 0, {key: "true"}), "export_left")
        self.assertEqual(read_folder(left), {n: t for n, t in self.tensors.items() if n != name})

    def test_a_tied_head_of_another_dtype_is_compared_when_it_is_read(self):
        config = {"tie_word_embeddings": True}
        values = struct.unpack(f"<{257 * 36}f", self.tensors["lm_head.weight"][2])
        head = {"lm_head.weight": ("BF16", [257, 36], encode(values, "BF16"))}
        self.write_model("other_dtype", {**self.tensors, **head}, config=config)
        differs = r"lm_head\.weight differs from model\.embed_tokens\.weight \(at element \d+\).* set model\.tie_word"
        keys = ["--model.from=other_dtype", f"--run.output={self.folder / 'refused'}"]
        for ranks, words in ((0, ["check", self.deck]), (2, [self.deck])):
            self.assert_refused(zt.run(ranks, [*words, *keys]), differs, times=ranks or 1)

    def test_the_first_part_of_names_may_be_missing(self):
        bare = {name.removeprefix("model."): tensor for name, tensor in self.tensors.items()}
        self.write_model("bare", bare)
        self.assertEqual(read_folder(self.export(self.still("still_bare", "bare"), "export_bare")), self.tensors)

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


if __name__ == "__main__":
    zt.main()
