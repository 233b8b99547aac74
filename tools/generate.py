#!/usr/bin/env python3
"""Continues a text, or answers a chat message, with a model that has a Hugging Face tokenizer, or one of bytes.

    tools/generate.py MODEL --prompt "Once upon a time" [--ranks 2] [options of ztrain generate]
    tools/generate.py MODEL --chat --prompt "What is a halo exchange?" --tokens 300 --temperature 0.7 --top-p 0.9
    tools/generate.py MODEL --chat                 # asks for one message after the other; Ctrl-D ends

MODEL is what `ztrain generate` takes: a checkpoint step_N, or a Hugging Face folder. The tokenizer is read from
--tokenizer, from MODEL, or from the folder that the checkpoint's run started from; `bytes` is that of tools/prepare_data.py,
which a checkpoint is known by that was trained on its files. The text is turned into ids, ztrain
runs under mpirun, and its ids come back as text while they arrive. A prompt of "-" is read from standard input. The ids of
the prompt go through a file in $TMPDIR, which rank 0 must see. Needs the Python package transformers or tokenizers, and jinja2
for chats; ztrain itself needs none. An answer ends with the token that ends its turn in the chat template, or the model's own.
A chat without --prompt keeps its turns, and the model in memory: --max-length says how many tokens it may have (8,192, or as
many as the model was made for).
"""
import argparse
import functools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

from answers import Answers, refuse
from packages import lacks
from prepare.hub import NotFound, check_name, is_hub_name, transformers_tokenizer, why_unread
from prepare.records import Chat
from prepare.template import ChatTemplate, TemplateError, unmark
from prepare.tokenizer import TokenizerError, load_tokenizer

own_tokenizer = functools.cache(load_tokenizer)
ROOT = pathlib.Path(__file__).resolve().parent.parent
BYTES = "bytes"


def check_model(folder):
    """Before anything is loaded: is there a whole model?"""
    if not folder.is_dir():
        download = f"; download the files of that model first: `hf download {folder} --local-dir {folder}`"
        refuse(f"there is no folder {folder}{download if is_hub_name(folder) else ''}")
    if (folder / "adapter_config.json").exists() and not (folder / "config.json").exists():
        refuse(f"{folder} holds adapters alone; give the run's step_N, or export that with them merged (without --adapter)")


def check_programs(arguments):
    if arguments.ztrain is None:
        built = ROOT / "build" / "cpu" / "ztrain"
        arguments.ztrain = built if built.is_file() else pathlib.Path(shutil.which("ztrain") or built)
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
        tokenizer = own_tokenizer(str(folder))
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


def launch(arguments, prompt_file, others, stdin=None):
    words = [arguments.ztrain, "generate", arguments.model, "--ids", "--prompt-file", prompt_file, *others]
    if arguments.ranks > 1:
        words = [*arguments.mpirun.split(), "-np", arguments.ranks, *words]
    return subprocess.Popen([str(w) for w in words], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a folder step_N, or one with config.json and safetensors files")
    parser.add_argument("--prompt", help="text; -: read from standard input")
    parser.add_argument("--chat", action="store_true", help="the prompt is a user's message, in the chat template; without one, ask for several")
    parser.add_argument("--system", help="with --chat: the system's message before it")
    parser.add_argument("--tokenizer", type=pathlib.Path, help="folder with the tokenizer's files, or bytes")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--mpirun", default="mpirun --bind-to none", help="launcher with its options")
    parser.add_argument("--ztrain", type=pathlib.Path, help="default: that of build/cpu, else of PATH")
    arguments, others = parser.parse_known_args()
    if arguments.ranks < 1:
        refuse(f"--ranks {arguments.ranks}: must be 1 or more")
    if arguments.prompt is None and not arguments.chat:
        refuse("--prompt is missing: give a text to go on from, or --chat alone to talk with the model")
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


def ask():
    """The user's next message that is not empty; None at the end of them."""
    try:
        while not (text := input("> ").strip()):
            pass
        return text
    except EOFError:
        print()
        return None
    except UnicodeDecodeError:
        refuse("standard input: is no UTF-8 text")


def talk(arguments, folder, tokenizer, others):
    """Asks for messages and prints answers, each of which goes on from all that was said before."""
    messages = [{"role": "system", "content": arguments.system}] if arguments.system else []
    answers = None
    while text := ask():
        messages.append({"role": "user", "content": text})
        ids, ends = chat_prompt(folder, messages)
        if answers is None:
            answers = Answers(tokenizer, begin(arguments, folder, ids, [*others, "--follow"], ends, subprocess.PIPE))
        else:
            answers.aside.release()
            try:
                answers.process.stdin.write(" ".join(map(str, ids)).encode() + b"\n")
            except BrokenPipeError:
                break
        said = answers.answer(ids)
        if answers.over:
            break
        messages.append({"role": "assistant", "content": said})
    return answers.end() if answers else 0


def begin(arguments, folder, ids, others, ends=(), stdin=None):
    """Starts ztrain with a prompt."""
    if arguments.chat and not any(word == "--eos" or word.startswith("--eos=") for word in others):
        if ends := sorted(set(ends) | set(own_ends(folder))):
            others = [*others, "--eos", ",".join(map(str, ends))]
    # Not a word of the command line: that may have 128 KiB, about 20,000 ids.
    arguments.file = tempfile.NamedTemporaryFile("w", prefix="ztrain-prompt-", suffix=".txt")
    print(*ids, file=arguments.file, flush=True)
    arguments.process = launch(arguments, arguments.file.name, others, stdin)
    return arguments.process


def main():
    arguments, others = parse_arguments()
    check_model(pathlib.Path(arguments.model))
    check_programs(arguments)
    if arguments.prompt is not None:
        arguments.prompt = read_prompt(arguments.prompt)
    folder = tokenizer_folder(arguments)
    tokenizer = open_tokenizer(folder)
    arguments.process = None
    try:
        if arguments.prompt is None:
            return talk(arguments, folder, tokenizer, others)
        system = [{"role": "system", "content": arguments.system}] if arguments.system else []
        message = {"role": "user", "content": arguments.prompt}
        ids, ends = chat_prompt(folder, [*system, message]) if arguments.chat else (tokenizer.encode(arguments.prompt), ())
        answers = Answers(tokenizer, begin(arguments, folder, ids, others, ends))
        answers.answer(ids, "" if arguments.chat else arguments.prompt)
        return answers.end()
    except KeyboardInterrupt:
        if arguments.process:
            arguments.process.terminate()
        raise
    finally:
        if arguments.process:
            arguments.file.close()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # which removes the prompt's file, too
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
