"""tools/generate.py around ztrain: prompts of any length, and text that comes as ids do. The tokenizer is a stand-in for
the package transformers, which the tests do not have: its tokens are bytes."""

import argparse
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import h5py
import hf_model as hf
import ztrain_run as zt

TOOL = zt.SOURCE / "tools" / "generate.py"
TOKENIZER = '''
class utils:
    class logging:
        set_verbosity_error = disable_progress_bar = staticmethod(lambda: None)

    cached_file = staticmethod(lambda *words, **options: None)


class AutoTokenizer:
    @classmethod
    def from_pretrained(cls, folder, **only):
        return cls()

    def encode(self, text, add_special_tokens=True):
        return list(text.encode())

    def decode(self, ids, skip_special_tokens=True):
        return bytes(i for i in ids if i < 256).decode(errors="replace")

    eos_token, chat_template = "\\0", (
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\\1{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
    )

    @property
    def backend_tokenizer(self):
        return Backend()


class Special:
    special = True

    def __init__(self, content):
        self.content = content


class Backend:
    """\\0 ends texts, and \\1 turns."""

    no_truncation = no_padding = lambda self: None
    to_str = lambda self: ""
    get_vocab = lambda self, with_added_tokens: {str(i): i for i in range(256)}
    get_added_tokens_decoder = lambda self: {i: Special(chr(i)) for i in (0, 1)}
    token_to_id = lambda self, token: ord(token)

    def encode(self, text, add_special_tokens=True):
        self.ids = list(text.encode())
        return self
'''
# Says the ids of its prompt file again, each after a space.
ECHO = """#!/bin/sh
while [ "$1" != --prompt-file ]; do shift; done
cat "$2"
"""
# As ECHO, and says what ends its text.
ENDS = """#!/bin/sh
words=$*
while [ "$1" != --prompt-file ]; do shift; done
cat "$2"
echo "${words##*--eos}" >&2
"""
# Counts while its text is under way.
TALKS = """#!/bin/sh
printf '65 '
sleep 0.2
echo counted >&2
sleep 0.2
printf '66 '
"""


def load_tool():
    sys.path.insert(0, str(TOOL.parent))  # its own modules, before those of these tests
    spec = importlib.util.spec_from_file_location("generate_tool", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Bytes:
    """Byte fallback as tokenizers do it: a run that is no text as a whole is broken, byte by byte."""

    def __init__(self):
        self.decoded = 0

    def decode(self, ids):
        self.decoded += len(ids)
        try:
            return bytes(ids).decode()
        except UnicodeDecodeError:
            return "\ufffd" * len(ids)


class Checkpoints(unittest.TestCase):
    """Whose tokenizer a checkpoint's metadata tells."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.tool = load_tool()

    def tokenizer_of(self, metadata):
        with h5py.File(self.folder / "index.h5", "w") as file:
            if metadata is not None:
                file.attrs["metadata"] = metadata
        return str(self.tool.tokenizer_folder(argparse.Namespace(tokenizer=None, model=self.folder)))

    def test_bytes_are_known_by_their_hash(self):
        from prepare.writer import hash_of

        data = lambda text: json.dumps({"data": {"tokenizer": hash_of(text)}})
        self.assertEqual(self.tokenizer_of(data(b"bytes")), "bytes")
        self.assertEqual(self.tokenizer_of(data(b"another")), str(self.folder))
        self.assertEqual(self.tokenizer_of("{}"), str(self.folder))
        self.assertEqual(self.tokenizer_of('{"model_from": "/models/a"}'), "/models/a")

    def test_damaged_ones_are_named(self):
        damaged = rf"{re.escape(str(self.folder))}/index\.h5: its metadata cannot be read \(.+\): see `ztrain verify "
        for metadata in (None, "no JSON", "5", "[]", '{"data": 5}', '{"data": null}', '{"model_from": 5}'):
            with self.assertRaisesRegex(SystemExit, damaged, msg=metadata):
                self.tokenizer_of(metadata)
        (self.folder / "index.h5").write_bytes((self.folder / "index.h5").read_bytes()[:100])
        with self.assertRaisesRegex(SystemExit, damaged):
            self.tool.metadata_of(self.folder)


class Streams(unittest.TestCase):
    TEXT = "Ein Wörtchen, 漢字ばかり, 😀😀! " * 40

    def added(self, tokenizer, prompt, ids):
        load_tool()
        from answers import NewText

        text = NewText(tokenizer, prompt)
        return [text.add(i) for i in ids]

    def test_the_text_is_that_of_all_ids(self):
        ids = list(self.TEXT.encode())
        for cut in (0, 1, 3, 24, 500):
            start = len(self.TEXT[:cut].encode())
            parts = self.added(Bytes(), ids[:start], ids[start:])
            self.assertEqual("".join(parts), self.TEXT[cut:], cut)
            self.assertEqual([p for p in parts if p], list(self.TEXT[cut:]), "characters come as they are whole")

    def test_a_prompt_begins_with_a_token_of_the_tokenizer_once(self):
        tool = load_tool()
        for own, ids, once in (([5], [1, 5], [1, 5]), ([1, 5], [1, 1, 5], [1, 5]), ([5], [5], [5]), ([], [1], [1])):
            self.assertEqual(tool.ids_once(ids, own), once)

    def test_the_cost_of_an_id_does_not_grow(self):
        ids = list((self.TEXT * 4).encode())
        tokenizer = Bytes()
        self.added(tokenizer, ids, ids)
        self.assertLess(tokenizer.decoded, 200 * len(ids))


class Tool(hf.Models):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.folder / "transformers.py").write_text(TOKENIZER)
        cls.echo, cls.talks, cls.ends = (cls.folder / f"{name}.sh" for name in ("echo", "talks", "ends"))
        for script, text in ((cls.echo, ECHO), (cls.talks, TALKS), (cls.ends, ENDS)):
            script.write_text(text)
            script.chmod(0o755)

    def begin_tool(self, *words, ztrain=zt.EXECUTABLE, **more):
        env = zt.environment({"PYTHONPATH": str(self.folder), "TMPDIR": str(self.folder)})
        command = [sys.executable, "-B", TOOL, self.folder / "model", "--ztrain", ztrain, *words]
        return subprocess.Popen([w if isinstance(w, bytes) else str(w) for w in command], env=env, encoding="utf-8", **more)

    def run_tool(self, *words, ztrain=zt.EXECUTABLE, stdin="", stderr=subprocess.PIPE):
        with self.begin_tool(*words, ztrain=ztrain, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr) as process:
            out, said = process.communicate(stdin, timeout=60)
        self.assertEqual(process.returncode, 0, said)
        self.assertEqual(list(self.folder.glob("ztrain-prompt-*")), [], "the prompt's file is left")
        return out

    def test_a_prompt_of_any_length(self):
        """Its 90,000 ids would be 360,000 characters in one argument, where 131,072 are the limit."""
        prompt = "word " * 18000
        text = self.run_tool("--prompt", "-", ztrain=self.echo, stdin=prompt)
        self.assertEqual(text, prompt + prompt + "\n")

    def test_what_is_said_meanwhile_comes_behind_the_text(self):
        text = self.run_tool("--prompt", "a", ztrain=self.talks, stderr=subprocess.STDOUT)
        self.assertEqual(text, "aAB\ncounted\n")

    def refused(self, *words, ztrain=None, stdout=subprocess.DEVNULL):
        with self.begin_tool(*words, ztrain=ztrain or self.echo, stdout=stdout, stderr=subprocess.PIPE) as process:
            said = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 1, said)
        self.assertEqual(said.count("\n"), 1, said)
        return said

    def test_mistakes_are_one_line(self):
        self.assertIn("--prompt: is no UTF-8 text", self.refused("--prompt", b"\xff\xfe"))
        self.assertIn("--prompt: is empty", self.refused("--prompt", ""))
        self.assertIn("--ranks 0: must be 1 or more", self.refused("--prompt", "a", "--ranks", "0"))
        with open("/dev/full", "w", encoding="utf-8") as full:
            self.assertIn("stdout: No space left on device", self.refused("--prompt", "a", stdout=full))

    def test_one_that_is_told_to_end_leaves_no_prompt(self):
        waits = self.folder / "waits.sh"
        waits.write_text("#!/bin/sh\nexec sleep 60\n")
        waits.chmod(0o755)
        with self.begin_tool("--prompt", "a", ztrain=waits) as process:
            zt.wait_for("the prompt's file", lambda: list(self.folder.glob("ztrain-prompt-*")))
            process.terminate()
            self.assertEqual(process.wait(20), 130)
        self.assertEqual(list(self.folder.glob("ztrain-prompt-*")), [])

    def test_a_chat_ends_with_its_turn(self):
        """By what the template puts behind an answer, the tokenizer's end of texts, and the model's (of config.json)."""
        own = json.loads((self.folder / "model" / "config.json").read_text()).get("eos_token_id")
        ends = sorted({0, 1} | ({own} if isinstance(own, int) else set(own or ())))
        for words, expected in ((), ",".join(map(str, ends))), (("--eos", "7"), "7"):
            text = self.run_tool("--chat", "--system", "be brief", "--prompt", "hi", *words, ztrain=self.ends, stderr=subprocess.STDOUT)
            self.assertEqual(sorted(text.split("\n")), ["", f" {expected}", "system: be brief\1user: hi\1assistant: "])

    def test_a_chat_without_a_prompt_keeps_its_turns(self):
        """One process of ztrain answers all of them."""
        counts = self.folder / "counts.sh"
        counts.write_text(ECHO + 'n=1; while read -r ids; do n=$((n + 1)); echo "$ids"; done; echo "$n prompts" >&2\n')
        counts.chmod(0o755)
        text = self.run_tool("--chat", "--system", "brief", ztrain=counts, stdin="hi\n\nyou\n", stderr=subprocess.STDOUT)
        one = "system: brief\1user: hi\1assistant: "
        two = f"{one}{one}\1user: you\1assistant: "
        self.assertEqual(text, f"> {one}\n> > {two}\n> \n2 prompts\n")
        self.assertEqual(self.run_tool("--chat", ztrain=counts), "> \n")
        self.assertIn("--prompt is missing", self.refused())

    def test_a_chat_with_ztrain(self):
        """The second answer is that of a prompt that has all before it."""
        words = ["--temperature", 0, "--tokens", 5, "--dtype", "fp32", "--eos", -1]
        launcher = ["--ranks", 2, "--mpirun", os.environ["ZTRAIN_MPIRUN"]]
        out = self.run_tool("--chat", *words, *launcher, stdin="a\nb\n")
        first, second = re.fullmatch(r"> (.*)\n> (.*)\n> \n", out, re.S).groups()
        prompt = f"user: a\1assistant: {first}\1user: b\1assistant: "
        straight = self.run_tool("--prompt", "-", *words, stdin=prompt)
        self.assertEqual(straight, f"{prompt}{second}\n")

    def test_chats_that_cannot_be(self):
        """What a model's folder says of the ends of texts, and templates that fail."""
        tool = load_tool()
        folder = self.folder / "odd"
        folder.mkdir()
        for text, said in (("", "no JSON object"), ("[]", "no JSON object"), ('{"eos_token_id": [1, "x"]}', "no ids"), ('{"eos_token_id": true}', "no ids")):
            (folder / "generation_config.json").write_text(text)
            with self.assertRaisesRegex(SystemExit, rf"generation_config\.json\b.*{said}"):
                tool.own_ends(folder)
        (folder / "generation_config.json").write_text('{"eos_token_id": [7, 9]}')
        self.assertEqual(tool.own_ends(folder), [7, 9])
        for text, said in (("{{ 1 / 0 }}", "division"), ("{{ messages.index(3) }}", "refuses"), ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "end")):
            with self.assertRaisesRegex(tool.TemplateError, said):
                tool.ChatTemplate(text, {}).render(tool.Chat([]))
        with self.assertRaises(tool.TemplateError):
            tool.ChatTemplate(7, {})
        asks = tool.ChatTemplate('{% if messages[-1].role != "user" %}{{ raise_exception("user last") }}{% endif %}', {})
        self.assertEqual(tool.ends_of_turn(asks, None, []), [])
        self.assertEqual(tool.ends_of_turn(tool.ChatTemplate("{{ messages[0].content | upper }}", {}), None, []), [])

    def test_ids_of_ztrain_become_text(self):
        words = ["--temperature", 0, "--tokens", 12, "--dtype", "fp32", "--eos", -1]
        ids = ",".join(str(b) for b in b"kalo")
        result = zt.run(0, ["generate", self.folder / "model", "--prompt-ids", ids, *words])
        made = bytes(int(i) for i in result.out.split() if int(i) < 256)
        launcher = ["--ranks", 2, "--mpirun", os.environ["ZTRAIN_MPIRUN"]]
        for more in ([], launcher):
            text = self.run_tool("--prompt", "kalo", *words, *more)
            # What is half a character at the end waits in vain.
            whole = (b"kalo" + made).decode(errors="replace").rstrip("\ufffd")
            self.assertEqual(text.rstrip("\n\ufffd"), whole)


class WithoutTokenizer(zt.Case):
    """What is refused before a tokenizer's package is needed."""

    def test_mistakes_are_one_line(self):
        model, adapter = self.folder / "model", self.folder / "adapter"
        for folder, file in ((model, "config.json"), (adapter, "adapter_config.json")):
            folder.mkdir()
            (folder / file).write_text("{}")
        cases = (
            (["nosuch"], "there is no folder nosuch"),
            ([adapter], "holds adapters alone; give the run's step_N"),
            ([model, "--ztrain", "/nope"], "there is no program /nope"),
            ([model, "--ztrain", sys.executable, "--tokenizer", "nosuch"], "there is no folder nosuch"),
        )
        for words, pattern in cases:
            command = [sys.executable, "-B", TOOL, *words, "--prompt", "a"]
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertRegex(done.stderr, rf"^tools/generate\.py: [^\n]*{pattern}[^\n]*\n$")


if __name__ == "__main__":
    zt.main()
