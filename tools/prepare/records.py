"""From input files to records: one line of JSON, or one plain text, with the place it comes from."""

import difflib
import gzip
import json
import pathlib

ONE_A_LINE = "one record a line is read: `jq -c '.[]' LIST.json > LINES.jsonl` makes that of a list"
# As the files name them, and as templates do.
ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "model": "assistant",
    "chatgpt": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
    "developer": "developer",
    "ipython": "ipython",
}


MESSAGES = "a list of messages"
WANTED = {
    "messages": MESSAGES,
    "conversations": MESSAGES,
    "prompt": f"a string or {MESSAGES}",
    "completion": f"a string or {MESSAGES}",
    "text": "a string",
}


class InputError(Exception):
    """What is wrong with the input, and where."""

    def __init__(self, where, what):
        super().__init__(f"{where}: {what}")
        self.what = what


class Raw:
    """A piece of input that a worker turns into a document. kind: json or text."""

    __slots__ = ("kind", "text", "where")

    def __init__(self, kind, text, where):
        self.kind, self.text, self.where = kind, text, where


def is_json(path):
    return any(suffix in (".jsonl", ".json", ".ndjson") for suffix in pathlib.Path(path).suffixes)


def open_text(path):
    try:
        if str(path).endswith(".gz"):
            return gzip.open(path, "rt", encoding="utf-8-sig")
        return open(path, encoding="utf-8-sig")
    except OSError as error:
        raise InputError(path, error.strerror or str(error)) from None


def read_raw(paths, separator=None):
    """Yields every record of the files, in order. Empty lines of JSON files are passed over; a plain text file is
    one document, or, with a separator, one for each part between lines that equal it."""
    for path in paths:
        with open_text(path) as file:
            try:
                yield from json_lines(path, file) if is_json(path) else texts(path, file, separator)
            except UnicodeDecodeError as error:
                raise InputError(path, not_utf8(error)) from None
            except (OSError, EOFError) as error:
                raise InputError(path, f"cannot be read: {error}") from None


def not_utf8(error):
    if error.start == 0 and error.object[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "is text in UTF-16, and must be UTF-8: save it as that, or convert it (iconv -f UTF-16 -t UTF-8)"
    return f"is not UTF-8 ({error.reason} at byte {error.start} of a block)"


def json_lines(path, file):
    for number, line in enumerate(file, 1):
        if line.strip():
            yield Raw("json", line, f"{path}:{number}")


def texts(path, file, separator):
    if separator is None:
        yield Raw("text", file.read(), str(path))
        return
    lines, begin, number = [], 1, 0
    for number, line in enumerate(file, 1):
        if line.rstrip("\r\n") != separator:
            lines.append(line)
            continue
        yield Raw("text", "".join(lines), f"{path}:{begin}")
        lines, begin = [], number + 1
    if lines:
        yield Raw("text", "".join(lines), f"{path}:{begin}")


class Chat:
    """messages: [{"role", "content", ...}]; the first `given` of them are never trained on."""

    def __init__(self, messages, given=0, tools=None, extra=None):
        self.messages, self.given, self.tools, self.extra = messages, given, tools, extra or {}


class Pair:
    def __init__(self, prompt, completion):
        self.prompt, self.completion = prompt, completion


class Text:
    def __init__(self, text):
        self.text = text


def known_roles(more=()):
    """ROLES and further ones, which are called the same in templates."""
    return {**ROLES, **{name: name for name in more}}


def parse(raw, pairs_as_chat=False, roles=ROLES):
    """The Chat, Pair or Text of a Raw. roles: {name in files: name in templates}. Throws InputError naming file and line."""
    if raw.kind == "text":
        return Text(raw.text)
    try:
        record = json.loads(raw.text.rstrip())  # else a text that breaks off is reported behind its newline
    except json.JSONDecodeError as error:
        lists = f"; of a list over several lines {ONE_A_LINE}" if raw.text.lstrip()[:1] == "[" else ""
        raise InputError(raw.where, f"is not JSON: {error.msg} at column {error.pos + 1}{lists}") from None
    except (RecursionError, ValueError) as error:
        raise InputError(raw.where, f"cannot be read as JSON: {error}") from None
    if not isinstance(record, dict):
        lists = f": {ONE_A_LINE}" if isinstance(record, list) else ""
        raise InputError(raw.where, f"is a JSON {type(record).__name__}; every line must be an object {{...}}{lists}")
    if "\\ud" in raw.text.lower():
        check_surrogates(record, raw.where)
    return parse_record(record, raw.where, pairs_as_chat, roles)


def check_surrogates(record, where):
    """JSON can spell halves of characters alone, which no UTF-8 holds."""
    try:
        json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = ascii(error.object[error.start])[1:-1]
        raise InputError(where, f"holds {half} without its other half, which is no character") from None


def kind_of(value):
    """What JSON calls a value."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    kinds = {str: "a string", list: "a list", dict: "an object"}
    return kinds.get(type(value), "a number")


def parse_record(record, where, pairs_as_chat, roles):
    """Keys that are null count as absent: tables have a key in every row."""
    more = {"tools": record.get("tools"), "extra": record.get("chat_template_kwargs")}
    for key in ("messages", "conversations"):
        if record.get(key) is not None:
            return Chat(messages_of(record[key], where, key, roles), **more)
    if record.get("prompt") is not None and record.get("completion") is not None:
        prompt, completion = record["prompt"], record["completion"]
        if isinstance(prompt, list) and isinstance(completion, list):
            given = messages_of(prompt, where, "prompt", roles)
            return Chat(given + messages_of(completion, where, "completion", roles), len(given), **more)
        if not isinstance(prompt, str) or not isinstance(completion, str):
            kinds = f"{kind_of(prompt)} and {kind_of(completion)}"
            raise InputError(where, f"prompt and completion must both be strings, or both lists of messages, and are {kinds}")
        if pairs_as_chat:
            turns = [{"role": "user", "content": prompt}, {"role": "assistant", "content": completion}]
            return Chat(turns, **more)
        return Pair(prompt, completion)
    if isinstance(record.get("text"), str):
        return Text(record["text"])
    if (text := record.get("text")) is not None:
        raise InputError(where, f'"text" is {kind_of(text)}, and must be {WANTED["text"]}')
    for key, wanted in WANTED.items():
        if key in record and record[key] is None:
            raise InputError(where, f'"{key}" is null, and must be {wanted}')
    keys = ", ".join(map(str, record)) or "nothing"
    raise InputError(
        where, f'has no "messages", "conversations", "prompt" with "completion", or "text" (it has {keys})'
    )


def messages_of(value, where, key, roles):
    if not isinstance(value, list) or not value:
        kind = "empty" if value == [] else kind_of(value)
        raise InputError(where, f'"{key}" is {kind}, and must be {MESSAGES}')
    return [message_of(message, f'"{key}"[{i}]', where, roles) for i, message in enumerate(value)]


def message_of(message, name, where, roles):
    if not isinstance(message, dict):
        raise InputError(where, f"{name} is {kind_of(message)}, and must be an object with role and content")
    role = role_of(message, name, where, roles)
    content = message.get("content", message.get("value"))
    if isinstance(content, list):
        content = "".join(part_text(part, name, where) for part in content)
    if content is None and not message.get("tool_calls"):
        null = any(key in message for key in ("content", "value"))
        raise InputError(where, f'the "content" of {name} is null' if null else f'{name} has no "content"')
    if content is not None and not isinstance(content, str):
        raise InputError(where, f"the content of {name} is {kind_of(content)}, and must be a string")
    kept = {k: v for k, v in message.items() if k not in ("from", "value", "role", "content")}
    return {"role": role, "content": content, **kept}


def role_of(message, name, where, roles):
    """As templates call it. An unknown one is most often misspelt, and its turns would not be trained on."""
    role = message.get("role", message.get("from"))
    if role is None:
        raise InputError(where, f'{name} has no "role"')
    if isinstance(role, str) and role in roles:
        return roles[role]
    near = difflib.get_close_matches(str(role), roles, n=1)
    meant = f"; is '{near[0]}' meant? Known are" if near else "; known are"
    how = "is from" if "role" not in message else "has the role"
    raise InputError(where, f"{name} {how} '{role}'{meant} {', '.join(roles)}; --roles adds others")


def part_text(part, name, where):
    if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return part["text"]
    raise InputError(where, f"the content of {name} has a part that is no text")
