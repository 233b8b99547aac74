"""From a piece of input to a record of a kind."""

import json

from .kinds import FIELDS, KINDS, Chat, Labelled, Pair, Preference, Text, Tokens, kind_of_record
from .messages import NAMES, check_surrogates, known_roles
from .streams import InputError, Raw

__all__ = ["Chat", "InputError", "KINDS", "Labelled", "Pair", "Preference", "Raw", "Reading", "Text", "Tokens", "parse"]


class Reading:
    """How records are read. roles: further ones; kind: the name of all records' kind, or None; columns: {field: its name in
    the input}."""

    def __init__(self, pairs_as_chat=False, roles=(), kind=None, columns=None):
        self.pairs_as_chat, self.roles, self.kind = pairs_as_chat, known_roles(roles), kind
        columns = columns or {}
        self.of_messages = {name: field for field, name in columns.items() if field in NAMES}
        self.columns = {field: name for field, name in columns.items() if field not in NAMES}

    def renamed(self, record, where):
        """The record with its columns called as fields are."""
        for field, name in self.columns.items():
            if name not in record:
                fields = ", ".join(map(str, record)) or "none"
                turned = f"; did you mean --column {name}={field}?" if field in record and name in (*FIELDS, *NAMES) else ""
                raise InputError(where, f'has no column "{name}" (--column {field}={name}): its columns are {fields}{turned}')
        others = {key: value for key, value in record.items() if key not in self.columns.values()}
        return {**others, **{field: record[name] for field, name in self.columns.items()}}


def columns_of(words, known=(*FIELDS, *NAMES)):
    """{field: column} of words such as prompt=question, with fields that are known. Throws InputError."""
    columns = {}
    for word in words:
        field, equals, name = word.partition("=")
        if not equals or field not in known or not name:
            turned = f"; did you mean {name}={field}?" if field and name in known else ""
            raise InputError("--column", f"is '{word}', and must be FIELD=NAME, with a field of {', '.join(known)}{turned}")
        columns[field] = name
    return columns


def parse(raw, reading=None):
    """(name of its kind, Chat, Pair, Preference, Labelled, Text or Tokens) of a Raw. Throws InputError naming file and line."""
    reading = reading or Reading()
    if raw.kind == "broken":
        raise InputError(raw.where, raw.text)
    if raw.kind == "text":
        if reading.kind not in (None, "text"):
            raise InputError(raw.where, f"is plain text, and no record of the kind {reading.kind}")
        return "text", Text(raw.text)
    record = reading.renamed(from_json(raw) if raw.kind == "json" else raw.text, raw.where)
    if raw.kind == "row":
        record = of_table(record, raw.where)
    kind = kind_of_record(record, raw.where, reading.kind)
    return kind.name, kind.read(record, raw.where, reading)


def from_json(raw):
    try:
        record = json.loads(raw.text.rstrip())  # else a text that breaks off is reported behind its newline
    except json.JSONDecodeError as error:
        raise InputError(raw.where, f"is not JSON: {error.msg} at column {error.pos + 1}") from None
    except (RecursionError, ValueError) as error:
        raise InputError(raw.where, f"cannot be read as JSON: {error}") from None
    if not isinstance(record, dict):
        raise InputError(raw.where, f"is a JSON {type(record).__name__}; every record must be an object {{...}}")
    if "\\ud" in raw.text.lower():
        check_surrogates(record, raw.where)
    return record


# Fields that are lists or objects: in a cell of CSV they are JSON, if it begins so.
NESTED = {"messages", "conversations", "input_ids", "labels", "attention_mask", "history", "tools", "chat_template_kwargs"}


def of_table(record, where):
    """The record of a row, as it would be in a JSON file."""
    record = {key: without_nulls(cell) for key, cell in record.items()}
    for key in NESTED & record.keys():
        cell = record[key]
        if isinstance(cell, str) and cell.lstrip()[:1] in ("[", "{"):
            try:
                record[key] = json.loads(cell)
            except (RecursionError, ValueError) as error:
                raise InputError(where, f'the JSON of "{key}" cannot be read: {error}') from None
            check_surrogates(record[key], where)
    return record


def without_nulls(value):
    """Tables give every object of a column the keys of all, most of them null."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value
