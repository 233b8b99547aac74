"""Tokenizers behind one face: Hugging Face's, through transformers or tokenizers, and plain bytes.

Each has: name; folder, which holds its tokenizer.json, or None; file_bytes, what its hash is of; vocab_size; eos_id,
bos_id (None for none); special, the texts of its special tokens; special_ids, the set of their ids;
tokens, {"bos_token": text, ...}; template, the text of its chat template or None; encode(text) without
tokens of its own at the ends; decode(ids).
"""

import json
import pathlib

from packages import lacks

from .hub import NotFound, transformers_tokenizer
from .template import BYTES_TEMPLATE

NAMED = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


class TokenizerError(Exception):
    pass


class Bytes:
    """UTF-8 bytes as ids 0 to 255; 256 ends documents, and turns of the built-in chat template."""

    END = "<|end|>"

    def __init__(self):
        self.name, self.file_bytes, self.vocab_size = "bytes", b"bytes", 257
        self.eos_id, self.bos_id, self.folder = 256, None, None
        self.special, self.special_ids, self.tokens, self.template = [self.END], {256}, {"eos_token": self.END}, BYTES_TEMPLATE

    def encode(self, text):
        ids = []
        for i, part in enumerate(text.split(self.END)):
            ids += [256] * (i > 0) + list(part.encode())
        return ids

    def decode(self, ids):
        parts, run = [], bytearray()
        for token in ids:
            if token < 256:
                run.append(token)
            else:
                parts += [run.decode(errors="replace"), self.END]
                run = bytearray()
        return "".join(parts) + run.decode(errors="replace")


class HuggingFace:
    """backend: a tokenizers.Tokenizer; folder: of its tokenizer.json, or None."""

    def __init__(self, name, folder, backend, file_bytes, tokens, template):
        self.name, self.backend, self.file_bytes = name, backend, file_bytes
        self.folder = folder and pathlib.Path(folder).resolve()
        backend.no_truncation()
        backend.no_padding()
        self.vocab_size = max(backend.get_vocab(with_added_tokens=True).values()) + 1
        self.tokens = {k: v for k, v in tokens.items() if v}
        added = {id: token.content for id, token in backend.get_added_tokens_decoder().items() if token.special}
        self.special, self.special_ids = list(added.values()), set(added)
        self.eos_id = self.id_of("eos_token")
        self.bos_id = self.id_of("bos_token")
        # Does the tokenizer itself put the token of the beginning before a text?
        if self.bos_id is not None and backend.encode("a").ids[:1] != [self.bos_id]:
            self.bos_id = None
        self.template = template

    def id_of(self, name):
        return self.backend.token_to_id(self.tokens[name]) if name in self.tokens else None

    def encode(self, text):
        return self.backend.encode(text, add_special_tokens=False).ids

    def decode(self, ids):
        return self.backend.decode(list(ids), skip_special_tokens=False)


def load_tokenizer(name, template_file=None):
    """"bytes", a folder that holds tokenizer.json, or what transformers finds under that name.

    template_file: a chat template to use instead of the tokenizer's. Throws TokenizerError.
    """
    if name == "bytes":
        tokenizer = Bytes()
    elif (pathlib.Path(name) / "tokenizer.json").is_file():
        tokenizer = from_folder(name)
    else:
        tokenizer = from_transformers(name)
    if template_file is not None:
        try:
            tokenizer.template = pathlib.Path(template_file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise TokenizerError(f"--chat-template {template_file}: {error}") from None
    return tokenizer


def from_folder(name):
    try:
        import tokenizers
    except ImportError:
        raise TokenizerError(f"--tokenizer {name}: {lacks('tokenizers')}; transformers does as well") from None
    folder = pathlib.Path(name)
    file_bytes = (folder / "tokenizer.json").read_bytes()
    try:
        backend = tokenizers.Tokenizer.from_buffer(file_bytes)
    except Exception as error:  # of no common class
        raise TokenizerError(f"{folder / 'tokenizer.json'}: {error}") from None
    config = read_json(folder / "tokenizer_config.json")
    named = {**read_json(folder / "special_tokens_map.json"), **config}
    tokens = {key: token_text(named.get(key)) for key in NAMED}
    return HuggingFace(str(name), folder, backend, file_bytes, tokens, template_in(folder, config))


def read_json(path):
    if not path.is_file():
        return {}
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TokenizerError(f"{path}: {error}") from None


def token_text(value):
    return value.get("content") if isinstance(value, dict) else value


def template_in(folder, config):
    """chat_template.jinja, or chat_template of tokenizer_config.json: a text, or named texts."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    return default_of(config.get("chat_template"))


def default_of(template):
    if isinstance(template, list):
        template = {t["name"]: t["template"] for t in template}
    return template.get("default") if isinstance(template, dict) else template


def from_transformers(name):
    try:
        tokenizer, path = transformers_tokenizer(name)
    except NotFound as error:
        raise TokenizerError(f"--tokenizer {name}: {error}") from None
    except ImportError:
        raise TokenizerError(
            f"--tokenizer {name}: there is no {pathlib.Path(name) / 'tokenizer.json'}, and names of the Hugging Face "
            f"hub need transformers: {lacks('transformers')}"
        ) from None
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise TokenizerError(f"--tokenizer {name} has no fast tokenizer; save one as tokenizer.json")
    file_bytes = pathlib.Path(path).read_bytes() if path else backend.to_str().encode()
    tokens = {key: getattr(tokenizer, key, None) for key in NAMED}
    return HuggingFace(name, path and pathlib.Path(path).parent, backend, file_bytes, tokens, default_of(tokenizer.chat_template))
