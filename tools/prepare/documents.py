"""From records to tokens and masks."""

from .records import Chat, InputError, Labelled, Pair, Preference, Reading, Tokens, parse
from .template import ChatTemplate, TemplateError


class Dropped(Exception):
    """A document that is left out, and why."""


class Options:
    """How documents are made; the same in all workers."""

    def __init__(self, train_on="assistant", max_length=0, on_long="warn", **reading):
        """reading: what Reading takes."""
        self.train_on, self.max_length, self.on_long, self.reading = train_on, max_length, on_long, Reading(**reading)


class Document:
    """ids and mask, two lists of one length; too_long: it is or was longer than --max-length; turn_ends: the special
    tokens at which its trained turns end, or None if no chat template made it; kind: the name of its record's; beside: of a
    chosen answer the Document of the rejected one, of an answer with a label one with another's answer, else None; labelled:
    the record of an answer with a label, or None."""

    def __init__(self, ids, mask, kind, too_long=False, turn_ends=None):
        self.ids, self.mask, self.kind, self.too_long, self.turn_ends = ids, mask, kind, too_long, turn_ends
        self.beside = self.labelled = None


class Maker:
    def __init__(self, tokenizer, options):
        self.tokenizer, self.options = tokenizer, options
        self.template = None

    def make(self, raw):
        """The document of a Raw. Throws Dropped, and InputError naming file and line."""
        kind, record = parse(raw, self.options.reading)
        if isinstance(record, Preference):
            chosen = self.document(kind, record.chosen, raw.where)
            chosen.beside = self.document(kind, record.rejected, raw.where)
            return chosen
        if isinstance(record, Labelled):
            answer = self.document(kind, record.answer, raw.where)
            answer.labelled = record
            return answer
        return self.document(kind, record, raw.where)

    def document(self, kind, record, where):
        if isinstance(record, Chat):
            ids, mask = self.chat(record, where)
        elif isinstance(record, Pair):
            ids, mask = self.pair(record)
        elif isinstance(record, Tokens):
            ids, mask = self.tokens(record, where)
        else:
            ids = self.plain(record.text)
            mask = [1] * len(ids)
        return self.fitted(ids, mask, kind, isinstance(record, Chat))

    def fitted(self, ids, mask, kind, chat):
        if not ids:
            raise Dropped("empty")
        most = self.options.max_length
        too_long = bool(most) and len(ids) > most
        if too_long and self.options.on_long == "drop":
            raise Dropped("longer than --max-length")
        if too_long and self.options.on_long == "truncate":
            ids, mask = ids[:most], mask[:most]
        if not any(mask[1:]):  # the first token is no target
            raise Dropped("no token to predict")
        return Document(ids, mask, kind, too_long, self.turn_ends(ids, mask) if chat else None)

    def turn_ends(self, ids, mask):
        """The special tokens that end runs of trained tokens, where only space may follow within the run."""
        found, special = set(), self.tokenizer.special_ids
        for at in range(len(ids)):
            if mask[at] and (at + 1 == len(ids) or not mask[at + 1]):
                end = at
                while end > 0 and mask[end] and ids[end] not in special and not self.tokenizer.decode(ids[end : end + 1]).strip():
                    end -= 1
                found |= {ids[end]} & special if mask[end] else set()
        return found

    def plain(self, text):
        if not text.strip():
            return []
        ids = self.tokenizer.encode(text)
        begin, end = self.missing_ends(ids)
        return begin + ids + end

    def tokens(self, record, where):
        """As they are: nothing is put before or behind them."""
        known = self.tokenizer.vocab_size
        odd = next((at for at, token in enumerate(record.ids) if not 0 <= token < known), None)
        if odd is not None:
            raise InputError(where, f"holds the token {record.ids[odd]}, and the tokenizer has ids from 0 to {known - 1}")
        return record.ids, [1] * len(record.ids) if self.options.train_on == "all" else record.mask

    def pair(self, record):
        completion = record.completion
        if self.tokenizer.bos_id is not None:
            completion = completion.removeprefix(self.tokenizer.tokens["bos_token"])
        if not completion:
            raise Dropped("empty completion")
        text = record.prompt + completion
        try:
            ids, mask = self.masked(text, [(len(record.prompt), len(text))], "completion")
        except TemplateError:  # a token would lie across: apart, as who continues a prompt sees them
            first, second = self.tokenizer.encode(record.prompt), self.tokenizer.encode(completion)
            ids, mask = first + second, [0] * len(first) + [1] * len(second)
        begin, end = self.missing_ends(ids)
        if self.options.train_on == "all":
            mask = [1] * len(ids)
        return begin + ids + end, [0] * len(begin) + mask + [1] * len(end)

    def chat(self, record, where):
        if self.template is None:
            if self.tokenizer.template is None:
                raise InputError(where, "is a chat, and the tokenizer has no chat template: give --chat-template")
            self.template = ChatTemplate(self.tokenizer.template, self.tokenizer.tokens)
        try:
            chat = self.template.without_doubles(record, self.tokenizer.special)
            text, spans = self.template.split(chat, self.tokenizer.special, self.options.train_on)
            if not spans:
                raise Dropped("no assistant turn")
            return self.masked(text, spans, "assistant's turn")
        except TemplateError as error:
            raise InputError(where, str(error)) from None

    def masked(self, text, spans, what):
        """The ids of a text, and 1 for those of its spans: tokens must not lie across the ends of spans."""
        ids = self.tokenizer.encode(text)
        ends = sorted({at for span in spans for at in span} - {0, len(text)})
        places = self.places(text, ids, ends, what)
        mask = [0] * len(ids)
        for begin, end in spans:
            mask[places[begin] : places[end]] = [1] * (places[end] - places[begin])
        return ids, mask

    def places(self, text, ids, ends, what):
        """How many tokens lie before each of some characters."""
        bounds = [0, *ends, len(text)]
        pieces = [self.tokenizer.encode(text[a:b]) for a, b in zip(bounds, bounds[1:])]
        found, count = {0: 0}, 0
        for at, piece in zip(bounds[1:], pieces):
            count += len(piece)
            found[at] = count
        if [token for piece in pieces for token in piece] == ids:
            return found
        # Some tokenizers treat the beginning of a text in a way of its own: then what precedes must be how all begins.
        for at in ends:
            before = self.tokenizer.encode(text[:at])
            if ids[: len(before)] != before:
                raise TemplateError(
                    f"a token lies across the end or beginning of the {what} at "
                    f"{text[max(0, at - 20) : at]!r} | {text[at : at + 20]!r}: the mask would not be exact"
                )
            found[at] = len(before)
        found[len(text)] = len(ids)
        return found

    def missing_ends(self, ids):
        """What goes before and behind the ids: the tokens of the beginning and the end of a text, where the ids lack them."""
        begin, end = self.tokenizer.bos_id, self.tokenizer.eos_id
        before = [] if begin is None or ids[:1] == [begin] else [begin]
        behind = [] if end is None or ids[-1:] == [end] else [end]
        return before, behind
