"""tools/prepare_data.py with its bytes tokenizer: masks, formats, splits, mistakes; and ztrain trains on what it writes."""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
from unittest import mock

import h5py
import numpy as np
import ztrain_run as zt
from prepare_case import CHAT, TOOL, PrepareCase, text_of, trained

from prepare import writer
from prepare.documents import Maker, Options
from prepare.records import InputError, Raw, parse
from prepare.tokenizer import load_tokenizer

# Without generation blocks: turns are found by rendering what comes before them.
BY_TURNS = (
    "{% for m in messages %}<|{{ m.role }}|>{{ '\\n' + m.content + '<|end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{{ '\\n' }}{% endif %}"
)
# Leaves out what earlier turns of the assistant thought, as some do.
FORGETFUL = (
    "{% for m in messages %}[{{ m.role }}]{% if loop.last %}{{ m.content }}{% else %}"
    "{{ m.content.split('</think>')[-1] }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


class Framed:
    """A tokenizer of characters, whose texts begin with <s> and end with </s>."""

    bos_id, eos_id, special, special_ids, decode = 1, 2, ["<s>", "</s>"], {1, 2}, str
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    template = (
        "{{ bos_token }}{% for m in messages %}[{{ m.role[0] }}]{{ m.content }}{{ eos_token }}{% endfor %}"
        "{% if add_generation_prompt %}[a]{% endif %}"
    )

    def encode(self, text):
        return [ord(c) for c in text.replace("<s>", "\1").replace("</s>", "\2")]


class Prepare(PrepareCase):
    def test_masks_are_of_the_assistants_turns(self):
        chat = self.lines("chat.jsonl", {"messages": CHAT})
        expected = (
            "<|system|>\nBe brief.|\n<|user|>\nHé?|\n<|assistant|>\nHello 😀|\n"
            "<|user|>\nBye|\n<|assistant|>\nSo long!|\n"
        )
        turns = {
            "assistant": ["Hello 😀|", "So long!|"],
            "last": ["So long!|"],
            "all": [expected],
        }
        by_turns = self.folder / "by_turns.jinja"
        by_turns.write_text(BY_TURNS)
        for words in ((), ("--chat-template", by_turns)):
            for train_on, parts in turns.items():
                self.prepare(chat, "--train-on", train_on, *words)
                [(ids, mask)] = self.documents()
                self.assertEqual(text_of(ids), expected)
                self.assertEqual(trained(ids, mask), parts, (train_on, words))

    def test_all_kinds_of_records(self):
        path = self.lines(
            "kinds.jsonl",
            {"conversations": [{"from": "human", "value": "2+2?"}, {"from": "gpt", "value": "4"}]},
            {"prompt": "Q: ", "completion": "A"},
            {"prompt": CHAT[:3], "completion": CHAT[3:]},
            "",
            {"text": "text"},
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "parts"}]}, CHAT[2]]},
        )
        (self.folder / "two.txt").write_text("one\n===\ntwo\nlines\n===\n")
        with gzip.open(self.folder / "more.jsonl.gz", "wt") as file:
            file.write('{"text": "packed"}\n')
        more = [self.folder / "two.txt", self.folder / "more.jsonl.gz"]
        out = self.prepare(path, *more, "--separator", "===", "--show", "2").stdout
        found = [(text_of(ids), trained(ids, mask)) for ids, mask in self.documents()]
        self.assertEqual(found[0], ("<|user|>\n2+2?|\n<|assistant|>\n4|\n", ["4|"]))
        self.assertEqual(found[1], ("Q: A|", ["A|"]))
        self.assertEqual(found[2][1], ["So long!|"])
        self.assertEqual(found[3], ("text|", ["text|"]))
        self.assertEqual(found[4][1], ["Hello 😀|"])
        self.assertEqual([f[0] for f in found[5:]], ["one\n|", "two\nlines\n|", "packed|"])
        self.assertIn(">>>4<|end|><<<", out)
        self.assertRegex(out, r"out\.h5 +8 ")
        self.prepare(self.lines("pair.jsonl", {"prompt": "P", "completion": "C"}), "--pairs", "chat")
        self.assertEqual(text_of(self.documents()[0][0]), "<|user|>\nP|\n<|assistant|>\nC|\n")

    def test_what_a_text_begins_and_ends_with_is_there_once(self):
        def made(record):
            document = Maker(Framed(), Options()).make(Raw("json", json.dumps(record), "a:1"))
            return "".join(map(chr, document.ids)).replace("\1", "<s>").replace("\2", "</s>"), document.mask[1:]

        def chat(question, answer):
            return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}

        for expected, plain, *others in (
            ("<s>ab</s>", {"text": "ab"}, {"text": "<s>ab</s>"}, {"text": "ab</s>"}),
            ("<s>PC</s>", {"prompt": "P", "completion": "C"}, {"prompt": "<s>P", "completion": "<s>C</s>"}),
            ("<s>[u]Q</s>[a]A</s>", chat("Q", "A"), chat("<s>Q", "A</s>"), chat("Q</s>", "A</s>\n")),
        ):
            found = made(plain)
            self.assertEqual(found[0], expected)
            for record in others:
                self.assertEqual(made(record), found, record)
        self.prepare(self.lines("ended.jsonl", {"text": "ab<|end|>"}, chat("Q<|end|>", "A<|end|>")))
        whole = ["ab|", "<|user|>\nQ|\n<|assistant|>\nA|\n"]
        self.assertEqual([text_of(ids) for ids, _ in self.documents()], whole)

    def test_what_is_dropped_is_counted(self):
        path = self.lines(
            "dropped.jsonl",
            {"messages": CHAT},
            {"messages": CHAT[:2]},
            {"text": " "},
            {"text": "long " * 100},
            {"prompt": "p" * 99, "completion": "c"},
            "no JSON",
        )
        done = self.prepare(path, "--skip-errors", "--max-length", 80, "--on-long", "truncate")
        for why, line in (("no assistant turn", 2), ("empty", 3), ("no token to predict", 5), ("error", 6)):
            self.assertIn(f"dropped 1: {why} (first: {path}:{line})\n", done.stdout)
        self.assertRegex(done.stdout, r"the first error: \S+dropped\.jsonl:6: is not JSON")
        self.assertIn("2 longer than --max-length 80: truncated", done.stdout)
        self.assertEqual([len(ids) for ids, _ in self.documents()], [80, 80])
        self.prepare(path, "--skip-errors", "--max-length", 110, "--on-long", "drop")
        self.assertEqual(len(self.documents()), 2)

    def test_the_split_is_reproducible_and_workers_change_nothing(self):
        path = self.lines("many.jsonl", *({"text": f"document {i} " * (i % 7 + 1)} for i in range(600)))
        found = []
        for words in ((), ("--workers", 2), ("--seed", 1)):
            self.prepare(path, "--validation", 0.2, *words)
            parts = (self.documents(), self.documents("out.validation.h5"))
            found.append([[text_of(ids) for ids, _ in part] for part in parts])
        self.assertEqual(found[0], found[1])
        self.assertNotEqual(found[0], found[2])
        self.assertEqual(len(found[0][0]) + len(found[0][1]), 600)
        self.assertTrue(80 <= len(found[0][1]) <= 160, len(found[0][1]))

    def test_the_mark_before_utf8_is_no_text(self):
        for name, text in ("a.jsonl", '{"text": "ab"}'), ("a.txt", "ab"):
            (self.folder / name).write_bytes(text.encode("utf-8-sig"))
            self.prepare(self.folder / name)
            self.assertEqual([len(ids) for ids, _ in self.documents()], [3])

    def test_long_inputs_are_written_as_they_come(self):
        """More than a buffer; the offsets fit, and what is read ahead of time lies in one piece."""
        turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]
        path = self.lines("large.jsonl", *({"text": "abcdefghi"[i] * (300000 + i)} for i in range(9)), {"messages": turns})
        self.prepare(path)
        found = [(len(ids), set(ids[:-1].tolist()), mask.sum()) for ids, mask in self.documents()[:-1]]
        self.assertEqual(found, [(300001 + i, {ord("a") + i}, 300001 + i) for i in range(9)])
        with h5py.File(self.folder / "out.h5") as file:
            for name in ("tokens", "loss_mask", "document_offsets"):
                self.assertIsNone(file[name].chunks, name)
                self.assertIsNotNone(file[name].id.get_offset(), name)

    def test_mistakes_name_file_and_line(self):
        good = {"text": "good"}
        cases = (
            ('{"messages":[', r"a:2: is not JSON: Expecting value at column 14"),
            ({"text": "\ud800 abc"}, r"a:2: holds \\ud800 without its other half"),
            ({"messages": [{"role": "asistant"}]}, r"\[0\] has the role 'asistant'; is 'assistant' meant\? Known are human, user"),
            ([1], r"a:2: is a JSON list"),
            ({"input": 1}, r"a:2: is of no kind that is read: its fields are input, and the kinds are .* messages \(messages\), .*--column"),
            ({"text": None}, r"a:2: \"text\" is null, and must be a string"),
            ({"messages": None, "text": 5}, r"\"text\" is a number, and must be a string"),
            ({"prompt": "p", "completion": None}, r"\"completion\" is null, and must be a string or a list"),
            ({"prompt": "p", "completion": True}, r"prompt and completion must .*, and are a string and true"),
            ({"messages": {}}, r"\"messages\" is an object, and must be a list of messages"),
            ({"messages": [{"content": "a"}]}, r"a:2: \"messages\"\[0\] has no \"role\""),
            ({"conversations": [{"from": "dog", "value": "w"}]}, r"a:2: .* is from 'dog'"),
            ({"messages": [{"role": "user"}]}, r"a:2: .* has no \"content\""),
            ({"messages": [{"role": "user", "content": None}]}, r"a:2: the \"content\" of \"messages\"\[0\] is null"),
        )
        for record, pattern in cases:
            text = record if isinstance(record, str) else json.dumps(record)
            with self.assertRaisesRegex(InputError, pattern):
                parse(Raw("json", text, "a:2"))
        self.refused(self.lines("null.jsonl", good, {"text": None}), pattern=r"null\.jsonl:2: \"text\" is null")
        (self.folder / "latin.txt").write_bytes(b"caf\xe9")
        self.refused(self.folder / "latin.txt", pattern=r"latin\.txt: is not UTF-8")
        (self.folder / "wide.jsonl").write_bytes(json.dumps(good).encode("utf-16"))
        self.refused(self.folder / "wide.jsonl", pattern=r"wide\.jsonl: is text in UTF-16, and must be UTF-8: .*iconv -f UTF-16")
        self.refused(self.folder / "none.jsonl", pattern=r"none\.jsonl: No such file")
        empty = self.lines("empty.jsonl", {"text": ""})
        why = r"\(dropped 1: empty \(first: \S+empty\.jsonl:1\)\)"
        self.refused(empty, pattern=r"out\.h5: would hold no document of \S+empty\.jsonl " + why)
        self.refused(self.lines("no_line.jsonl"), pattern=r"would hold no document of \S+no_line\.jsonl \(there are none\)")
        few = r"out\.validation\.h5: would hold no document of \S+one\.jsonl \(all 1 fell to \S+/out\.h5: give another --val"
        self.refused(self.lines("one.jsonl", good), "--validation", 0.001, pattern=few)
        self.refused(self.lines("good.jsonl", good), tokenizer="nosuch", pattern=r"--tokenizer nosuch: there is no folder nosuch")
        self.refused(self.folder / "good.jsonl", output="none/out.h5", pattern=r"none: is no folder")
        self.refused(self.folder / "good.jsonl", output="out.bin", pattern=r"--output:? names '\S+out\.bin': an HDF5 file is written")

    def test_skipped_errors_and_named_roles(self):
        path = self.lines("half.jsonl", {"text": "good"}, {"text": "\ud800 abc"}, {"text": "\ud83d\ude00"})
        done = self.prepare(path, "--skip-errors")
        self.assertIn(f"dropped 1: error (first: {path}:2)", done.stdout)
        self.assertEqual([text_of(ids) for ids, _ in self.documents()], ["good|", "😀|"])
        chat = self.lines("critic.jsonl", {"messages": [{"role": "critic", "content": "No."}, CHAT[2]]})
        self.refused(chat, pattern=r"critic\.jsonl:1: .* has the role 'critic'; known are")
        for workers in (1, 2):
            self.prepare(chat, "--roles", "judge,critic", "--workers", workers)
            self.assertEqual(text_of(self.documents()[0][0]), "<|critic|>\nNo.|\n<|assistant|>\nHello 😀|\n")

    def test_a_file_that_cannot_be_written_is_named_and_leaves_nothing(self):
        turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]  # so that there is a mask
        path = self.lines("large.jsonl", *({"text": "x" * 300000} for _ in range(9)), {"messages": turns})
        for largest in (4096, 1 << 20, 6 << 20):  # the last: tokens fit alone, and not with all that the file holds
            done = self.prepare(path, fails=True, largest=largest)
            self.assertRegex(done.stderr, r"^prepare_data\.py: \S+out\.h5: cannot be written: file too large\n$")
            self.assertEqual([p.name for p in self.folder.iterdir() if p.name.startswith("out.h5")], [])

    def test_two_that_write_the_same_file(self):
        """The second is refused, whether HDF5 locks files or not, and takes nothing from the first."""
        text = self.folder / "slow.jsonl"
        os.mkfifo(text)
        for locks in ("TRUE", "FALSE"):
            env = {**os.environ, "HDF5_USE_FILE_LOCKING": locks}
            command = [sys.executable, "-B", TOOL, text, "--tokenizer", "bytes", "--output", self.folder / "out.h5", "--force"]
            with subprocess.Popen([*map(str, command)], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as first:
                with open(text, "w", encoding="utf-8") as input_:
                    zt.wait_for("its file", lambda: (self.folder / "out.h5.partial").exists())
                    other = self.lines("other.jsonl", {"text": "other"})
                    refused = self.prepare(other, fails=True)
                    self.assertIn("out.h5.partial: another prepare_data.py is writing it", refused.stderr)
                    input_.write('{"text": "one"}\n')
                self.assertEqual(first.wait(30), 0)
            self.assertEqual([text_of(ids) for ids, _ in self.documents()], ["one|"])

    def test_a_run_that_is_told_to_end_leaves_nothing(self):
        text = self.folder / "endless.jsonl"
        os.mkfifo(text)
        command = [sys.executable, "-B", TOOL, text, "--tokenizer", "bytes", "--output", self.folder / "ended.h5"]
        with subprocess.Popen([*map(str, command)], stderr=subprocess.PIPE, text=True) as process:
            with open(text, "w", encoding="utf-8") as input_:
                input_.write('{"text": "one"}\n')
                input_.flush()
                zt.wait_for("its file", lambda: (self.folder / "ended.h5.partial").exists())
                process.send_signal(signal.SIGTERM)
                self.assertEqual(process.wait(30), 1)
            self.assertEqual(process.stderr.read(), "prepare_data.py: interrupted; nothing was written\n")
        self.assertEqual([p.name for p in self.folder.iterdir() if p.name.startswith("ended")], [])

    def test_what_is_in_the_way_is_named(self):
        text = self.lines("way.jsonl", {"text": "way"})
        self.prepare(text, output="way.hdf5")
        (self.folder / "way.h5.partial").mkdir()
        self.assertRegex(self.prepare(text, output="way.h5", fails=True).stderr, r"way\.h5\.partial: is no file; remove it")
        (self.folder / "way.h5.partial").rmdir()
        for words in (("--max-length", "-5"), ("--show", "-1"), ("--workers", "0")):
            self.refused(text, *words, pattern=rf"{words[0]}: must be \d or more")

    def test_tokens_gather_on_disk(self):
        """Once they are as many as a process is to have in memory."""
        self.assertLess(writer.BUFFER, 1 << 22)
        with mock.patch.object(writer, "BUFFER", 10):
            file = writer.Writer(self.folder / "gathered.h5", load_tokenizer("bytes"))
            tokens, sizes = file.columns["tokens"], []
            for _ in range(4):
                file.add(np.arange(8, dtype=np.uint16), np.ones(8, np.uint8))
                sizes.append(os.fstat(tokens.file.fileno()).st_size)
            file.close()
        self.assertEqual(sizes, [0, 32, 32, 64])
        file.publish()
        self.assertEqual([ids.tolist() for ids, _ in self.documents("gathered.h5")], 4 * [list(range(8))])

    def test_help_needs_no_packages(self):
        command = [sys.executable, "-E", "-s", "-S", "-B", zt.SOURCE / "tools" / "prepare_data.py", "--help"]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("--skip-errors", done.stdout)

    def test_templates_that_forget_are_refused(self):
        thinking = [*CHAT[:2], {"role": "assistant", "content": "Hm</think>Hello"}, *CHAT[3:]]
        path = self.lines("thinking.jsonl", {"messages": thinking})
        template = self.folder / "forgetful.jinja"
        template.write_text(FORGETFUL)
        apart = r"thinking\.jsonl:1: .* does not let message 2 be told apart: .*, --train-on last, .*or --train-on all"
        self.refused(path, "--chat-template", template, pattern=apart)
        for ways in ("last", "all"):
            self.prepare(path, "--chat-template", template, "--train-on", ways)
        template.write_text("{% for m in messages %}{{ raise_exception('no ' + m.role) }}{% endfor %}")
        self.refused(path, "--chat-template", template, pattern=r"thinking\.jsonl:1: .*refuses the messages: no system")
        template.write_text("{% for %}")
        self.refused(path, "--chat-template", template, pattern=r"the chat template is not valid")

    def assert_chats(self, step):
        """tools/generate.py asks as the model was trained, and ends where it learnt to."""
        asked = [*b"<|user|>\n7 + 1", 256, *b"\n<|assistant|>\n"]
        words = ["--temperature", 0, "--tokens", 30]
        made = zt.run(0, ["generate", step, "--prompt-ids", ",".join(map(str, asked)), *words])  # ends as the data do
        ids = list(map(int, made.out.split()))
        tool = [sys.executable, "-B", zt.SOURCE / "tools" / "generate.py", step, "--ztrain", zt.EXECUTABLE, "--chat", "--prompt", "7 + 1", *words]
        said = subprocess.run(list(map(str, tool)), capture_output=True, text=True, timeout=60)
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertEqual(said.stdout, bytes(i for i in ids if i < 256).decode(errors="replace") + "\n")

    def test_ztrain_trains_on_it(self):
        chats = ({"messages": [{"role": "user", "content": f"{i % 50} + 1"}, {"role": "assistant", "content": f"{i % 50 + 1}"}]}
                 for i in range(400))
        self.prepare(self.lines("sums.jsonl", *chats), "--validation", 0.1, output="sums.h5")
        output = self.train(
            2,
            "sums",
            {
                "data.train": "sums.h5",
                "data.validation": "sums.validation.h5",
                "data.sequence": 128,
                "model.vocab_size": 0,
                "evaluation.interval": 60,
                "run.steps": 60,
                "batch.global": 8,
                "optimizer.lr": 0.01,
            },
        )
        self.assertRegex(self.last.out, r"data +packed documents: \d+ rows of 128, \d+ documents")
        self.assertIn("vocabulary 257", self.last.out)
        epochs, rows = re.search(r"length +60 steps of 8 sequences: (\S+) epochs of (\d+) sequences", self.last.out).groups()
        self.assertAlmostEqual(float(epochs), 60 * 8 / int(rows), delta=0.01 * float(epochs))
        step, exported = output / "checkpoints" / "step_60", self.folder / "exported"
        self.assert_chats(step)
        self.assertEqual(zt.run(0, ["export", step, "--to", exported]).code, 0)
        config = json.loads((exported / "config.json").read_text())
        self.assertEqual([config[f"{which}_token_id"] for which in ("bos", "eos", "pad")], [None, 256, None])
        losses = zt.losses(output)
        self.assertLess(losses[60][0], 0.5 * losses[1][0])
        self.assertLess(zt.validation_losses(output)[60], 0.5 * losses[1][0])
        with h5py.File(self.folder / "sums.h5") as file:
            self.assertRegex(file.attrs["tokenizer_hash"] + file.attrs["chat_template_hash"], "^[0-9a-f]{32}$")
            self.assertEqual([*file.attrs["turn_end_ids"], "tokenizer_folder" in file.attrs], [256, False])


if __name__ == "__main__":
    zt.main()
