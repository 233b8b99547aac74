"""Messages of chats, as files have them and as templates want them."""

import difflib
import json

from .streams import InputError

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
NAMES = ("role", "from", "content", "value")  # keys of a message that say who, and what


def known_roles(more=()):
    """ROLES and further ones, which are called the same in templates."""
    return {**ROLES, **{name: name for name in more}}


def kind_of(value):
    """Returns the name that JSON has for a value's type."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    kinds = {str: "a string", list: "a list", dict: "an object", int: "a number", float: "a number"}
    return kinds.get(type(value), f"of the type {type(value).__name__}")


def messages_of(value, where, key, reading):
    if not isinstance(value, list) or not value:
        kind = "empty" if value == [] else kind_of(value)
        raise InputError(where, f'"{key}" is {kind}, and must be {MESSAGES}')
    return [message_of(message, f'"{key}"[{i}]', where, reading) for i, message in enumerate(value)]


def message_of(message, name, where, reading):
    if not isinstance(message, dict):
        raise InputError(where, f"{name} is {kind_of(message)}, and must be an object with role and content")
    message = {reading.of_messages.get(key, key): value for key, value in message.items()}
    role = role_of(message, name, where, reading.roles)
    content = message.get("content", message.get("value"))
    if isinstance(content, list):
        content = "".join(part_text(part, name, where) for part in content)
    if content is None and not message.get("tool_calls"):
        null = any(key in message for key in ("content", "value"))
        raise InputError(where, f'the "content" of {name} is null' if null else f'{name} has no "content"')
    if content is not None and not isinstance(content, str):
        raise InputError(where, f"the content of {name} is {kind_of(content)}, and must be a string")
    return {"role": role, "content": content, **{k: v for k, v in message.items() if k not in NAMES}}


def role_of(message, name, where, roles):
    """Returns the role as templates call it. An unknown one is most often misspelt, and its turns would not be trained on."""
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


def check_surrogates(record, where):
    """JSON can spell halves of characters alone, which no UTF-8 holds."""
    try:
        json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = ascii(error.object[error.start])[1:-1]
        raise InputError(where, f"holds {half} without its other half, which is no character") from None
