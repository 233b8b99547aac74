"""For tools/generate.py: makes text of the ids that a process of ztrain prints, while they arrive."""
import io
import itertools
import os
import sys
import threading

TAIL = 32  # tokens before a new one that its text may depend on
BROKEN = "\ufffd"  # what half a character is decoded to


def refuse(what):
    sys.exit(f"tools/generate.py: {what}")


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

    def release(self):
        with self.lock:
            for line in self.held or ():
                self.write(line)
            self.held = None

    def end(self):
        self.thread.join()
        self.release()


def stream_text(tokenizer, prompt, words):
    """Prints the text as its words come; gives all of it."""
    text, whole = NewText(tokenizer, prompt), ""
    for word in words:
        new = text.add(int(word))
        whole += new
        print(new, end="", flush=True)
    print(flush=True)
    return whole


class Answers:
    """What comes of a process of ztrain, which prints a line of ids for each prompt."""

    def __init__(self, tokenizer, process):
        self.tokenizer, self.process, self.aside = tokenizer, process, Aside(process.stderr)
        self.over = False  # whether the process prints no more

    def words(self):
        """The words of the next line, each as soon as the space behind it has come."""
        word, byte = b"", b""
        while byte != b"\n" and not self.over:
            byte = self.process.stdout.read(1)
            self.over = not byte
            if byte.isspace() or self.over:
                if word:
                    yield word.decode()
                word = b""
            else:
                word += byte

    def answer(self, ids, before=""):
        """Prints `before` and the text that comes of a prompt; gives the text, or None where the process has failed instead."""
        words = self.words()
        first = list(itertools.islice(words, 1))
        if not first and self.over and self.process.wait() != 0:
            return None
        self.aside.hold()
        try:
            print(before, end="", flush=True)
            text = stream_text(self.tokenizer, ids, itertools.chain(first, words))
        except OSError as error:
            self.process.terminate()
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left would fail again at the end
            refuse(f"stdout: {error.strerror}")
        return text

    def end(self):
        """Gives the exit status."""
        if self.process.stdin:
            self.process.stdin.close()
        self.aside.end()
        return self.process.wait()
