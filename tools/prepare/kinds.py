"""The kinds of records: how each is recognised by its fields, and what is made of it.

A further kind is a function and a row of KINDS, above those whose fields it has too.
"""

from .messages import MESSAGES, kind_of, messages_of
from .streams import InputError


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


class Tokens:
    """Tokens that were made elsewhere: ids, and a mask that is 1 where an id is to be predicted."""

    def __init__(self, ids, mask):
        self.ids, self.mask = ids, mask


class Preference:
    """Two answers to a prompt, each a Chat or a Pair with the prompt."""

    def __init__(self, chosen, rejected):
        self.chosen, self.rejected = chosen, rejected


class Labelled:
    """An answer to a prompt, a Chat or a Pair, that is desirable or not."""

    def __init__(self, answer, desirable):
        self.answer, self.desirable = answer, desirable

    def with_answer_of(self, other):
        """This prompt with the other's answer."""
        mine, theirs = self.answer, other.answer
        if isinstance(mine, Pair) and isinstance(theirs, Pair):
            return Pair(mine.prompt, theirs.completion)
        if isinstance(mine, Chat) and isinstance(theirs, Chat):
            return Chat(mine.messages[: mine.given] + theirs.messages[theirs.given :], mine.given, mine.tools, mine.extra)
        return mine


class Kind:
    """needs: fields by which it is recognised, with what each must be; more: fields that are used if they are there;
    read: (record, where, reading) -> Chat, Pair, Preference, Labelled, Text or
    Tokens."""

    def __init__(self, name, needs, more, read):
        self.name, self.needs, self.more, self.read = name, needs, more, read

    def __str__(self):
        return f"{self.name} ({', '.join(self.needs)})"


def string(record, key, where):
    """A field as text; "" if it is not there."""
    value = record.get(key)
    if value is not None and not isinstance(value, str):
        raise InputError(where, f'"{key}" is {kind_of(value)}, and must be a string')
    return value or ""


def chat_of(messages, record, given=0):
    return Chat(messages, given, record.get("tools"), record.get("chat_template_kwargs"))


def turn(user, assistant):
    return [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]


def system_of(record, where):
    system = string(record, "system", where)
    return [{"role": "system", "content": system}] if system.strip() else []


def read_messages(record, where, reading):
    return chat_of(messages_of(record["messages"], where, "messages", reading), record)


def read_sharegpt(record, where, reading):
    messages = messages_of(record["conversations"], where, "conversations", reading)
    system = [] if messages[0]["role"] == "system" else system_of(record, where)
    return chat_of(system + messages, record)


def read_pair(record, where, reading):
    prompt, completion = record["prompt"], record["completion"]
    if isinstance(prompt, list) and isinstance(completion, list):
        given = messages_of(prompt, where, "prompt", reading)
        return chat_of(given + messages_of(completion, where, "completion", reading), record, len(given))
    if not isinstance(prompt, str) or not isinstance(completion, str):
        kinds = f"{kind_of(prompt)} and {kind_of(completion)}"
        raise InputError(where, f"prompt and completion must both be strings, or both lists of messages, and are {kinds}")
    return chat_of(turn(prompt, completion), record) if reading.pairs_as_chat else Pair(prompt, completion)


def shared(chosen, rejected):
    """How many characters, or messages, both begin with. A text's last space before they part is of the answers."""
    count = next((i for i, (a, b) in enumerate(zip(chosen, rejected)) if a != b), min(len(chosen), len(rejected)))
    return count - 1 if count and isinstance(chosen, str) and chosen[count - 1] == " " else count


def read_preference(record, where, reading):
    """A prompt that is not there is what both answers begin with, as TRL has it; so is a text beside lists of messages
    that hold it."""
    prompt, answers = record.get("prompt"), {key: record[key] for key in ("chosen", "rejected")}
    if all(isinstance(answer, str) for answer in answers.values()) and isinstance(prompt, (str, type(None))):
        chosen, rejected = answers.values()
        if prompt is None:
            count = shared(chosen, rejected)
            prompt, chosen, rejected = chosen[:count], chosen[count:], rejected[count:]
        pairs = [read_pair({**record, "prompt": prompt, "completion": answer}, where, reading) for answer in (chosen, rejected)]
        return Preference(*pairs)
    if not all(isinstance(answer, list) for answer in answers.values()):
        kinds = " and ".join(kind_of(answer) for answer in answers.values())
        raise InputError(where, f"chosen and rejected must both be strings, or both lists of messages, and are {kinds}")
    chosen, rejected = (messages_of(answer, where, key, reading) for key, answer in answers.items())
    count = shared(chosen, rejected)
    if count == len(chosen) or count == len(rejected):
        raise InputError(where, "chosen and rejected differ in nothing behind their common messages")
    given = chosen[:count]
    if isinstance(prompt, list):
        before = messages_of(prompt, where, "prompt", reading)
        chosen, rejected, given = before + chosen, before + rejected, before
    elif not given and isinstance(prompt, str):
        given = [{"role": "user", "content": prompt}]
        chosen, rejected = given + chosen, given + rejected
    return Preference(chat_of(chosen, record, len(given)), chat_of(rejected, record, len(given)))


def read_labelled(record, where, reading):
    if not isinstance(record["label"], bool):
        raise InputError(where, f'"label" is {kind_of(record["label"])}, and must be true (desirable) or false')
    answer = read_pair(record, where, reading)
    if isinstance(answer, Chat) and answer.given == 0:  # of --pairs chat: the answer is the last turn
        answer.given = len(answer.messages) - 1
    return Labelled(answer, record["label"])


def alpaca_prompt(instruction, given):
    """The text before an answer, as Stanford's Alpaca was trained on it."""
    also = ", paired with an input that provides further context" if given else ""
    task = f"Below is an instruction that describes a task{also}. Write a response that appropriately completes the request."
    parts = [task, f"### Instruction:\n{instruction}", *([f"### Input:\n{given}"] if given else []), "### Response:\n"]
    return "\n\n".join(parts)


def read_alpaca(record, where, reading):
    instruction, given, output = (string(record, key, where) for key in ("instruction", "input", "output"))
    history, system = record.get("history") or [], system_of(record, where)
    if not reading.pairs_as_chat:
        if history or system:
            raise InputError(where, f'has "{"history" if history else "system"}", which Alpaca\'s text has no place for: give --pairs chat')
        return Pair(alpaca_prompt(instruction, given), output)
    for pair in history:
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
            raise InputError(where, '"history" must be a list of pairs of strings')
    turns = [message for pair in history for message in turn(*pair)]
    return chat_of([*system, *turns, *turn("\n".join(filter(None, (instruction, given))), output)], record)


UNTRAINED = -100  # label of a token that is not to be predicted


def integers(record, key, where, count=None):
    value = record[key]
    if not isinstance(value, list) or any(type(item) is not int for item in value):
        raise InputError(where, f'"{key}" is {kind_of(value)}, and must be a list of integers')
    if count is not None and len(value) != count:
        raise InputError(where, f'"{key}" has {len(value)} items, and "input_ids" has {count}')
    return value


def read_tokens(record, where, reading):
    """Reads labels that stand beside their own tokens, as transformers has them."""
    ids = integers(record, "input_ids", where)
    mask, kept = [1] * len(ids), [1] * len(ids)
    if record.get("labels") is not None:
        labels = integers(record, "labels", where, len(ids))
        for at, (label, token) in enumerate(zip(labels, ids)):
            if label not in (UNTRAINED, token):
                raise InputError(where, f"labels[{at}] is {label}, and must be {UNTRAINED} (not trained) or input_ids[{at}], {token}")
        mask = [int(label != UNTRAINED) for label in labels]
    if record.get("attention_mask") is not None:
        kept = integers(record, "attention_mask", where, len(ids))
    begin, end = (kept.index(1), len(kept) - kept[::-1].index(1)) if 1 in kept else (0, 0)
    if set(kept[begin:end]) - {1}:
        raise InputError(where, '"attention_mask" has zeros within the text, where no padding can be')
    return Tokens(ids[begin:end], mask[begin:end])


def read_text(record, where, reading):
    return Text(string(record, "text", where))


A_STRING, A_LIST, ANSWER = "a string", "a list of integers", f"a string or {MESSAGES}"
PREFERENCES, LABELLED = "preferences", "labels"
WITH_TEMPLATE = ("tools", "chat_template_kwargs")

# From the first to the last: the first whose fields a record has.
KINDS = (
    Kind("tokens", {"input_ids": A_LIST}, ("labels", "attention_mask"), read_tokens),
    Kind(PREFERENCES, {"chosen": ANSWER, "rejected": ANSWER}, ("prompt", *WITH_TEMPLATE), read_preference),
    Kind("messages", {"messages": MESSAGES}, WITH_TEMPLATE, read_messages),
    Kind("sharegpt", {"conversations": MESSAGES}, ("system", *WITH_TEMPLATE), read_sharegpt),
    Kind(LABELLED, {"prompt": ANSWER, "completion": ANSWER, "label": "true or false"}, WITH_TEMPLATE, read_labelled),
    Kind("pairs", {"prompt": ANSWER, "completion": ANSWER}, WITH_TEMPLATE, read_pair),
    Kind("alpaca", {"instruction": A_STRING, "output": A_STRING}, ("input", "system", "history", *WITH_TEMPLATE), read_alpaca),
    Kind("text", {"text": A_STRING}, (), read_text),
)
# Fields by which --column may call a column, beside those of messages.
FIELDS = sorted({field for kind in KINDS for field in (*kind.needs, *kind.more)})
# Names that others give these fields, for a proposal.
OTHER_NAMES = {
    "prompt": ("question", "query", "inputs", "input"),
    "completion": ("answer", "response", "output", "targets", "target"),
    "instruction": ("question", "query"),
    "output": ("response", "answer"),
    "input": ("context",),
    "messages": ("conversation", "dialog", "dialogue", "turns", "chat"),
    "text": ("content", "body", "document", "raw_content"),
    "input_ids": ("tokens", "token_ids"),
}


def proposal(fields):
    """The fewest --column words with which fields would be of a kind, and "" if there are none."""
    found = []
    for kind in KINDS:
        words = []
        for field in (*kind.needs, *kind.more):
            name = next((name for name in OTHER_NAMES.get(field, ()) if name in fields), None)
            if field in fields or (name is None and field in kind.more):
                continue
            words.append(name and f"--column {field}={name}")
        if words and all(words):
            found.append((len(words), f"; {' '.join(words)} makes it {kind.name}"))
    return min(found, default=(0, ""), key=lambda words: words[0])[1]


def kind_of_record(record, where, name=None):
    """The Kind of a record, by its name or by the fields that are not null. Throws InputError."""
    there = {key for key, value in record.items() if value is not None}
    among = [kind for kind in KINDS if name in (None, kind.name)]
    found = next((kind for kind in among if there.issuperset(kind.needs)), None)
    if found:
        return found
    for kind in among:
        for key, wanted in kind.needs.items():
            if key in record and record[key] is None:
                raise InputError(where, f'"{key}" is null, and must be {wanted}')
    fields = ", ".join(map(str, record)) or "none"
    if name:
        raise InputError(where, f"is no record of the kind {among[0]}: its fields are {fields}")
    raise InputError(
        where,
        f"is of no kind that is read: its fields are {fields}, and the kinds are {', '.join(map(str, KINDS))}"
        + (proposal(there) or "; --column FIELD=NAME says what a field is called here"),
    )
