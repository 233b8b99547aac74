"""Generation: logits and tokens against a plain forward pass in numpy, on any number of ranks and in any chunks."""

import json

import hf_model as hf
import numpy as np
import ztrain_run as zt

CONFIG = {**hf.CONFIG, "eos_token_id": []}
VOCABULARY = CONFIG["vocab_size"]


def frequencies(config):
    """Angle of a position by pair of elements, with Llama 3's stretching."""
    pairs = config["head_dim"] // 2
    rates = config["rope_theta"] ** (-np.arange(pairs) / pairs)
    scaling = config["rope_scaling"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = scaling["original_max_position_embeddings"] * rates / (2 * np.pi)
    blend = np.clip((turns - low) / (high - low), 0, 1)
    return rates * (blend + (1 - blend) / scaling["factor"])


def forward(config, weights, tokens):
    """Logits [tokens, vocabulary] in float64, everything at once."""

    def norm(x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + config["rms_norm_eps"]) * weights[name + ".weight"]

    def heads(x, name, count):
        y = x @ weights[name + ".weight"].T
        return y.reshape(len(x), count, config["head_dim"]).transpose(1, 0, 2)

    angles = np.outer(np.arange(len(tokens)), frequencies(config))

    def rotate(x):
        a, b = np.split(x, 2, axis=-1)
        return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], -1)

    h = weights["model.embed_tokens.weight"][tokens]
    count, shared = config["num_attention_heads"], config["num_key_value_heads"]
    future = np.triu(np.ones((len(tokens), len(tokens)), bool), 1)
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        x = norm(h, p + "input_layernorm")
        q = rotate(heads(x, p + "self_attn.q_proj", count))
        k = np.repeat(rotate(heads(x, p + "self_attn.k_proj", shared)), count // shared, axis=0)
        v = np.repeat(heads(x, p + "self_attn.v_proj", shared), count // shared, axis=0)
        scores = np.where(future, -np.inf, q @ k.transpose(0, 2, 1) / np.sqrt(config["head_dim"]))
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        o = (scores / scores.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(len(tokens), -1)
        h = h + o @ weights[p + "self_attn.o_proj.weight"].T
        x = norm(h, p + "post_attention_layernorm")
        gate = x @ weights[p + "mlp.gate_proj.weight"].T
        up = x @ weights[p + "mlp.up_proj.weight"].T
        h = h + (gate / (1 + np.exp(-gate)) * up) @ weights[p + "mlp.down_proj.weight"].T
    return norm(h, "model.norm") @ weights["lm_head.weight"].T


class Generates(hf.Models):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = cls.write_model("generates", cls.tensors, config=CONFIG)
        cls.weights = {
            name: np.frombuffer(value, "<f4").reshape(shape).astype(np.float64)
            for name, (_, shape, value) in cls.tensors.items()
        }
        cls.prompt = np.random.default_rng(5).integers(0, VOCABULARY, 150).tolist()

    def words(self, prompt, *words, model=None):
        ids = ["--prompt-ids", ",".join(str(t) for t in prompt)] if prompt else []
        dtype = [] if "--dtype" in words else ["--dtype", "fp32"]
        return ["generate", model or self.model, *dtype, *ids, *words]

    def generate(self, prompt, *words, ranks=0, model=None):
        result = zt.run(ranks, self.words(prompt, *words, model=model))
        self.assertEqual(result.code, 0, str(result))
        self.last = result
        return [[int(t) for t in line.split()] for line in result.out.splitlines()]

    def logits(self, prompt, *words, ranks=0, model=None):
        path = self.folder / "logits.bin"
        self.generate(prompt, "--tokens", 0, "--logits", path, *words, ranks=ranks, model=model)
        return np.fromfile(path, "<f4").reshape(-1, VOCABULARY)

    def refused(self, words, *patterns, ranks=2):
        self.assert_refused(zt.run(ranks, words, timeout=30), *patterns)


class Numbers(Generates):
    def test_logits_are_those_of_a_plain_forward_pass(self):
        expected = forward(CONFIG, self.weights, self.prompt)
        for chunk in (1, 64, 128):
            found = self.logits(self.prompt, "--chunk", chunk)
            self.assertEqual(found.shape, expected.shape)
            self.assertLess(np.abs(found - expected).max(), 1e-5 * np.abs(expected).max(), f"chunks of {chunk}")
        double = self.logits(self.prompt, "--chunk", 7, "--dtype", "fp64")
        self.assertLess(np.abs(double - expected).max(), 2e-7 * np.abs(expected).max())
        for dtype, bound in (("bf16", 0.05), ("fp16", 0.005)):
            found = self.logits(self.prompt, "--dtype", dtype)
            self.assertLess(np.abs(found - expected).max(), bound * np.abs(expected).max(), dtype)

    def test_logits_of_a_prefix_are_the_first_of_the_whole(self):
        whole = self.logits(self.prompt[:140], "--chunk", 64)
        for length in (1, 64, 65, 129):
            found = self.logits(self.prompt[:length], "--chunk", 64)
            self.assertLess(np.abs(found - whole[:length]).max(), 1e-5 * np.abs(whole).max(), str(length))

    def test_greedy_tokens_are_those_of_a_forward_pass_of_everything_each_time(self):
        tokens = self.prompt[:70]
        for _ in range(40):
            tokens.append(int(forward(CONFIG, self.weights, tokens)[-1].argmax()))
        for chunk in (1, 32, 128):
            words = ["--temperature", 0, "--tokens", 40, "--chunk", chunk]
            self.assertEqual(self.generate(self.prompt[:70], *words), [tokens[70:]], f"chunks of {chunk}")

    def test_every_number_of_ranks_gives_the_same(self):
        greedy = ["--temperature", 0, "--tokens", 30, "--chunk", 64]
        drawn = ["--temperature", 1.5, "--top-p", 0.9, "--tokens", 30, "--seed", 3]
        for words in (greedy, drawn):
            one = self.generate(self.prompt, *words)
            self.assertEqual(len(one[0]), 30)
            for ranks in (1, 2, 4):
                self.assertEqual(self.generate(self.prompt, *words, ranks=ranks), one)
        same = self.logits(self.prompt, "--chunk", 64)
        self.assertEqual(self.logits(self.prompt, "--chunk", 64, ranks=3).tobytes(), same.tobytes())

    def test_a_checkpoint_of_the_weights_gives_the_same(self):
        still = {**zt.STILL, "run.steps": 1, "model.from": "generates"}
        checkpoint = self.train(2, "still", still) / "checkpoints" / "step_1"
        prompt = self.prompt[:20]  # the run's sequences had 32 tokens
        self.assertEqual(
            self.logits(prompt, model=checkpoint, ranks=2).tobytes(), self.logits(prompt).tobytes()
        )
        words = ["--temperature", 0, "--tokens", 12]
        self.assertEqual(self.generate(prompt, *words, model=checkpoint), self.generate(prompt, *words))


class Asked(Generates):
    GREEDY = ("--temperature", 0)

    def test_draws_follow_the_seed(self):
        words = ["--tokens", 25, "--temperature", 2]
        one = self.generate(self.prompt[:9], *words, "--seed", 1)
        self.assertEqual(one, self.generate(self.prompt[:9], *words, "--seed", 1))
        self.assertNotEqual(one, self.generate(self.prompt[:9], *words, "--seed", 2))
        greedy = self.generate(self.prompt[:9], *self.GREEDY, "--tokens", 25)
        self.assertNotEqual(one, greedy)
        self.assertEqual(self.generate(self.prompt[:9], *words, "--top-k", 1), greedy)
        self.assertEqual(self.generate(self.prompt[:9], *words, "--top-p", 1e-6), greedy)

    def test_a_file_of_prompts(self):
        prompts = [self.prompt[:70], self.prompt[70:75], self.prompt[3:4]]
        path = self.folder / "prompts.txt"
        path.write_text("".join(" ".join(str(t) for t in p) + "\n" for p in prompts))
        words = [*self.GREEDY, "--tokens", 10, "--chunk", 32]
        expected = [self.generate(p, *words)[0] for p in prompts]
        self.assertEqual(self.generate([], "--prompt-file", path, *words, ranks=2), expected)
        rows = self.logits([], "--prompt-file", path)
        self.assertEqual(len(rows), 76)
        drawn = self.generate([], "--prompt-file", self.repeated(path), "--tokens", 20, "--temperature", 3)
        self.assertNotEqual(drawn[0], drawn[1], "every prompt has draws of its own")

    def repeated(self, path):
        line = path.read_text().splitlines()[1]
        twice = self.folder / "twice.txt"
        twice.write_text(f"{line}\n{line}\n")
        return twice

    def test_a_token_that_ends_the_text_is_the_last(self):
        whole = self.generate(self.prompt[:9], *self.GREEDY, "--tokens", 30)[0]
        last = whole[12]
        expected = whole[: whole.index(last) + 1]
        never = next(i for i in range(VOCABULARY) if i not in whole)
        words = [*self.GREEDY, "--tokens", 30, "--eos", f"{never},{last}"]
        self.assertEqual(self.generate(self.prompt[:9], *words), [expected])
        for name, content in (
            ("in_config", {"config.json": {**CONFIG, "eos_token_id": [last]}}),
            ("in_generation_config", {"config.json": CONFIG, "generation_config.json": {"eos_token_id": last}}),
        ):
            folder = self.write_model(name, self.tensors)
            for file, value in content.items():
                (folder / file).write_text(json.dumps(value))
            words = [*self.GREEDY, "--tokens", 30]
            self.assertEqual(self.generate(self.prompt[:9], *words, model=folder, ranks=2), [expected])
            self.assertEqual(self.generate(self.prompt[:9], *words, "--eos", -1, model=folder), [whole])

    def test_a_full_context_ends_with_a_message(self):
        message = r"the context of 20 tokens is full"
        full = self.generate(self.prompt[:15], *self.GREEDY, "--tokens", 30, "--max-length", 20, ranks=2)
        self.assertEqual(len(full[0]), 5)
        self.assertRegex(self.last.err, message)
        self.assertEqual(full[0], self.generate(self.prompt[:15], *self.GREEDY, "--tokens", 5, "--max-length", 20)[0])
        self.assertNotRegex(self.last.err, message)
        self.assertEqual(self.generate(self.prompt[:20], "--tokens", 3, "--max-length", 20), [[]])
        self.assertRegex(self.last.err, message)
        self.refused(self.words(self.prompt[:21], "--max-length", 20), r"a prompt has 21 tokens, more than the 20 of")

    def test_speed_and_memory_are_said(self):
        self.generate(self.prompt[:9], "--tokens", 5)
        self.assertRegex(self.last.err, r"memory per rank: weights [\d.]+ KiB in fp32, cache of 14 tokens 4\.38 KiB, all ")
        self.assertRegex(self.last.err, r"prefill 9 tokens, [\d.]+ tokens/s; decode 4 tokens, [\d.]+ tokens/s")

    def test_what_does_not_fit_is_refused_before_it_is_tried(self):
        self.refused(
            self.words([1], "--tokens", 2000000000, "--max-length", 2000000000),
            r"generation does not fit: \d ranks? on a node needs? [\d.]+ [TG]iB, of which [\d.]+ GiB are available",
            r"cache +[\d.]+ GiB",
            r"--max-length",
        )

    def test_prompts_that_are_none(self):
        path = self.folder / "bad.txt"
        for text, message in (
            ("1 2\n3 x\n", r"bad\.txt:2: 'x' is no token id"),
            ("1 2\n\n", r"bad\.txt:2: a prompt of no tokens"),
            ("1 99999999999\n", r"bad\.txt:1: '99999999999' is no token id"),
            ("", r"bad\.txt' is empty"),
        ):
            path.write_text(text)
            self.refused(self.words([], "--prompt-file", path), message)
        self.refused(self.words([], "--prompt-file", self.folder / "none"), r"--prompt-file: cannot read '.*none'")
        self.refused(self.words([1, 257]), r"token 257 of the prompt is outside the model's vocabulary of 257")
        self.refused(self.words([-1]), r"token -1 of the prompt is outside")
        self.refused(self.words([1], "--prompt", "a"), r"give one of: a text with --prompt, token ids")
        weights = self.model / "model.safetensors"
        self.refused(self.words([1], "--logits", weights), r"--logits: '\S+' would be written over, and this command reads")
        self.assertGreater(weights.stat().st_size, 0)
        self.refused(self.words([1], "--logits", self.folder / "no" / "file"), r"--logits: cannot write '.*file'")

    def test_weights_that_give_no_numbers_are_refused(self):
        big = dict(self.tensors)
        for name, (dtype, shape, value) in self.tensors.items():
            if "norm" in name:
                big[name] = (dtype, shape, np.full(shape, 3e38, "<f4").tobytes())
        folder = self.write_model("big", big, config=CONFIG)
        self.refused(self.words([1, 2], model=folder), r"(is NaN|are not finite)")

    def test_folders_that_hold_no_model(self):
        empty = self.folder / "empty"
        empty.mkdir(exist_ok=True)
        neither = r"is neither a checkpoint of ztrain \(a folder step_N\) nor a Hugging Face model .*: "
        self.refused(self.words([1], model=empty), neither + "give the folder of a checkpoint or of a model")
        hub = r"there is no such folder, nor '\S+'; .*: `hf download some-org/a-model --local-dir '\S+/some-org/a-model'`"
        self.refused(self.words([1], model="some-org/a-model"), neither + hub)
        (empty / "a.gguf").touch()
        self.refused(self.words([1], model=empty), neither + r"it has weights for llama\.cpp alone \('\S+/a\.gguf'\)")
        (empty / "config.json").write_text(json.dumps(CONFIG))
        self.refused(self.words([1], model=empty), r"holds neither model\.safetensors nor .*; it has weights for llama\.cpp")


if __name__ == "__main__":
    zt.main()
