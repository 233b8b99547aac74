"""Packed documents, masks, mixtures and several validation sets, from the command line."""

import re
import struct

import h5py
import numpy as np
import token_files
import ztrain_run as zt

SEQUENCE = 64


class Packing(zt.Case):
    @classmethod
    def sections(cls):
        sections = super().sections()
        sections["data"] = {"train": ["chat.h5"], "sequence": SEQUENCE, "validation_fraction": 0}
        return sections

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.documents, cls.masks = token_files.some_documents(70, 3, SEQUENCE, 1)
        token_files.write_tokens(cls.folder / "chat.h5", cls.documents, cls.masks)
        token_files.write_tokens(cls.folder / "law.h5", *token_files.some_documents(40, 5, 200, 2))

    def counts(self, overrides):
        """(rows, documents) of data.train, as ztrain check says them."""
        result = zt.run(0, ["check", self.deck, *zt.words_of(overrides)])
        self.assertEqual(result.code, 0, str(result))
        found = re.search(rf"packed documents: (\d+) rows of {SEQUENCE}, (\d+) documents", result.out)
        return int(found.group(1)), int(found.group(2))

    def refuse(self, overrides, *patterns, ranks=0, **more):
        result = zt.run(ranks, [self.deck, *zt.words_of(overrides)], timeout=20)
        self.assert_refused(result, *patterns, **more)

    def mixture(self):
        return {
            "data.train": ["chat.h5", "law.h5"],
            "data.weights": [3, 1],
            "data.long_documents": "split",
            "data.validation_fraction": 0.1,
            "evaluation.interval": 10,
            "evaluation.batches": 100,
        }

    # Numbers.

    def test_documents_together_are_as_documents_alone(self):
        """All documents in one step: packed, and each in a padded row of its own."""
        rows, documents = self.counts({})
        alone, same = self.counts({"data.max_documents": 1})
        self.assertEqual((alone, same), (documents, documents))
        self.assertLess(rows, 0.7 * documents, "nothing is packed")
        for preset, tolerance in (("fp32", 1e-5), ("fp64", 1e-12)):
            keys = {"run.steps": 1, "precision.preset": preset}
            packed = zt.losses(self.train(1, "packed", {**keys, "batch.global": rows}))
            single = zt.losses(
                self.train(1, "single", {**keys, "batch.global": alone, "data.max_documents": 1})
            )
            for one, other in zip(packed[1], single[1]):
                self.assertLessEqual(abs(one - other), tolerance * abs(one), (packed, single))

    def test_the_loss_is_that_of_the_predicted_tokens(self):
        """Documents without a trained token change nothing, wherever they are."""
        silent = [np.arange(20) % 257, np.arange(9)]
        token_files.write_tokens(
            self.folder / "silent.h5",
            [silent[0], *self.documents, silent[1]],
            [np.zeros(20), *self.masks, np.zeros(9)],
        )
        plain = zt.losses(self.train(2, "plain"))
        found = zt.losses(self.train(2, "silent", {"data.train": "silent.h5"}))
        self.assert_same(plain, found)
        self.assertRegex(self.last.out, r"of \d+ documents .*\b2 without a token to predict left out")

    def test_windows_of_all_layouts_are_the_same(self):
        ids = np.concatenate(self.documents)
        (self.folder / "ids.bin").write_bytes(ids.astype("<u2").tobytes())
        token_files.write_tokens(self.folder / "ids.h5", [ids], offsets=False)
        token_files.write_tokens(self.folder / "offsets.h5", self.documents)
        expected = zt.losses(self.train(1, "bin", {"data.train": "ids.bin", "data.format": "bin-uint16"}))
        self.assert_same(expected, zt.losses(self.train(1, "h5", {"data.train": "ids.h5"})))
        windows = {"data.train": "offsets.h5", "data.packing": "windows"}
        self.assert_same(expected, zt.losses(self.train(1, "offsets", windows)))
        self.assertNotEqual(expected, zt.losses(self.train(1, "documents", {"data.train": "offsets.h5"})))

    def test_data_sets_of_megatron_are_read_in_place(self):
        """By either name, with their documents; as windows they are raw tokens."""
        lengths = np.array([len(ids) for ids in self.documents], "<i4")
        ids = np.concatenate(self.documents).astype("<u2")
        (self.folder / "mega.bin").write_bytes(ids.tobytes())
        arrays = lengths, 2 * np.cumsum([0, *lengths[:-1]]).astype("<i8"), np.arange(len(lengths) + 1, dtype="<i8")
        header = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(lengths), len(lengths) + 1)
        (self.folder / "mega.idx").write_bytes(header + b"".join(array.tobytes() for array in arrays))
        token_files.write_tokens(self.folder / "same.h5", self.documents)
        expected = zt.losses(self.train(2, "same", {"data.train": "same.h5"}))
        self.assert_same(expected, zt.losses(self.train(2, "by_file", {"data.train": "mega.bin"})))
        self.assertRegex(self.last.out, rf"packed documents: \d+ rows of {SEQUENCE}, {len(lengths)} documents")
        self.assert_same(expected, zt.losses(self.train(2, "by_name", {"data.train": "mega", "data.format": "megatron"})))
        self.refuse({"data.train": "chat.h5", "data.format": "megatron"}, r"data\.train: '\S+/chat\.h5' is no \.bin file")

    def test_ranks_and_strategies_agree(self):
        mixture = {**self.mixture(), "run.steps": 10}
        one = self.train(1, "one", mixture)
        for ranks, strategy in ((2, "FULL_SHARD"), (4, "FULL_SHARD"), (2, "NO_SHARD"), (4, "NO_SHARD")):
            name = f"{strategy}_{ranks}"
            found = self.train(ranks, name, {**mixture, "sharding.strategy": strategy})
            self.assert_close(zt.losses(one), zt.losses(found), 1e-5, name)
            for step, loss in zt.validation_losses(one).items():
                self.assertLessEqual(abs(zt.validation_losses(found)[step] - loss), 1e-5 * loss, name)

    def test_resume_within_an_epoch_is_bitwise_the_same(self):
        mixture = {**self.mixture(), "run.steps": 20, "checkpoint.interval": 7, "checkpoint.keep": 0}
        straight = self.train(2, "straight", mixture)
        resume = {**mixture, "checkpoint.resume": straight / "checkpoints" / "step_7"}
        output = self.train(2, "resumed", resume)
        self.assert_same({s: v for s, v in zt.losses(straight).items() if s > 7}, zt.losses(output))
        self.assertEqual(zt.validation_losses(straight), zt.validation_losses(output))

    def test_a_packed_model_learns(self):
        found = zt.losses(self.train(2, "learns", {"run.epochs": 8, "run.steps": 0, "data.train": "law.h5"}))
        self.assertLess(found[max(found)][0], found[1][0] - 0.5)

    # Validation sets.

    def test_validation_sets_have_losses_of_their_own(self):
        keys = {"data.validation": ["law.h5", "chat.h5"], "evaluation.interval": 3, "evaluation.batches": 1000}
        output = self.train(2, "sets", keys)
        self.assertRegex(self.last.out, r"step 6: validation loss [\d.]+ nats a token \(law [\d.]+, chat [\d.]+\)")
        record = [r for r in zt.metrics(output) if "validation_loss" in r][-1]
        each = record["validation_losses"]
        self.assertEqual(list(each), ["law", "chat"])
        tokens = {}
        for name in each:
            alone = zt.validation_losses(self.train(2, f"set_{name}", {**keys, "data.validation": f"{name}.h5"}))
            self.assertEqual(alone[6], each[name])
            with h5py.File(self.folder / f"{name}.h5") as file:
                mask, offsets = file["loss_mask"][...], file["document_offsets"][...]
            begins, ends = offsets[:-1], np.minimum(offsets[1:], offsets[:-1] + SEQUENCE + 1)
            tokens[name] = sum(int(mask[b + 1 : e].sum()) for b, e in zip(begins, ends))
        mean = sum(each[n] * tokens[n] for n in each) / sum(tokens.values())
        self.assertLessEqual(abs(record["validation_loss"] - mean), 1e-6 * mean)

    # What a resumed run may and may not change.

    def checkpoint(self, name, **attributes):
        folder = self.folder / name
        folder.mkdir()
        tokenised = {"tokenizer": "some", "vocab_size": 257, **attributes}
        token_files.write_tokens(folder / "a.h5", self.documents, self.masks, tokenised)
        keys = {"data.train": folder / "a.h5", "data.validation": "law.h5", "evaluation.interval": 2}
        output = self.train(1, f"{name}_out", {**keys, "run.steps": 2})
        return folder, tokenised, {**keys, "checkpoint.resume": output / "checkpoints" / "step_2"}

    def test_changed_training_data_are_refused(self):
        folder, tokenised, keys = self.checkpoint("changed")
        masks = [mask.copy() for mask in self.masks]
        masks[-1][-1] ^= 1
        token_files.write_tokens(folder / "a.h5", self.documents, masks, tokenised)
        self.refuse(keys, r"data\.train is not what \S+/step_2 was trained on \(identity .*masks")

    def test_another_tokenizer_or_template_is_refused(self):
        hashes = {"tokenizer_hash": "aa", "chat_template_hash": "bb"}
        folder, tokenised, keys = self.checkpoint("tokenised", **hashes)
        for name, what in (("tokenizer_hash", "tokenizer"), ("chat_template_hash", "chat template")):
            token_files.write_tokens(folder / "a.h5", self.documents, self.masks, {**tokenised, name: "cc"})
            self.refuse(keys, rf"prepared with another {what} than what \S+/step_2 was trained on", ranks=2)

    def test_changed_validation_data_are_noted(self):
        _, _, keys = self.checkpoint("validated")
        for validation in ("chat.h5", ["law.h5", "chat.h5"]):
            self.train(1, "validated_on", {**keys, "data.validation": validation, "run.steps": 4})
            self.assertRegex(self.last.out, r"note: the validation data differ .*chat is new")
            self.assertIn("step 4: validation loss", self.last.out)

    # Mistakes.

    def test_mask_of_zeros(self):
        zeros = [np.zeros_like(mask) for mask in self.masks]
        token_files.write_tokens(self.folder / "zeros.h5", self.documents, zeros)
        pattern = r"data\.train: '\S+/zeros\.h5': no token (behind the first of a document )?is to be predicted"
        self.refuse({"data.train": "zeros.h5"}, pattern, ranks=2)
        self.refuse({"data.train": "zeros.h5", "data.packing": "windows"}, pattern)

    def test_a_step_without_a_token_to_predict(self):
        """Windows are not left out, however little of them is trained. Such a step moves nothing: of SGD without decay, no weight."""
        mask = np.zeros(4000)
        mask[3999] = 1
        ids = np.arange(4000) % 257
        token_files.write_tokens(self.folder / "rare.h5", [ids], [mask])
        sgd = {"optimizer.name": "sgd", "optimizer.momentum": 0, "optimizer.weight_decay": 0, "checkpoint.interval": 1, "run.steps": 3}
        output = self.train(2, "rare", {**sgd, "data.train": "rare.h5", "data.packing": "windows", "data.sequence": 31, "checkpoint.keep": 0})
        warned = re.findall(r"step (\d): warning: none of its 4 sequences holds a token that is to be predicted \(loss_mask", self.last.out)
        self.assertEqual(warned, [str(r["step"]) for r in zt.metrics(output) if "grad_norm" in r and r["loss"] is None])
        self.assertIn("3", warned)
        saved = [zt.tensors(output / f"checkpoints/step_{step}") for step in (2, 3)]
        for name, weights in saved[0].items():
            np.testing.assert_array_equal(weights, saved[1][name], name)

    def test_files_that_cannot_be_right(self):
        with h5py.File(token_files.write_tokens(self.folder / "back.h5", self.documents), "r+") as file:
            file["document_offsets"][3] = 0
        self.refuse({"data.train": "back.h5"}, r"document_offsets of '\S+/back\.h5' do not increase", ranks=2)
        with h5py.File(token_files.write_tokens(self.folder / "far.h5", self.documents), "r+") as file:
            file["document_offsets"][-1] += 1
        self.refuse({"data.train": "far.h5"}, r"document_offsets of '\S+/far\.h5' go from 0 to \d+; they must")
        for value in (["a", "b"], np.array([b"fixed"] * 1000)):
            token_files.write_tokens(self.folder / "named.h5", self.documents, None, {"tokenizer": value})
            pattern = rf"data\.train: the attribute tokenizer of '\S+/named\.h5' must be one string, but is {len(value)} of"
            self.refuse({"data.train": "named.h5"}, pattern, ranks=2)
        token_files.write_tokens(self.folder / "short.h5", self.documents, self.masks[:-1])
        self.refuse({"data.train": "short.h5"}, r"\"loss_mask\" of '\S+/short\.h5' must be one integer for each")

    def test_weights_that_do_not_match(self):
        self.refuse(
            {"data.weights": [1, 2]}, r"data\.weights has 2 numbers for the 1 entries of data\.train", ranks=2
        )
        self.refuse(
            {"data.train": ["chat.h5", "law.h5"], "data.weights": [1, 1e-7]},
            r"data\.weights = \[1, 1e-07\] cannot be kept exactly over 100000 sequences",
        )

    def test_documents_that_the_files_do_not_show(self):
        self.refuse(
            {"data.train": "text.txt", "data.packing": "documents"},
            r"data\.packing = \"documents\", but '\S+/text\.txt' does not say where its documents begin",
        )


if __name__ == "__main__":
    zt.main()
