"""What transformers and PEFT make of tiny models of each family, held against ztrain.

tools/parity/against_transformers.py --golden writes tests/regress/golden; tools/parity/golden.py says what is there.
"""

import json

import hf_model as hf
import numpy as np
import ztrain_run as zt

GOLDEN = zt.SOURCE / "tests" / "regress" / "golden"
MODELS = ("llama", "mistral", "qwen2", "qwen3")


def golden(model):
    return json.loads((GOLDEN / model / "golden.json").read_text())


class Numbers(zt.Case):
    """Runs and generation, held against the golden numbers."""

    @classmethod
    def sections(cls):
        """All else comes with the golden numbers."""
        return {"checkpoint": {"resume": "none"}}

    def run_as(self, run, model, ranks, name, overrides=None):
        paths = {"data.train": [str(GOLDEN / run["data"])], "model.from": str(GOLDEN / model)}
        deck = self.write_deck(name, {**run["settings"], **paths})
        return self.train(ranks, name, overrides, deck)

    def agree(self, model, name, ranks, mesh=None, keys=None, later=1e-5):
        """The losses of each step of a run. mesh: axes that are not the default's. later: allowed behind the first step."""
        run = golden(model)["runs"][name]
        where = "_".join([model, name, str(ranks), *(f"{axis}{size}" for axis, size in (mesh or {}).items())])
        axes = {f"mesh.{axis}": size for axis, size in (mesh or {}).items()}
        losses = zt.losses(self.run_as(run, model, ranks, where, {"checkpoint.interval": -1, **axes, **(keys or {})}))
        self.assertEqual(len(losses), len(run["losses"]), where)
        for step, expected in enumerate(run["losses"], 1):
            difference = abs(losses[step][0] / expected - 1)
            self.assertLess(difference, 2e-6 if step == 1 else later, f"{where}, step {step}")

    def generate(self, model, ranks, *words):
        prompt = ",".join(map(str, golden(model)["prompt"]))
        result = zt.run(ranks, ["generate", GOLDEN / model, "--dtype", "fp32", "--prompt-ids", prompt, *words])
        self.assertEqual(result.code, 0, str(result))
        return result.out

    def assert_logits(self, model, file):
        rows = np.fromfile(file, "<f4").reshape(len(golden(model)["prompt"]), -1)
        for token, expected in golden(model)["logits"].items():
            difference = float(abs(rows[int(token)] - np.array(expected)).max())
            self.assertLess(difference, 1e-4, f"{file.name}, token {token}")

    def logits_agree(self, model):
        """The logits of a prompt at once, also of one that is longer than the model's context."""
        file, length = self.folder / f"{model}_whole.bin", len(golden(model)["prompt"])
        self.generate(model, 0, "--tokens", "0", "--max-length", length, "--logits", file)
        self.assert_logits(model, file)

    def texts_agree(self, model, ranks, *words):
        """The logits of a prompt, and the tokens that follow it greedily."""
        file, expected = self.folder / f"{model}_{'_'.join(map(str, words))}.bin", golden(model)["greedy"]
        greedily = ["--tokens", len(expected), "--temperature", "0", "--eos", "-1", "--logits", file]
        found = [int(token) for token in self.generate(model, ranks, *greedily, *words).split()]
        self.assertEqual(found, expected, model)
        self.assert_logits(model, file)

    def adapters_start_alike(self, model):
        """The adapters that a run draws are those that PEFT trained."""
        still = {**zt.STILL, "run.steps": 1}
        output = self.run_as(golden(model)["runs"]["lora"], model, 2, f"{model}_start", still)
        folder = self.folder / f"{model}_adapters"
        words = ["export", output / "checkpoints" / "step_1", "--to", folder, "--adapter", "--dtype", "fp32"]
        result = zt.run(0, words)
        self.assertEqual(result.code, 0, str(result))
        self.assertEqual(hf.read_folder(folder), hf.read_folder(GOLDEN / model / "lora"), model)


    def evaluate(self, model, ranks, *words):
        result = zt.run(ranks, ["evaluate", GOLDEN / model, "--dtype", "fp32", "--json", *words])
        self.assertEqual(result.code, 0, str(result))
        return json.loads(result.out)

    def evaluations_agree(self, model, ranks, *words):
        """Losses of both files are those before the first step of runs from the folder's own weights; log-probabilities of choices."""
        runs = [run for run in golden(model)["runs"].values() if "lora.quantization" not in run["settings"]]
        expected = {run["data"]: run["losses"][0] for run in runs}
        files = [str(GOLDEN / name) for name in expected]
        found = self.evaluate(model, ranks, "--sequence", 64, *words, "--data", *files)["files"]
        self.assertEqual([file["file"] for file in found], files)
        for file, loss in zip(found, expected.values()):
            self.assertLess(abs(file["loss"] / loss - 1), 2e-6, f"{model} {words} {file['file']}")
        items = self.evaluate(model, ranks, *words, "--choices", GOLDEN / "choices.jsonl")["items"]
        self.assertEqual(len(items), len(golden(model)["choices"]))
        for item, choices in zip(items, golden(model)["choices"]):
            difference = abs(np.array(item["log_probabilities"]) / choices - 1).max()
            self.assertLess(difference, 2e-6, f"{model} {words} {item}")


class Golden(Numbers):
    def test_windows(self):
        for model in MODELS:
            self.agree(model, "windows", 2)
        self.agree("llama", "windows", 4)

    def test_heads_and_words_over_ranks(self):
        for model, two, four in (
            ("llama", "windows", "documents"),
            ("mistral", "frozen", "lora"),
            ("qwen2", "documents", "windows"),
            ("qwen3", "documents", "windows"),
        ):
            self.agree(model, two, 2, {"tensor": 2})
            self.agree(model, four, 4, {"tensor": 4})

    def test_tokens_over_ranks(self):
        for model, name, size, method in (
            ("llama", "documents", 2, "ring"),
            ("llama", "documents", 4, "ulysses"),  # heads between two, keys round two
            ("mistral", "windows", 2, "gather"),
            ("mistral", "documents", 4, "ring"),
            ("qwen2", "lora", 2, "ulysses"),
            ("qwen2", "documents", 4, "ring"),
            ("qwen3", "documents", 2, "ulysses"),
            ("qwen3", "windows", 4, "gather"),
        ):
            self.agree(model, name, size, {"context": size}, {"context.method": method})

    def test_packed_documents_are_documents_alone(self):
        for model in MODELS:
            self.agree(model, "documents", 2)
        self.agree("llama", "documents", 1)
        self.agree("qwen2", "documents", 4)

    def test_frozen_parameters(self):
        for model in ("llama", "qwen3"):
            self.agree(model, "frozen", 2)

    def test_whole_matrices(self):
        """Small singular values grow by up to 490 in a step, and with them what PyTorch's fp32 rounded."""
        for name, ranks, mesh in (
            ("muon", 1, {}),
            ("muon", 2, {}),
            ("muon", 4, {"tensor": 4}),
            ("muon_spectral", 4, {"pipeline": 2, "tensor": 2}),
        ):
            self.agree("llama", name, ranks, mesh, later=4e-5)

    def test_adapters(self):
        for model in MODELS:
            self.agree(model, "lora", 2)
        self.agree("qwen3", "lora", 4)

    def test_adapters_beside_weights_in_few_bits(self):
        for form, ranks, mesh in (
            ("nf4_double", 1, {}),
            ("nf4_double", 4, {"pipeline": 2}),
            ("nf4", 2, {"context": 2}),
            ("fp4_double", 2, {}),
            ("fp4", 4, {"replicate": 2}),
            ("int8", 2, {"tensor": 2}),
        ):
            self.agree("llama", form, ranks, mesh)

    def test_adapters_with_magnitudes(self):
        for model, name, ranks, mesh, keys in (
            ("llama", "dora", 1, {}, {}),
            ("llama", "dora", 4, {"tensor": 4}, {}),  # ranks share heads of keys
            ("llama", "dora_nf4", 2, {}, {"recompute.mode": "full"}),
            ("qwen2", "dora", 2, {"tensor": 2}, {}),
            ("qwen2", "dora", 4, {"pipeline": 2, "context": 2}, {}),
            ("starcoder2", "dora", 2, {"tensor": 2}, {"tensor.sequence_parallel": False}),
            ("glm4", "dora", 4, {"pipeline": 2, "tensor": 2}, {"pipeline.schedule": "zb-h1"}),
        ):
            self.agree(model, name, ranks, mesh, keys)

    def test_adapters_start_as_those_that_peft_trained(self):
        for model in MODELS:
            self.adapters_start_alike(model)

    def test_evaluations(self):
        for model, ranks, words in (
            ("llama", 0, []),
            ("mistral", 4, ["--batch", 1]),
            ("qwen2", 2, ["--tensor", 2]),
            ("qwen3", 4, ["--pipeline", 2, "--mesh.context=2"]),
        ):
            self.evaluations_agree(model, ranks, *words)

    def test_logits_of_a_prompt_at_once(self):
        for model in MODELS:
            self.logits_agree(model)

    def test_logits_of_a_prompt_in_chunks_and_the_likeliest_tokens(self):
        for model in MODELS:
            self.texts_agree(model, 2, "--chunk", "16")

    def test_generation_by_heads_over_ranks(self):
        for model, ranks, tensor in (("llama", 2, 2), ("qwen3", 4, 2), ("qwen2", 4, 4)):
            self.texts_agree(model, ranks, "--tensor", tensor)


if __name__ == "__main__":
    zt.main()
