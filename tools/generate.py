#!/usr/bin/env python3
"""Continues a text, or answers a chat message, with a model that has a Hugging Face tokenizer, or one of bytes.

    tools/generate.py MODEL --prompt "Once upon a time" [--ranks 2] [options of ztrain generate]
    tools/generate.py MODEL --chat --prompt "What is a halo exchange?" --tokens 300 --temperature 0.7 --top-p 0.9

MODEL is what `ztrain generate` takes: a checkpoint step_N, or a Hugging Face folder. The tokenizer is read from
--tokenizer, from MODEL, or from the folder that the checkpoint's run started from; `bytes` is that of tools/prepare_data.py,
which a checkpoint is known by that was trained on its files. The text is turned into ids, ztrain
runs under mpirun, and its ids come back as text while they arrive. A prompt of "-" is read from standard input. The ids of
the prompt go through a file in $TMPDIR, which rank 0 must see. Needs the Python package transformers or tokenizers, and jinja2
for chats; ztrain itself needs none. An answer ends with the token that ends its turn in the chat template, or the model's own.
"""
import argparse
import io
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

from packages import lacks
from prepare.hub import NotFound, check_name, is_hub_name, transformers_tokenizer, why_unread
from prepare.records import Chat
from prepare.template import ChatTemplate, TemplateError, unmark
from prepare.tokenizer import TokenizerError, load_tokenizer

ROOT = pathlib.Path(__file__).resolve().parent.parent
BYTES = "bytes"
TAIL = 32  # tokens before a new one that its text may depend on
BROKEN = "\ufffd"  # what half a character is decoded to


def refuse(what):
    sys.exit(f"tools/generate.py: {what}")


def check_model(folder):
    """Before anything is loaded: is there a whole model?"""
    if not folder.is_dir():
        download = f"; download the files of that model first: `hf download {folder} --local-dir {folder}`"
        refuse(f"there is no folder {folder}{download if is_hub_name(folder) else ''}")
    if (folder / "adapter_config.json").exists() and not (folder / "config.json").exists():
        refuse(f"{folder} holds adapters alone; give the run's step_N, or export that with them merged (without --adapter)")


def check_programs(arguments):
    if arguments.ztrain.is_file():  # of ./ztrain a Path keeps ztrain, which would be looked for in PATH
        arguments.ztrain = arguments.ztrain.resolve()
    programs = [str(arguments.ztrain)]
    if arguments.ranks > 1:
        programs += arguments.mpirun.split()[:1]
    for program in programs:
        if shutil.which(program) is None:
            refuse(f"there is no program {program}; build ztrain, or name it with --ztrain (the launcher: --mpirun)")


def metadata_of(checkpoint):
    try:
        import h5py
    except ImportError:
        refuse(f"{lacks('h5py')}; or name the folder of the checkpoint's tokenizer with --tokenizer")
    file = checkpoint / "index.h5"
    try:
        with h5py.File(file) as index:
            text = index.attrs["metadata"]
        metadata = json.loads(text)
        if not isinstance(metadata.get("data", {}), dict) or not isinstance(metadata.get("model_from") or "", str):
            raise ValueError("it is not what a run writes")
    except (OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        why = str(error).strip('"') or type(error).__name__
        refuse(f"{file}: its metadata cannot be read ({why}): see `ztrain verify {checkpoint}`, or name the tokenizer's folder with --tokenizer")
    return metadata


def is_of_bytes(metadata):
    """Whether a run's data were prepared as bytes; False where the packages that know are missing."""
    try:
        from prepare.writer import hash_of
    except ImportError:
        return False
    return metadata.get("data", {}).get("tokenizer") == hash_of(load_tokenizer(BYTES).file_bytes)


def tokenizer_folder(arguments):
    if arguments.tokenizer:
        return arguments.tokenizer
    model = pathlib.Path(arguments.model)
    if (model / "index.h5").exists() and not (model / "tokenizer_config.json").exists():
        metadata = metadata_of(model)
        if metadata.get("model_from"):
            return pathlib.Path(metadata["model_from"])
        if is_of_bytes(metadata):
            return pathlib.Path(BYTES)
    return model


def ids_once(ids, own):
    """The ids of a text with the tokenizer's own tokens around it; `own`, its ids without these, where it begins with them
    itself."""
    return own if own[:1] == ids[:1] else ids


class Transformers:
    """Encodes and decodes with transformers' tokenizer of a folder."""

    def __init__(self, folder):
        self.tokenizer, _ = transformers_tokenizer(str(folder))

    def encode(self, text):
        return ids_once(self.tokenizer.encode(text), self.tokenizer.encode(text, add_special_tokens=False))

    def decode(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=True)


class Tokenizers:
    """The same with the package tokenizers alone."""

    def __init__(self, folder):
        from tokenizers import Tokenizer

        self.tokenizer = Tokenizer.from_file(str(pathlib.Path(folder) / "tokenizer.json"))

    def encode(self, text):
        return ids_once(self.tokenizer.encode(text).ids, self.tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids):
        return self.tokenizer.decode(ids)


class PlainBytes:
    """The same of a model of bytes."""

    def __init__(self):
        self.tokenizer = load_tokenizer(BYTES)

    def encode(self, text):
        return self.tokenizer.encode(text)

    def decode(self, ids):
        return self.tokenizer.decode([i for i in ids if i != self.tokenizer.eos_id])


def open_tokenizer(folder):
    if str(folder) == BYTES:
        return PlainBytes()
    try:
        check_name(str(folder))
    except NotFound as error:
        refuse(f"--tokenizer: {error}")
    for kind in (Transformers, Tokenizers):
        try:
            return kind(folder)
        except ImportError:
            continue
        except Exception as error:  # what the packages throw is theirs
            why = why_unread(folder, error)
            refuse(f"no tokenizer can be read from '{folder}' ({why}); copy its files there, or name a folder with --tokenizer")
    refuse(f"{lacks('transformers')}; tokenizers does as well")


def own_ends(folder):
    """The ids that end a text by the files of a model's folder."""
    for name in ("generation_config.json", "config.json"):
        file = pathlib.Path(folder) / name
        if not file.is_file():
            continue
        try:
            ends = json.loads(file.read_text(encoding="utf-8")).get("eos_token_id")
        except (ValueError, AttributeError, RecursionError, OSError) as error:
            refuse(f"{file} is no JSON object: {error}; mend it, or say with --eos which ids end a text")
        ends = [] if ends is None else ends if isinstance(ends, list) else [ends]
        if not all(type(i) is int and 0 <= i < 1 << 31 for i in ends):
            refuse(f"{file}: eos_token_id = {ends} are no ids of tokens; mend it, or say with --eos which ids end a text")
        if ends:
            return ends
    return []


def ends_of_turn(template, tokenizer, messages):
    """The special token that the template puts behind an answer, where it does."""
    answer = "ztrain"
    try:
        turn, _ = unmark(template.render(Chat([*messages, {"role": "assistant", "content": answer}])))
    except TemplateError:  # it may want the last word to be a user's
        return []
    _, found, behind = turn.rpartition(answer)
    return tokenizer.encode(behind.lstrip())[:1] if found else []


def chat_prompt(folder, messages):
    """The ids of the messages and of the answer's beginning, as tools/prepare_data.py would train on them; and those that end it."""
    try:
        tokenizer = load_tokenizer(str(folder))
        if not tokenizer.template:
            refuse(f"--chat: {folder} has no chat template; name a folder that has one with --tokenizer")
        template = ChatTemplate(tokenizer.template, tokenizer.tokens)
        chat = template.without_doubles(Chat(messages), tokenizer.special)
        asked, _ = unmark(template.render(chat, prompt=True))
        special = {i for text in tokenizer.special for i in tokenizer.encode(text)}
        ends = {i for i in [*ends_of_turn(template, tokenizer, messages), tokenizer.eos_id] if i in special}
        return tokenizer.encode(asked), ends
    except (TokenizerError, TemplateError) as error:
        refuse(f"--chat: {error}")


def words_from(stream):
    """The words of a stream, each as soon as the space behind it has come."""
    word = b""
    while byte := stream.read(1):
        if byte.isspace():
            if word:
                yield word.decode()
            word = b""
        else:
            word += byte
    if word:
        yield word.decode()


class NewText:
    """What each id adds to the text of those before it. Decodes a window of TAIL to 2 * TAIL ids, which begins where a
    character does."""

    def __init__(self, tokenizer, prompt):
        self.tokenizer = tokenizer
        starts = range(max(0, len(prompt) - TAIL), len(prompt))
        clean = (i for i in starts if not tokenizer.decode(prompt[i:]).startswith(BROKEN))
        self.window = list(prompt[next(clean, 0):])
        self.printed = tokenizer.decode(self.window)
        self.next_start = 0  # in the window: where the next one may begin

    def add(self, token):
        """The new text; "" for half a character, which waits for its other half."""
        self.window.append(token)
        text = self.tokenizer.decode(self.window)
        if text.endswith(BROKEN):
            return ""
        new = text[len(self.printed):]
        if len(self.window) >= self.next_start + TAIL:
            self.window = self.window[self.next_start:]
            self.next_start = len(self.window)
            text = self.tokenizer.decode(self.window)
        self.printed = text
        return new


class Aside:
    """What ztrain says on stderr: passed on as it comes, but not into text that is being written."""

    def __init__(self, stream):
        self.lock, self.held = threading.Lock(), None  # held: lines that wait for the end of the text
        self.thread = threading.Thread(target=self.pass_on, args=(io.BufferedReader(stream),), daemon=True)
        self.thread.start()

    def pass_on(self, stream):
        for line in stream:
            with self.lock:
                if self.held is None:
                    self.write(line)
                else:
                    self.held.append(line)

    @staticmethod
    def write(line):
        sys.stderr.write(line.decode(errors="replace"))
        sys.stderr.flush()

    def hold(self):
        with self.lock:
            self.held = []

    def end(self):
        self.thread.join()
        for line in self.held or ():
            self.write(line)


def stream_text(tokenizer, prompt, words):
    text = NewText(tokenizer, prompt)
    for word in words:
        print(text.add(int(word)), end="", flush=True)
    print(flush=True)


def launch(arguments, prompt_file, others):
    words = [arguments.ztrain, "generate", arguments.model, "--ids", "--prompt-file", prompt_file, *others]
    if arguments.ranks > 1:
        words = [*arguments.mpirun.split(), "-np", arguments.ranks, *words]
    return subprocess.Popen([str(w) for w in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a folder step_N, or one with config.json and safetensors files")
    parser.add_argument("--prompt", required=True, help="text; -: read from standard input")
    parser.add_argument("--chat", action="store_true", help="the prompt is a user's message; use the chat template")
    parser.add_argument("--system", help="with --chat: the system's message before it")
    parser.add_argument("--tokenizer", type=pathlib.Path, help="folder with the tokenizer's files, or bytes")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--mpirun", default="mpirun --bind-to none", help="launcher with its options")
    parser.add_argument("--ztrain", type=pathlib.Path, default=ROOT / "build" / "cpu" / "ztrain")
    arguments, others = parser.parse_known_args()
    if arguments.ranks < 1:
        refuse(f"--ranks {arguments.ranks}: must be 1 or more")
    return arguments, others


def read_prompt(words):
    """The text of --prompt."""
    text = sys.stdin.buffer.read() if words == "-" else os.fsencode(words)
    try:
        text = text.decode()
    except UnicodeDecodeError:
        refuse("--prompt: is no UTF-8 text")
    if not text:
        refuse("--prompt: is empty; a model goes on from a token at least")
    return text


def say(arguments, tokenizer, ids, process):
    """Prints what comes; gives the exit status."""
    aside = Aside(process.stderr)
    words = words_from(process.stdout)
    first = list(itertools.islice(words, 1))
    if first or process.wait() == 0:
        aside.hold()
        try:
            print("" if arguments.chat else arguments.prompt, end="", flush=True)
            stream_text(tokenizer, ids, itertools.chain(first, words))
        except OSError as error:
            process.terminate()
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left would fail again at the end
            refuse(f"stdout: {error.strerror}")
    aside.end()
    return process.wait()


def main():
    arguments, others = parse_arguments()
    check_model(pathlib.Path(arguments.model))
    check_programs(arguments)
    arguments.prompt = read_prompt(arguments.prompt)
    folder = tokenizer_folder(arguments)
    tokenizer = open_tokenizer(folder)
    if arguments.chat:
        system = [{"role": "system", "content": arguments.system}] if arguments.system else []
        ids, ends = chat_prompt(folder, [*system, {"role": "user", "content": arguments.prompt}])
        if not any(word == "--eos" or word.startswith("--eos=") for word in others):
            if ends := sorted(ends | set(own_ends(folder))):
                others += ["--eos", ",".join(map(str, ends))]
    else:
        ids = tokenizer.encode(arguments.prompt)
    # Not a word of the command line: that may have 128 KiB, about 20,000 ids.
    with tempfile.NamedTemporaryFile("w", prefix="ztrain-prompt-", suffix=".txt") as file:
        print(*ids, file=file, flush=True)
        process = launch(arguments, file.name, others)
        try:
            return say(arguments, tokenizer, ids, process)
        except KeyboardInterrupt:
            process.terminate()
            raise


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # which removes the prompt's file, too
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
