"""tools/prepare_data.py: each kind of record out of each container gives the same tokens; what is damaged is refused; the report."""

import bz2
import csv
import gzip
import importlib.util
import io
import itertools
import json
import lzma
import re
import shutil
import subprocess
import sys
import tracemalloc
import unittest
from unittest import mock

import h5py
import numpy as np
import ztrain_run as zt
from prepare_case import CHAT, PrepareCase, text_of, trained

from prepare import json_files
from prepare.containers import Inputs
from prepare.documents import Maker, Options
from prepare.picture import edges_of
from prepare.records import InputError, parse
from prepare.report import Counts, Progress
from prepare.streams import Raw
from prepare.tokenizer import load_tokenizer

TASK = "Write a response that appropriately completes the request."
WITH_INPUT = "Below is an instruction that describes a task, paired with an input that provides further context. "
WITHOUT = "Below is an instruction that describes a task. "
ALPACA = [
    {"instruction": "Add", "input": "1, 2", "output": "3"},
    {"instruction": "Greet", "input": "", "output": "Hé, \"you\"\nthere"},
]
SHAREGPT = [{"from": "system", "value": "Be brief."}, {"from": "human", "value": "2+2?"}, {"from": "gpt", "value": "4"}]
KINDS = {
    "messages": [{"messages": CHAT}, {"messages": CHAT[1:3]}],
    "sharegpt": [{"conversations": SHAREGPT}, {"conversations": SHAREGPT[1:]}],
    "pairs": [{"prompt": "Q: \t", "completion": "A, b"}, {"prompt": "[INST]", "completion": " [1]"}],
    "alpaca": ALPACA,
    "tokens": [{"input_ids": [5, 6, 7, 256], "labels": [-100, 6, -100, 256]}, {"input_ids": [1, 2], "labels": [1, 2]}],
    "text": [{"text": "one\n\"two\", three"}, {"text": "😀" * 9}],
}
PACK = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda data: subprocess.run(["zstd", "-qc"], input=data, stdout=subprocess.PIPE, check=True).stdout,
}
HAS_ARROW = importlib.util.find_spec("pyarrow") is not None


def csv_bytes(records, delimiter=","):
    out = io.StringIO(newline="")
    table = csv.DictWriter(out, list(records[0]), delimiter=delimiter)
    table.writeheader()
    table.writerows({k: v if isinstance(v, str) else json.dumps(v) for k, v in record.items()} for record in records)
    return out.getvalue().encode()


CONTAINERS = {
    "jsonl": lambda records: "".join(json.dumps(r) + "\n" for r in records).encode(),
    "json": lambda records: json.dumps(records).encode(),
    "spread.json": lambda records: json.dumps(records, indent=2, ensure_ascii=False).encode(),
    "apart.json": lambda records: "\n".join(json.dumps(r, indent=1) for r in records).encode(),
    "csv": csv_bytes,
    "tsv": lambda records: csv_bytes(records, "\t"),
}


def arrow_bytes(records, how):
    import pyarrow
    import pyarrow.parquet

    table, out = pyarrow.Table.from_pylist(records), io.BytesIO()
    if how == "parquet":
        pyarrow.parquet.write_table(table, out, row_group_size=1)
        return out.getvalue()
    with getattr(pyarrow.ipc, how)(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


if HAS_ARROW:
    CONTAINERS |= {
        "parquet": lambda records: arrow_bytes(records, "parquet"),
        "feather": lambda records: arrow_bytes(records, "new_file"),
        "arrow": lambda records: arrow_bytes(records, "new_stream"),
    }


class Formats(PrepareCase):
    def file(self, name, data):
        path = self.folder / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    def raws(self, path):
        return list(Inputs([path]))

    def made(self, path, **options):
        """[(text, trained parts)] of a file, in this process."""
        maker = Maker(load_tokenizer("bytes"), Options(**options))
        documents = [maker.make(raw) for raw in Inputs([path])]
        return [(text_of(d.ids), trained(np.array(d.ids), np.array(d.mask))) for d in documents]

    def wrong(self, name, data, pattern, **options):
        with self.assertRaisesRegex(InputError, pattern):
            self.made(self.file(name, data), **options)

    # Kinds.

    def test_each_kind_is_what_its_template_says(self):
        first, second = (self.made(self.file("a.jsonl", CONTAINERS["jsonl"](KINDS["alpaca"])))[i] for i in (0, 1))
        self.assertEqual(first, (f"{WITH_INPUT}{TASK}\n\n### Instruction:\nAdd\n\n### Input:\n1, 2\n\n### Response:\n3|", ["3|"]))
        answer = 'Hé, "you"\nthere|'
        self.assertEqual(second, (f"{WITHOUT}{TASK}\n\n### Instruction:\nGreet\n\n### Response:\n{answer}", [answer]))
        chats = [{**ALPACA[0], "system": "S", "history": [["h", "i"]]}, ALPACA[1]]
        as_chat = self.made(self.file("c.jsonl", CONTAINERS["jsonl"](chats)), pairs_as_chat=True)
        turns = "<|system|>\nS|\n<|user|>\nh|\n<|assistant|>\ni|\n<|user|>\nAdd\n1, 2|\n<|assistant|>\n3|\n"
        self.assertEqual(as_chat[0], (turns, ["i|", "3|"]))
        self.assertEqual(as_chat[1][0][:36], "<|user|>\nGreet|\n<|assistant|>\nHé, \"y")
        named = [{"conversations": SHAREGPT[1:], "system": "S"}, {"conversations": SHAREGPT, "system": "left out"}]
        found = self.made(self.file("s.jsonl", CONTAINERS["jsonl"](named)))
        for (text, parts), system in zip(found, ("S", "Be brief.")):
            self.assertEqual((text, parts), (f"<|system|>\n{system}|\n<|user|>\n2+2?|\n<|assistant|>\n4|\n", ["4|"]))
        padded = {"input_ids": [0, 9, 65, 66, 256, 0], "labels": [-100, -100, 65, -100, 256, -100], "attention_mask": [0, 1, 1, 1, 1, 0]}
        path = self.file("t.jsonl", CONTAINERS["jsonl"]([padded, {"input_ids": [65, 66], "text": "not this"}]))
        self.assertEqual(self.made(path), [("\tAB|", ["A", "|"]), ("AB", ["AB"])])
        self.assertEqual(self.made(path, train_on="all")[0], ("\tAB|", ["\tAB|"]))

    def test_the_same_records_through_every_container(self):
        for kind, records in KINDS.items():
            expected = self.made(self.file("expected.jsonl", CONTAINERS["jsonl"](records)))
            self.assertEqual(len(expected), len(records))
            for ending, write in CONTAINERS.items():
                with self.subTest(kind=kind, ending=ending):
                    self.assertEqual(self.made(self.file(f"made.{ending}", write(records))), expected)
        for (ending, write), (packed, pack) in itertools.product(CONTAINERS.items(), PACK.items()):
            data = pack(write(KINDS["messages"]))
            for name in (f"packed.{ending}.{packed}", f"unnamed.{ending}")[: 1 + (packed != "bz2")]:
                with self.subTest(name=name):
                    self.assertEqual(self.made(self.file(name, data)), self.made(self.file("m.json", CONTAINERS["json"](KINDS["messages"]))))
        text = self.file("text.txt.zst", PACK["zst"](b"plain"))
        self.assertEqual(self.made(text), [("plain|", ["plain|"])])

    @unittest.skipUnless(HAS_ARROW, "needs pyarrow")
    def test_tables_of_different_rows(self):
        """Every row of a column of objects has the fields of all, null where they were not given."""
        records = [{"messages": [{**CHAT[1], "name": "Ann"}, CHAT[2]], "tools": None}, {"messages": CHAT[1:3], "tools": [{"a": 1}, {"b": 2}]}]
        path = self.file("rows.parquet", CONTAINERS["parquet"](records))
        chats = [parse(raw)[1] for raw in self.raws(path)]
        self.assertEqual([chat.messages[1] for chat in chats] + [chat.tools for chat in chats], [CHAT[2], CHAT[2], None, [{"a": 1}, {"b": 2}]])
        self.wrong("n.parquet", CONTAINERS["parquet"]([{"text": "a"}, {"text": None}]), r'n\.parquet:row 2: "text" is null')
        self.wrong("cut.parquet", CONTAINERS["parquet"](records)[:-9], r"cut\.parquet: cannot be read as Parquet: ")
        self.wrong("cut.feather", CONTAINERS["feather"](records)[:-9], r"cut\.feather: cannot be read as Arrow: ")
        self.wrong("old.feather", b"FEA1" + bytes(99), r"old\.feather: is Feather of version 1")

    def test_names_and_kinds_that_are_given(self):
        path = self.file("q.jsonl", CONTAINERS["jsonl"]([{"question": "Q", "answer": "A", "completion": "not this"}]))
        columns = {"prompt": "question", "completion": "answer"}
        self.assertEqual(self.made(path, columns=columns), [("QA|", ["A|"])])
        spoken = [{"talk": [{"who": "human", "says": "Q"}, {"who": "gpt", "says": "A"}]}]
        columns = {"messages": "talk", "role": "who", "content": "says"}
        self.assertEqual(self.made(self.file("w.jsonl", CONTAINERS["jsonl"](spoken)), columns=columns)[0][1], ["A|"])
        table = self.file("w.csv", CONTAINERS["csv"](spoken))
        self.assertEqual(self.made(table, columns=columns)[0][1], ["A|"])
        self.wrong("plain.txt", "text", r"plain\.txt: is plain text, and no record of the kind pairs", kind="pairs")
        both = CONTAINERS["jsonl"]([{"messages": CHAT, "text": "T"}])
        self.assertEqual(self.made(self.file("b.jsonl", both), kind="text"), [("T|", ["T|"])])
        self.wrong("b.jsonl", both, r"b\.jsonl:1: is no record of the kind sharegpt \(conversations\): its fields are messages, text", kind="sharegpt")
        self.wrong("b.jsonl", both, r'has no column "x" \(--column text=x\): its columns are messages, text', columns={"text": "x"})
        for word in ("prompt", "promt=a", "prompt="):
            self.refused(path, "--column", word, pattern=rf"--column: is '{word}', and must be FIELD=NAME, with a field of .*prompt")
        done = self.prepare(path, "--column", "prompt=question", "--column", "completion=answer", "--kind", "pairs")
        self.assertIn("records 1 pairs\n", done.stdout)

    # Mistakes.

    def test_malformed_records_of_each_kind(self):
        tokens = {"input_ids": [1, 2], "labels": [1, 2]}
        cases = (
            ({"prompt": "p", "chosen": "c"}, r"is of no kind .*fields are prompt, chosen, and the kinds are tokens \(.*--column F"),
            ({"question": "q", "answer": "a"}, r"; --column prompt=question --column completion=answer makes it pairs$"),
            ({"instruction": "i", "context": "c", "response": "r"}, r"; --column output=response --column input=context makes it alpaca$"),
            ({"instruction": "i", "output": None}, r'"output" is null, and must be a string'),
            ({"instruction": "i", "output": 4}, r'"output" is a number, and must be a string'),
            ({**ALPACA[0], "system": "s"}, r'has "system", which Alpaca.s text has no place for: give --pairs chat'),
            ({**ALPACA[0], "history": [["a"]]}, r'"history" must be a list of pairs', {"pairs_as_chat": True}),
            ({"conversations": SHAREGPT[:1] + [{"from": "gtp", "value": "4"}]}, r"\[1\] is from 'gtp'; is 'gpt' meant"),
            ({"conversations": "text"}, r'"conversations" is a string, and must be a list of messages'),
            ({**tokens, "labels": [1]}, r'"labels" has 1 items, and "input_ids" has 2'),
            ({**tokens, "labels": [2, 2]}, r"labels\[0\] is 2, and must be -100 \(not trained\) or input_ids\[0\], 1"),
            ({"input_ids": [1, 2.5]}, r'"input_ids" is a list, and must be a list of integers'),
            ({"input_ids": [1, 257]}, r"holds the token 257, and the tokenizer has ids from 0 to 256"),
            ({"input_ids": [1, 2, 3], "attention_mask": [1, 0, 1]}, r"has zeros within the text"),
        )
        for record, pattern, *options in cases:
            with self.subTest(record=record):
                self.wrong("w.jsonl", "\n" + json.dumps(record), r"w\.jsonl:2: .*" + pattern, **dict(*options))

    def test_damaged_files(self):
        good = CONTAINERS["jsonl"](KINDS["text"] * 50)
        for ending, pack in PACK.items():
            data = pack(good)
            self.wrong(f"cut.jsonl.{ending}", data[: len(data) // 2], rf"cut\.jsonl\.{ending}: cannot be read: \w")
            self.wrong(f"plain.jsonl.{ending}", good, rf"plain\.jsonl\.{ending}: is not packed as its ending \.{ending} says")
            self.wrong(f"bad.jsonl.{ending}", data[:30] + bytes(20) + data[50:], rf"bad\.jsonl\.{ending}.*: (cannot be read|is not)")
        for text, pattern in (
            ('[{"text": "a"},\n {"text" "b"}]', r":2: is not JSON: Expecting ':' delimiter, near '\{\"text\" \"b\"\}"),
            ('[{"text": "a"}\n{"text": "b"}]', r":2: is not JSON: Expecting ',' or '\]' in its list"),
            ('[{"text": "a"},\n', r":2: is not JSON: Expecting value"),
            ('[{"text": "a"}]\n\n{}', r":3: is not JSON: something follows its list"),
            ('[{"text": "a"},\n\n["b"]]', r":3: is a JSON list; every record must be an object"),
            ('[{"text": "a"},\n {"text": "' + "x" * 99, r":2: is not JSON: Unterminated string"),
        ):
            self.wrong("list.json", text, r"list\.json" + pattern)
        for text, pattern in (
            ("text\na\nb,c\n", r"t\.csv:3: has 2 cells, and the first line names 1 columns"),
            ("text,text\na,b\n", r"t\.csv:1: names the column 'text' twice"),
            ('text\n"a" b\n', r"t\.csv:2: is not CSV: "),
            ('messages\n"[{"\n', r't\.csv:2: the JSON of "messages" cannot be read: '),
            ('messages\n"[""\\ud800""]"\n', r"t\.csv:2: holds \\ud800 without"),
            ('text\n"a\nb"\n"c\nd",e\n', r"t\.csv:4: has 2 cells"),
        ):
            self.wrong("t.csv", text, pattern)
        done = self.prepare(self.file("r.csv", "text\na\nb,c\nd\n"), "--skip-errors")
        self.assertIn("dropped 1: error (first: ", done.stdout)
        self.refused(self.folder / "gone.csv", pattern=r"gone\.csv: No such file")

    def test_packages_that_are_missing_are_named(self):
        hidden = {"pyarrow": None, "zstandard": None}
        with mock.patch.dict(sys.modules, hidden), mock.patch.object(shutil, "which", lambda name: None):
            self.wrong("t.parquet", b"PAR1", r"t\.parquet: is a table of parquet: .*no Python package pyarrow: .*pip install pyarrow")
            self.wrong("t.jsonl.zst", PACK["zst"](b"{}"), r"is packed by zstd: .*no Python package zstandard: .*apt install zstd")

    # Large inputs.

    def test_values_lie_wherever_pieces_end(self):
        text = ' [ {"text": "a\\"]"},\n{"text": "\\u00e9", "n": [1, -2.5e3, true]} ,\n\n{}\n] '
        for piece in range(1, 40):
            with mock.patch.object(json_files, "PIECE", piece):
                found = [(raw.where, json.loads(raw.text)) for raw in self.raws(self.file("p.json", text))]
            expected = [("1", {"text": 'a"]'}), ("2", {"text": "é", "n": [1, -2500.0, True]}), ("4", {})]
            self.assertEqual(found, [(f"{self.folder}/p.json:{line}", value) for line, value in expected], piece)

    def test_large_inputs_are_not_held(self):
        record = {"text": "x" * 2000}
        for ending in ("jsonl", "json", "csv", "json.gz"):
            data = CONTAINERS[ending.split(".")[0]]([record] * 4000)
            path = self.file(f"large.{ending}", gzip.compress(data, 1) if ending.endswith("gz") else data)
            inputs = Inputs([path])
            tracemalloc.start()
            shares = [inputs.share() for _ in inputs]
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            self.assertLess(peak, 1.5e6, ending)
            self.assertEqual((len(shares), shares), (4000, sorted(shares)))
            self.assertTrue(shares[0] < 0.5 and 0.9 < shares[-1] <= 1, (shares[0], shares[-1]))

    def test_any_number_of_workers_writes_the_same_bytes(self):
        records = [{"text": f"document {i} " * (i % 40)} for i in range(900)] + [{"messages": CHAT}]
        path, found = self.lines("many.jsonl", *records), []
        for workers in (1, 2, 3):
            self.prepare(path, "--workers", workers, "--validation", 0.2)
            found.append([(self.folder / name).read_bytes() for name in ("out.h5", "out.validation.h5")])
        self.assertEqual(found[0], found[1])
        self.assertEqual(found[0], found[2])

    def test_answers_that_belong_together_stay_together(self):
        user, chats = [{"role": "user", "content": "Hi"}], [[{"role": "assistant", "content": text}] for text in ("Hello", "No")]
        pairs = [
            {"prompt": "2+2? ", "chosen": "4", "rejected": "5"},
            {"chosen": "It is so.", "rejected": "It is not."},
            {"prompt": user, "chosen": chats[0], "rejected": chats[1]},
            {"prompt": "not this", "chosen": user + chats[0], "rejected": user + chats[1]},
        ]
        self.prepare(self.lines("pairs.jsonl", *pairs), output="pairs.h5")
        chat = "<|user|>\nHi|\n<|assistant|>\n"
        texts = ["2+2? 4|", "2+2? 5|", "It is so.|", "It is not.|", *[f"{chat}{a}|\n" for a in ("Hello", "No")] * 2]
        found = self.documents("pairs.h5")
        self.assertEqual([text_of(ids) for ids, _ in found], texts)
        self.assertEqual([trained(*one) for one in found], [[t] for t in ("4|", "5|", " so.|", " not.|", *["Hello|", "No|"] * 2)])
        labels = [{"prompt": f"{i}? ", "completion": f"is {i}", "label": i != 1} for i in range(3)]
        self.prepare(self.lines("labels.jsonl", *labels), output="labels.h5")
        texts = ["0? is 0|", "0? is 2|", "1? is 1|", "1? is 0|", "2? is 2|", "2? is 1|"]
        self.assertEqual([text_of(ids) for ids, _ in self.documents("labels.h5")], texts)
        for name, preference in (("pairs.h5", "pairs"), ("labels.h5", "labels")):
            with h5py.File(self.folder / name) as file:
                self.assertEqual(file.attrs["preference"], preference)
                self.assertEqual(file["labels"][...].tolist() if "labels" in file else None, [1, 0, 1] if "labels" in file else None)
        many = [{"prompt": f"{i} ", "chosen": "yes", "rejected": "no"} for i in range(99)]
        self.prepare(self.lines("many.jsonl", *many), "--validation", 0.3, output="many.h5")
        for name in ("many.h5", "many.validation.h5"):
            texts = [text_of(ids) for ids, _ in self.documents(name)]
            self.assertEqual([t.removesuffix("yes|") for t in texts[::2]], [t.removesuffix("no|") for t in texts[1::2]])
        mixed = self.lines("mixed.jsonl", pairs[0], {"text": "alone"})
        self.refused(mixed, pattern="preferences, text: preferences need a file of their own")
        self.refused(self.lines("same.jsonl", {"chosen": user, "rejected": user}), pattern="differ in nothing")
        self.refused(self.lines("kinds.jsonl", {"chosen": user, "rejected": "no"}), pattern="must both be strings, or both lists")
        self.refused(self.lines("label.jsonl", {**labels[0], "label": "good"}), pattern='"label" is a string, and must be true')

    # The report.

    def test_rows_are_those_of_a_run(self):
        random = np.random.default_rng(3)
        lengths = [*random.integers(2, 90, 300).tolist(), 64, 64, 63, 1]
        records = [{"input_ids": [7] * n, "labels": [-100] * (n - 1) + [7]} for n in lengths]
        words = ("--sequence", 64, "--picture", self.folder / "rows.png")
        said = self.prepare(self.lines("rows.jsonl", *records), *words, output="rows.h5").stdout
        checked = zt.run(0, ["check", self.deck, "--data.train=rows.h5", "--data.sequence=64", "--data.validation_fraction=0"])
        self.assertEqual(checked.code, 0, str(checked))
        rows, share = re.search(r"packed documents: (\d+) rows of 64, .*\((\S+%) of the rows\)", checked.out).groups()
        longer = sum(n > 64 for n in lengths)
        self.assertIn(f"rows.h5 packed: {rows} rows of 64, {share} of them used; {longer} documents are longer", said)
        self.assertRegex(said, rf"rows\.h5 +303 +{sum(lengths) - 1:,} .* 2 +\d+ +\d+ +{max(lengths)}\n")
        self.assertIn("dropped 1: no token to predict", said)
        if importlib.util.find_spec("matplotlib"):
            self.assertEqual((self.folder / "rows.png").read_bytes()[:6], b"\x89PNG\r\n")
        else:
            self.assertRegex(said, r"no picture \S+rows\.png: .*no Python package matplotlib.*\nlengths of rows\.h5 \(")

    def test_a_picture_in_characters(self):
        path = self.lines("few.jsonl", *({"text": "x" * n} for n in (1, 1, 1, 9)))
        said = self.prepare(path, "--picture", "-", "--sequence", 12).stdout
        self.assertIn("lengths of out.h5 (tokens: documents)\n", said)
        self.assertRegex(said, r"\n +2 #{40} 3\n")
        self.assertRegex(said, r"\n +10 #{14} 1\n")
        self.assertRegex(said, r"rows of out\.h5 \(tokens in a row: rows\)\n[^#]*\n +4 #{40} 1\n[^#]*\n +12 #{40} 1$")
        bounds = edges_of(np.array([1, 1_000_000]), 12)
        self.assertEqual((bounds[0], bounds[-1]), (1, 1_000_001))

    def test_counts_and_progress(self):
        counts = Counts()
        for n in range(1, 101):
            counts.add(np.arange(n), np.ones(n, np.uint8))
        self.assertEqual(counts.row(), ["100", "5,050", "4,950 (98.0%)", "1", "50", "95", "100"])
        out = io.StringIO()
        progress = Progress(out)
        progress.show(1, 2, 0.5)
        self.assertEqual(out.getvalue(), "", "no line before its time")
        progress.begin, progress.last = progress.begin - 100, progress.last - 100
        progress.show(1000, 2000000, 0.25)
        self.assertRegex(out.getvalue(), r"^1,000 documents, 2,000,000 tokens, (20,000|19,99\d) tokens/s, 25\.0% of the input, 5 min left\n$")
        self.assertEqual(Raw("row", {}, "").weight(), 1000)


if __name__ == "__main__":
    zt.main()
