"""Chat templates as Hugging Face tokenizers hold them: Jinja texts, with {% generation %} blocks or without."""

import datetime
import json

from packages import lacks

from .records import Chat

# They stand for the ends of a generation block until a text is rendered; no text of people holds them.
BEGIN, END = "\U000f7a01", "\U000f7a02"

# What --tokenizer bytes uses; <|end|> is its token 256.
BYTES_TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ '\\n' }}"
    "{% if message.role == 'assistant' %}{% generation %}{{ message.content }}<|end|>{% endgeneration %}"
    "{% else %}{{ message.content }}<|end|>{% endif %}{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{{ '\\n' }}{% endif %}"
)


class TemplateError(Exception):
    """A template that cannot be used, or not for these messages."""


def generation_extension():
    """The tag {% generation %}: its block is rendered between BEGIN and END."""
    import jinja2.ext
    import jinja2.nodes

    class Generation(jinja2.ext.Extension):
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("_mark"), [], [], body).set_lineno(line)

        def _mark(self, caller):
            return BEGIN + caller() + END

    return Generation


def environment():
    """Jinja as transformers sets it up."""
    try:
        import jinja2.sandbox
    except ImportError:
        raise TemplateError(f"of chat templates: {lacks('jinja2')}") from None

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", generation_extension()],
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda layout: datetime.datetime.now().strftime(layout)
    return env


class ChatTemplate:
    """tokens: {"bos_token": "<s>", ...}, which templates refer to."""

    def __init__(self, text, tokens):
        self.text, self.tokens = text, tokens
        jinja = environment()
        import jinja2

        try:
            self.template = jinja.from_string(text)
        except (jinja2.exceptions.TemplateError, TypeError, AttributeError, ValueError, RecursionError) as error:
            raise TemplateError(f"the chat template is not valid: {error}") from None
        self.has_generation = "{% generation" in text or "{%- generation" in text

    def render(self, chat, count=None, prompt=False):
        """The first `count` messages as text, with BEGIN and END around generation blocks."""
        import jinja2

        try:
            return self.template.render(
                messages=chat.messages[:count],
                tools=chat.tools,
                documents=None,
                add_generation_prompt=prompt,
                **{**self.tokens, **chat.extra},
            )
        except (jinja2.exceptions.TemplateError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError) as error:
            raise TemplateError(f"the chat template refuses the messages: {error}") from None
        except (RecursionError, MemoryError) as error:
            raise TemplateError(f"the chat template does not come to an end: {type(error).__name__}") from None

    def without_doubles(self, chat, special):
        """The chat, where a content loses a token at its end that the template puts there too, and at its beginning the
        token of the beginning of a text where the template has put that in front of all."""
        contents = [m["content"] for m in chat.messages if m["content"]]
        if not any(token in content for token in special for content in contents):
            return chat
        text, bos = unmark(self.render(chat))[0], self.tokens.get("bos_token")

        def once(content):
            kept = (content or "").rstrip()
            ends = [token for token in special if kept.endswith(token) and (content + token in text or kept + token in text)]
            if ends:
                content = kept.removesuffix(max(ends, key=len))
            if bos and content and content.startswith(bos) and text.startswith(bos) and not text.startswith(content):
                content = content.removeprefix(bos)
            return content

        messages = [{**m, "content": once(m["content"])} for m in chat.messages]
        return Chat(messages, chat.given, chat.tools, chat.extra)

    def split(self, chat, special, train_on):
        """The text of the whole chat and its trained parts, as (text, [(begin, end)]) in characters."""
        if any(mark in json.dumps(chat.messages, ensure_ascii=False) for mark in (BEGIN, END)):
            raise TemplateError("the messages hold characters that are used for marking (U+F7A01, U+F7A02)")
        marked = self.render(chat)
        text, spans = unmark(marked)
        if train_on == "all":
            return text, [(0, len(text))]
        turns = [i for i, m in enumerate(chat.messages) if m["role"] == "assistant" and i >= chat.given]
        if train_on == "last":
            turns = turns[-1:]
        if not turns:
            return text, []
        if self.has_generation:
            whole = train_on == "assistant" and chat.given == 0
            return text, spans if whole else self.generated(chat, spans, turns)
        found = [self.turn(chat, text, i, special) for i in turns]
        if None in found:
            last = "--train-on last, which this template allows, " if found[-1] else ""
            raise TemplateError(
                f"the chat template does not let message {turns[found.index(None)]} be told apart: what it makes of the "
                "messages before is not how it begins with the message; use a template with {% generation %} blocks "
                f"(--chat-template), {last}or --train-on all"
            )
        return text, found

    def generated(self, chat, spans, turns):
        """The spans of some assistant turns, out of those of all."""
        every = [i for i, m in enumerate(chat.messages) if m["role"] == "assistant"]
        if len(every) != len(spans):
            raise TemplateError(
                f"the chat template renders {len(spans)} generation blocks for {len(every)} assistant turns, so the "
                "turns cannot be told apart"
            )
        return [span for turn, span in zip(every, spans) if turn in turns]

    def turn(self, chat, text, index, special):
        """An assistant turn, found by rendering the messages up to it and including it; None where that is not possible."""
        before = self.render(chat, index, prompt=True)
        through = self.render(chat, index + 1)
        if not through.startswith(before) or not text.startswith(through):
            return None
        return len(before), without_tail(text, len(before), len(through), special)


def without_tail(text, begin, end, special):
    """The end of a turn: behind its last special token, if nothing but space follows that."""
    found = [text.rfind(token, begin, end) + len(token) for token in special if text.rfind(token, begin, end) >= 0]
    last = max(found, default=end)
    return last if not text[last:end].strip() else end


def unmark(marked):
    """The text without marks, and where blocks were: [(begin, end)]."""
    text, spans, begin = "", [], None
    rest = marked
    while True:
        at = min((i for i in (rest.find(BEGIN), rest.find(END)) if i >= 0), default=-1)
        if at < 0:
            return text + rest, spans
        text += rest[:at]
        if rest[at] == BEGIN:
            begin = len(text)
        else:
            spans.append((begin, len(text)))
        rest = rest[at + 1 :]
