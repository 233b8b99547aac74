"""A teacher's likelihoods and a student that learns from them: PyTorch's numbers, the same file and the same run on every
mesh, the divergence falls, validation stays cross-entropy, resume, and refusals.

tools/parity/distillation_against_torch.py --golden writes distillation.json.
"""

import json
import shutil

import h5py
import numpy as np
import ztrain_run as zt

GOLDEN = zt.SOURCE / "tests" / "regress" / "golden"
FOUND = json.loads((GOLDEN / "distillation.json").read_text())
RUNS, HELD = FOUND["runs"], FOUND["held"]
DATA, STUDENT, TEACHER = GOLDEN / FOUND["data"], GOLDEN / FOUND["student"], GOLDEN / FOUND["teacher"]
SEQUENCE = RUNS["half"]["settings"]["data.sequence"]
# Rows of some documents, several of them, a part of which is held out.
SHORT = {"data.sequence": 160, "batch.global": 4, "batch.micro": 2, "data.validation_fraction": 0.25, "evaluation.interval": 4}


class Distillation(zt.Case):
    @classmethod
    def sections(cls):
        return {"checkpoint": {"interval": -1}}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.files = {SEQUENCE: cls.ask(SEQUENCE), 160: cls.ask(160)}

    @classmethod
    def ask(cls, sequence, *words, ranks=0, name=None, data=(DATA,), top_k=HELD):
        path = cls.folder / (name or f"teacher_{sequence}.h5")
        result = zt.run(ranks, ["evaluate", TEACHER, "--dtype", "fp32", "--sequence", sequence, "--data", *data,
                                "--write-likelihoods", path, "--top-k", top_k, *words])
        assert result.code == 0, result
        return path

    def steps(self, run, ranks, name, keys=None, teacher=None):
        keys = {**RUNS[run]["settings"], **(keys or {})}
        paths = {"data.train": [str(DATA)], "model.from": str(STUDENT), "checkpoint.resume": "none",
                 "distillation.teacher": str(teacher or self.files[keys["data.sequence"]])}
        output = self.train(ranks, name, None, self.write_deck(name, {**keys, **paths, **(keys or {})}))
        return [record for record in zt.metrics(output) if "grad_norm" in record]

    def assert_as_torch(self, run, steps, what):
        expected = RUNS[run]
        self.assertEqual(len(steps), len(expected["losses"]), what)
        for ours, theirs in (("loss", "losses"), ("grad_norm", "norms"), ("ce_loss",) * 2, ("distillation_loss",) * 2):
            for step, value in zip(steps, expected[theirs]):
                near = 1e-5 if ours != "grad_norm" or step["step"] == 1 else 1e-4  # later norms are of weights that differ by rounding
                self.assertAlmostEqual(step[ours], value, delta=near * value, msg=f"{what}, {ours} of step {step['step']}")

    def test_likelihoods_are_those_of_the_teacher_on_every_mesh(self):
        with h5py.File(DATA) as file:
            mask, begins = file["loss_mask"][:], file["document_offsets"][:]
        with h5py.File(self.files[SEQUENCE]) as file:
            words, logs = (file[name][:].reshape(-1, HELD) for name in ("words", "log_likelihoods"))
            self.assertEqual((file.attrs["teacher"], file.attrs["top_k"]), (str(TEACHER), str(HELD)))
        trained = mask.astype(bool)
        trained[begins[:-1]] = False
        self.assertEqual(len(words), len(mask))
        self.assertTrue((words[~trained] == 0).all() and (logs[~trained] == 0).all())
        self.assertTrue((np.exp(logs[trained]).sum(-1) < 1).all() and (np.diff(logs[trained]) <= 0).all())
        documents = [(a, b) for a, b in zip(begins, begins[1:]) if mask[a + 1 : b].any()]
        for (a, _), expected in zip(documents, FOUND["first_of_documents"]):
            at = a + 1 + np.argmax(mask[a + 1 :])
            self.assertEqual(words[at].tolist(), expected["words"])
            np.testing.assert_allclose(logs[at], expected["log_likelihoods"], atol=2e-5)
        meshes = ((2, ["--tensor", 2]), (2, ["--pipeline", 2]), (2, ["--mesh.context=2", "--mesh.shard=1"]),
                  (4, ["--tensor", 2, "--mesh.context=2", "--mesh.shard=1", "--context.method=ring"]))
        for ranks, mesh in meshes:
            with h5py.File(self.ask(SEQUENCE, *mesh, ranks=ranks, name="meshes.h5")) as file:
                self.assertEqual(file["words"][:].reshape(-1, HELD).tolist(), words.tolist(), mesh)
                np.testing.assert_allclose(file["log_likelihoods"][:], logs.reshape(-1), atol=2e-5, err_msg=str(mesh))
        one, four = (self.ask(160, "--batch", 2, ranks=ranks, name=f"rows_{ranks}.h5").read_bytes() for ranks in (0, 4))
        self.assertEqual(one, four)

    def test_losses_and_norms_are_those_of_pytorch_on_every_mesh(self):
        for run in RUNS:
            self.assert_as_torch(run, self.steps(run, 1, run), run)
        meshes = {
            "tensor": (2, {"mesh.tensor": 2}),
            "context": (2, {"mesh.context": 2}),
            "pipeline": (2, {"mesh.pipeline": 2, "sharding.strategy": "zero1"}),
            "heads": (4, {"mesh.tensor": 2, "mesh.context": 2, "context.method": "ulysses", "recompute.mode": "full"}),
            "ring": (4, {"mesh.pipeline": 2, "mesh.context": 2, "context.method": "ring"}),
        }
        for name, (ranks, keys) in meshes.items():
            self.assert_as_torch("half", self.steps("half", ranks, name, keys), name)

    def test_the_divergence_falls_and_validation_is_cross_entropy(self):
        keys = {**SHORT, "run.steps": 12, "optimizer.lr": 1e-2}
        one = self.steps("half", 1, "one", keys)
        four = self.steps("half", 4, "four", {**keys, "batch.micro": 1, "sharding.strategy": "FULL_SHARD"})
        for a, b in zip(one, four):
            for key in ("loss", "ce_loss", "distillation_loss"):
                self.assertAlmostEqual(a[key], b[key], delta=2e-5 * a[key], msg=f"{key} of step {a['step']}")
        self.assertLess(one[-1]["distillation_loss"], 0.9 * one[0]["distillation_loss"])
        still = {**keys, "run.steps": 4, "optimizer.lr": 1e-12}
        self.steps("half", 2, "taught", {**still, "batch.micro": 1})
        plain = self.train(2, "plain", None, self.write_deck("plain", {
            **{key: value for key, value in RUNS["half"]["settings"].items() if not key.startswith("distillation")}, **still,
            "batch.micro": 1, "data.train": [str(DATA)], "model.from": str(STUDENT)}))
        taught, of_plain = (zt.validation_losses(self.folder / "taught"), zt.validation_losses(plain))
        self.assertEqual(taught, of_plain)

    def test_a_run_goes_on_with_its_teacher(self):
        keys = {**SHORT, "run.steps": 8, "checkpoint.interval": 4}
        whole = self.steps("half", 2, "whole", keys)
        self.steps("half", 2, "cut", {**keys, "run.steps": 4})
        self.steps("half", 2, "cut", {**keys, "checkpoint.resume": "auto"})
        self.assert_same(zt.losses(self.folder / "whole"), zt.losses(self.folder / "cut"))
        self.assertEqual(len(whole), 8)

    def refused(self, keys, *patterns, teacher=None):
        deck = self.write_deck("refused", {**RUNS["half"]["settings"], "data.train": [str(DATA)], "model.from": str(STUDENT),
                                           "distillation.teacher": str(teacher or self.files[SEQUENCE]), **keys})
        self.assert_refused(zt.run(0, [deck]), *patterns)

    def test_what_does_not_fit_is_refused(self):
        other = self.folder / "other.h5"
        with h5py.File(DATA) as source, h5py.File(other, "w", libver="latest") as file:
            for name in source:
                file[name] = source[name][:]
            file["tokens"][3] += 1
        cut = self.folder / "cut.h5"
        cut.write_bytes(self.files[SEQUENCE].read_bytes()[:-9])
        part = self.ask(160, "--tokens", 160, name="part.h5")
        for keys, patterns, teacher in (
            ({"data.sequence": 512}, ("distillation.teacher", "rows of 1088 tokens", "--sequence 512"), None),
            ({"data.train": [str(other)]}, ("distillation.teacher", "other data", "documents.h5"), None),
            ({"data.packing": "windows"}, ("distillation.teacher", "in windows", "in documents"), None),
            ({"model.add_tokens": 3}, ("distillation.teacher", "vocabulary of 61", "model.vocab_size is 64"), None),
            ({"distillation.top_k": 13}, ("distillation.top_k", "12 words", "nearest legal: 12"), None),
            ({}, ("distillation.teacher", "cut.h5", "truncated"), cut),
            ({}, ("distillation.teacher", "documents.h5", "no dataset|is no file of likelihoods"), DATA),
            ({**SHORT, "data.validation_fraction": 0.0, "evaluation.interval": 0}, ("part.h5' has no likelihoods of token",), part),
            ({"loss.label_smoothing": 0.1}, ("distillation.teacher", "loss.label_smoothing"), None),
            ({"loss.z_loss": 1e-4}, ("distillation.teacher", "loss.z_loss"), None),
            ({"preference.loss_type": "sigmoid"}, ("distillation.teacher", "preference.loss_type"), None),
            ({"model.from": str(GOLDEN / "gemma2")}, ("distillation.teacher", "model.final_logit_softcapping"), None),
        ):
            self.refused(keys, *patterns, teacher=teacher)
        shutil.rmtree(self.folder / "refused", ignore_errors=True)
        result = zt.run(0, ["evaluate", TEACHER, "--sequence", 64, "--data", DATA, "--write-likelihoods", self.folder / "none.h5",
                            "--top-k", 62])
        self.assert_refused(result, "--top-k", "nearest legal: 61")
        self.assertFalse((self.folder / "none.h5").exists())


if __name__ == "__main__":
    zt.main()
