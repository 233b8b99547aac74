"""`ztrain evaluate`: losses against a plain forward pass in numpy and against the validation of a run, accuracies of
multiple choice, on any ranks; what cannot be evaluated is refused in one message."""

import json
import math
import re
import shutil
import subprocess
import sys

import generate
import hf_model as hf
import numpy as np
import token_files
import ztrain_run as zt

sys.path.insert(0, str(zt.SOURCE / "tools"))
import prepare_choices  # noqa: E402

SEQUENCE = 32


def log_softmax(rows):
    rows = rows - rows.max(-1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(-1, keepdims=True))


class Evaluates(hf.Models):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = cls.write_model("evaluated", cls.tensors, config=generate.CONFIG)
        cls.weights = {
            name: np.frombuffer(value, "<f4").reshape(shape).astype(np.float64)
            for name, (_, shape, value) in cls.tensors.items()
        }

    def run_it(self, words, ranks=0, model=None):
        dtype = [] if "--dtype" in words else ["--dtype", "fp32"]
        return zt.run(ranks, ["evaluate", model or self.model, *dtype, *words])

    def evaluate(self, *words, ranks=0, model=None):
        result = self.run_it(["--json", *words], ranks, model)
        self.assertEqual(result.code, 0, str(result))
        return json.loads(result.out)

    def predicted(self, tokens):
        """Log-probabilities of tokens[1:], each behind all before it."""
        rows = log_softmax(generate.forward(generate.CONFIG, self.weights, tokens[:-1]))
        return rows[np.arange(len(tokens) - 1), tokens[1:]]

    def close(self, found, expected, bound=2e-6):
        self.assertLess(abs(found / expected - 1), bound, f"{found} instead of {expected}")


class Losses(Evaluates):
    def test_every_token_of_a_file_counts_once(self):
        text = self.text.read_bytes()
        sizes = {"whole": 3 * SEQUENCE + 1, "more": 2 * SEQUENCE + 12, "short": 7}
        files, sums = [], {}
        for name, size in sizes.items():
            path = self.folder / f"{name}.txt"
            path.write_bytes(text[:size])
            tokens = list(text[:size])
            windows = [tokens[begin : begin + SEQUENCE + 1] for begin in range(0, size - 1, SEQUENCE)]
            sums[name] = -sum(self.predicted(window).sum() for window in windows)
            files.append(path)
        for ranks, words in ((0, ["--batch", 2]), (4, []), (4, ["--tensor", 2, "--mesh.shard=1", "--mesh.context=2"])):
            found = self.evaluate("--sequence", SEQUENCE, *words, "--data", *files, ranks=ranks)
            self.assertEqual([file["tokens"] for file in found["files"]], [size - 1 for size in sizes.values()])
            for file, loss in zip(found["files"], sums.values()):
                self.close(file["loss"], loss / file["tokens"])
                self.close(file["perplexity"], math.exp(file["loss"]), 1e-12)
            self.close(found["loss"], sum(sums.values()) / found["tokens"])
        part = self.evaluate("--sequence", SEQUENCE, "--tokens", SEQUENCE, "--data", files[0])
        self.close(part["loss"], -self.predicted(list(text[: SEQUENCE + 1])).mean())
        self.assertEqual(part["tokens"], SEQUENCE)

    def test_documents_are_split_and_masked(self):
        documents = [list(range(20, 90)), [5], list(range(100, 110))]
        path = self.folder / "documents.h5"
        masks = [[1] * 70, [1], [1] * 4 + [0] * 5 + [1]]
        token_files.write_tokens(path, documents, masks)
        whole = [self.predicted(documents[0][begin : begin + SEQUENCE + 1]) for begin in (0, 32, 64)]
        last = self.predicted(documents[2])[np.array(masks[2][1:]) == 1]
        found = self.evaluate("--sequence", SEQUENCE, "--data", path, ranks=2)
        self.assertEqual((found["documents"], found["tokens"]), (2, 69 + len(last)))
        self.close(found["loss"], -(sum(map(np.sum, whole)) + last.sum()) / found["tokens"])
        told = self.run_it(["--sequence", SEQUENCE, "--data", path]).err
        self.assertIn("note: 1 of 3 documents are longer than a row and are cut", told)
        joined = self.evaluate("--sequence", SEQUENCE, "--packing", "windows", "--data", path)
        self.assertEqual((joined["documents"], joined["tokens"]), (None, 75))

    def test_the_loss_is_that_of_the_validation_of_a_run(self):
        """On the same ranks to the last bit, whatever the run's precision and adapters; nothing of [lora] is repeated."""
        held = self.folder / "held.txt"
        held.write_bytes(self.text.read_bytes()[-(10 * SEQUENCE + 1) :])
        keys = {"data.validation": held, "evaluation.interval": 2, "evaluation.batches": 100}
        lora = {"lora.rank": 4, "lora.alpha": 8, "lora.targets": ["q_proj", "down_proj"]}
        for name, more in (("mixed", {"precision.preset": "bf16"}), ("lora", lora)):
            output = self.train(2, name, {**keys, **more})
            checkpoint, expected = output / "checkpoints" / "step_2", zt.validation_losses(output)[2]
            result = zt.run(2, ["evaluate", checkpoint, "--json", "--data", held])
            self.assertEqual(result.code, 0, str(result))
            self.assertEqual(json.loads(result.out)["loss"], expected, name)
            one = self.evaluate("--data", held, model=checkpoint)["loss"]
            for words in (["--tensor", 2], ["--pipeline", 2], ["--mesh.replicate=2"], ["--sharding.strategy=NO_SHARD"]):
                self.close(self.evaluate("--data", held, *words, ranks=2, model=checkpoint)["loss"], one)

    def test_adapters_of_peft(self):
        """A folder that is exported, and the checkpoint that it is from; on a base that has moved, too."""
        lora = {"lora.rank": 4, "lora.alpha": 8, "lora.targets": ["q_proj", "down_proj"], "optimizer.lr": 0.02}
        checkpoint = self.train(2, "adapted", {**lora, "model.from": self.model}) / "checkpoints" / "step_2"
        adapter, moved = self.folder / "adapter", self.folder / "moved"
        words = ["export", checkpoint, "--to", adapter, "--adapter", "--dtype", "fp32"]
        self.assertEqual(zt.run(0, words).code, 0)
        text = ["--sequence", SEQUENCE, "--data", self.text]
        expected = self.evaluate(*text, model=checkpoint)["loss"]
        self.assertGreater(abs(expected - self.evaluate(*text)["loss"]), 1e-3, "the adapters add nothing")
        self.close(self.evaluate(*text, ranks=2, model=adapter)["loss"], expected)
        config = json.loads((adapter / "adapter_config.json").read_text())
        (adapter / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": None}))
        self.assert_refused(self.run_it(text, model=adapter), r"base_model_name_or_path is missing")
        shutil.copytree(self.model, moved)
        self.assertEqual(self.evaluate(*text, "--base", moved, model=adapter)["loss"], expected)

    def test_what_it_tells_people(self):
        result = self.run_it(["--sequence", SEQUENCE, "--data", self.text])
        self.assertRegex(result.out, r"file +documents +tokens +loss +perplexity\n-+\n\S+text\.txt +- +19999 +\d\.\d{6} +\d+")
        self.assertRegex(result.err, r"llama in fp32, rows of 32 tokens\nmemory per rank: [\d.]+ KiB kept")
        self.assertRegex(result.err, r"\n20\.0k tokens in [\d.]+ s\n")


class Choices(Evaluates):
    ITEMS = (
        ("The sea is", [" deep", " a dry place", " é"], 0),
        ("k", ["alo mine ru", "a", "st"], 2),
        ("two and two is", [" four", " five", "\tseven"], 1),
        ("The sea is", [" éé", " dry"], 0),  # right by bytes, wrong by characters
    )

    def write(self, name, items):
        path = self.folder / name
        path.write_text("".join(json.dumps(item) + "\n" for item in items))
        return path

    def expected(self):
        """By item: log-probabilities of the choices."""
        found = []
        for context, choices, _ in self.ITEMS:
            own = []
            for choice in choices:
                tokens = list((context + choice).encode())
                own.append(self.predicted(tokens)[-len(choice.encode()) :].sum())
            found.append(own)
        return found

    def test_log_probabilities_and_accuracies(self):
        texts = [{"context": c, "choices": t, "answer": a, "id": 3} for c, t, a in self.ITEMS]
        ids = [
            {"context_ids": list(c.encode()), "choices_ids": [list(t.encode()) for t in texts], "answer": a, "choices": texts}
            for c, texts, a in self.ITEMS
        ]
        expected = self.expected()
        lengths = {
            "acc": lambda text: 1,
            "acc_norm": lambda text: len(text.strip()),
            "acc_bytes": lambda text: len(text.strip().encode()),
            "acc_tokens": lambda text: len(text.encode()),
        }
        for name, items, ranks, words in (
            ("texts.jsonl", texts, 0, []),
            ("ids.jsonl", ids, 4, []),
            ("texts.jsonl", texts, 4, ["--tensor", 2, "--mesh.context=2"]),
        ):
            found = self.evaluate("--choices", self.write(name, items), *words, ranks=ranks)
            self.assertEqual([item["line"] for item in found["items"]], [1, 2, 3, 4])
            for item, own in zip(found["items"], expected):
                self.assertLess(np.abs(np.array(item["log_probabilities"]) - own).max(), 1e-5)
                self.assertEqual(item["chosen"], int(np.argmax(own)))
            for measure, length in lengths.items():
                right = [
                    np.argmax([value / length(text) for value, text in zip(own, texts_of)]) == answer
                    for own, (_, texts_of, answer) in zip(expected, self.ITEMS)
                ]
                self.assertEqual(found[measure], np.mean(right), measure)
                self.assertAlmostEqual(found[measure + "_stderr"], np.std(right, ddof=1) / 2, 12)
        self.assertEqual(found["n"], 4)
        self.assertNotEqual(found["acc_norm"], found["acc_bytes"])
        bare = self.evaluate("--choices", self.write("bare.jsonl", [{k: v for k, v in i.items() if k != "choices"} for i in ids]))
        self.assertNotIn("acc_norm", bare, "the texts are not known")
        self.assertIn("acc_tokens", bare)

    def test_ids_of_a_tokenizer(self):
        class Words:
            """A token for each word with the blank before it."""

            bos_id, words = 7, {}

            def encode(self, text):
                return [self.words.setdefault(word, 10 + len(self.words)) for word in re.findall(r"\s*\S+", text)]

        found = prepare_choices.ids_of(Words(), "a b ", ["c", "d e"])
        self.assertEqual(found, ([7, 10, 11], [[12], [13, 14]]))
        texts = self.write("to_prepare.jsonl", [{"context": c, "choices": t, "answer": a} for c, t, a in self.ITEMS])
        ids = self.folder / "prepared.jsonl"
        tool = [sys.executable, zt.SOURCE / "tools" / "prepare_choices.py"]
        subprocess.run([*tool, texts, "--tokenizer", "bytes", "--output", ids], check=True, stdout=subprocess.DEVNULL)
        one, other = (self.evaluate("--choices", path) for path in (texts, ids))
        self.assertEqual({**one, "choices": ""}, {**other, "choices": ""})
        before, named = ids.read_text(), [{"question": c, "choices": t, "label": a} for c, t, a in self.ITEMS]
        columns = ["--column", "context=question", "--column", "answer=label"]
        subprocess.run([*tool, self.write("named.jsonl", named), "--tokenizer", "bytes", "--output", ids, *columns], check=True, stdout=subprocess.DEVNULL)
        self.assertEqual(list(map(json.loads, ids.read_text().splitlines())), list(map(json.loads, before.splitlines())))
        for line, words, message in (
            ('{"context": "", "choices": ["a"], "answer": 0}', [], r"\S+to_prepare\.jsonl:1: the context has no token"),
            ('{"context": "b", "choices": ["a"]}', [], r"\S+:1: answer is null: give the index of the right one of 1 choices"),
            ("{}", ["--column", "question=context"], r"--column: is 'question=context', .*; did you mean context=question\?"),
        ):
            texts.write_text(line + "\n")
            failed = subprocess.run([*tool, texts, "--tokenizer", "bytes", "--output", ids, *words], capture_output=True, text=True)
            self.assertRegex(failed.stderr, r"^prepare_choices\.py: " + message)

    def test_a_row_that_is_too_short_loses_the_beginning_of_its_context(self):
        context, choices, answer = self.ITEMS[0]
        path = self.write("long.jsonl", [{"context": context, "choices": choices, "answer": answer}])
        result = self.run_it(["--choices", path, "--sequence", 12, "--json"])
        self.assertRegex(result.err, r"warning: 2 of 3 rows are longer than --sequence 12: they lose the first")
        tokens = list((context + choices[1]).encode())[-13:]
        found = json.loads(result.out)["items"][0]["log_probabilities"][1]
        self.close(found, self.predicted(tokens)[-12:].sum())

    def test_lines_that_are_no_choices(self):
        good = {"context": "a", "choices": ["b", "c"], "answer": 1}
        for change, message in (
            ({"answer": 2}, r"answer is 2: give the index of the right one of 2 choices, from 0"),
            ({"answer": None}, r"answer is null: give the index"),
            ({"choices": ["b"]}, r"there are 1 choices: give 2 or more"),
            ({"choices": "b"}, r"choices is no list"),
            ({"choices": ["b", ""]}, r"choices\[1\] is no text, or is empty"),
            ({"context": ""}, r"context is no text, or is empty"),
            ({"context_ids": [1]}, r"choices_ids is no list"),
            ({"context_ids": [1], "choices_ids": [[1], [257]]}, r"choices_ids\[1\] has the id 257, and .* the ids 0 to 256"),
            ({"context_ids": [], "choices_ids": [[1], [2]]}, r"context_ids is no list of token ids with one id or more"),
            ({"context_ids": [1], "choices_ids": [[1], [2], [3]]}, r"choices has 2 texts for 3 lists of ids"),
        ):
            path = self.write("bad.jsonl", [good, {**good, **change}])
            self.assert_refused(self.run_it(["--choices", path]), r"bad\.jsonl:2: " + message)
        path.write_text("{\n")
        self.assert_refused(self.run_it(["--choices", path]), r"bad\.jsonl:1: ")
        path.write_text("\n")
        self.assert_refused(self.run_it(["--choices", path], ranks=2), r"bad\.jsonl' has no line with choices")


class Refusals(Evaluates):
    def test_what_cannot_be_evaluated(self):
        empty, wide = self.folder / "empty.txt", self.folder / "wide.bin"
        empty.write_text("")
        np.array([5, 6, 300, 7], np.uint16).tofile(wide)
        text = ["--sequence", SEQUENCE, "--data", self.text]
        for words, message in (
            ([], r"give files with --data, or a file with --choices"),
            ([*text, "--choices", self.text], r"give files with --data, or a file with --choices"),
            (["--data", self.folder / "none.txt"], r"--data: '\S+none\.txt' does not exist"),
            (["--data", empty], r"--data: all files are empty \('\S+empty\.txt'\)"),
            (["--format", "bin-uint16", "--data", wide], r"--data: token 2 of '\S+wide\.bin' has id 300, which is not below"),
            ([*text, "--optimizer.lr=1"], r"'--optimizer\.lr=1' is no option of an evaluation; of a deck's keys it takes those of"),
            ([*text, "--tensor", 3], r"mesh\.tensor"),
            ([*text, "--packing", "documents"], r"data\.packing = \"documents\", but '\S+text\.txt' does not say where"),
        ):
            self.assert_refused(self.run_it(words), message)
        self.assert_refused(self.run_it(text, model=self.folder), r"is neither a checkpoint of ztrain .* nor a Hugging Face model")

    def test_a_checkpoint_of_another_program(self):
        folder = self.folder / "step_3"
        folder.mkdir(exist_ok=True)
        (folder / "index.h5").write_bytes(b"not HDF5")
        self.assert_refused(self.run_it(["--data", self.text], model=folder, ranks=2), r"step_3")


if __name__ == "__main__":
    zt.main()
