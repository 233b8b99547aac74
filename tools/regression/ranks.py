"""Starts programs on ranks of the allocation, each with a limit of its own, and tells what became of them in a sentence."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "acceptance"))
from phases import end  # noqa: E402

# What launchers say of their own, and of it how the first rank ended: the others they end themselves.
NOISE = re.compile(r"^(srun: |slurmstepd|\[warn\]|-{10,}|Primary job |a non-zero exit code|mpirun noticed |\s*$)")
OF_SRUN = re.compile(r"^srun: error: (?P<node>\S+): tasks? (?P<rank>[\d,-]+): (?!Terminated)(?:Exited with exit code (?P<status>\d+)|(?P<crash>.*))",
                     re.MULTILINE)
OF_MPIRUN = re.compile(r"process rank (?P<rank>\d+) with PID \d+ on node (?P<node>\S+) exited on signal \d+ \((?P<crash>.*?)\)")


@dataclass
class Run:
    """code: None where the limit ended it. log: the file that has all of `text`."""
    code: int | None
    text: str
    seconds: float
    limit: float
    log: pathlib.Path

    def why(self, known=""):
        """What went wrong: how it ended, and the line that says most. known: what the caller has found in the text."""
        lines = [line.strip() for line in self.text.splitlines()]
        told = [line for line in lines if line.startswith("ztrain: ")] or [line for line in lines if not NOISE.match(line)][-1:]
        said = known or (told[0] if told else "nothing was printed")
        return f"{self.ending()}: {said[:300]} ({self.log})"

    def ending(self):
        """Under a launcher its own status says little: it is that of a rank which it has ended."""
        if self.code is None:
            return f"did not end within {self.limit:g} s and was ended"
        first = OF_SRUN.search(self.text) or OF_MPIRUN.search(self.text)
        if first:
            how = first.groupdict()
            crash = f"crashed ({how['crash']})" if how["crash"] else f"ended with status {how['status']}"
            return f"rank {how['rank']} on {how['node']} {crash}"
        number = -self.code if self.code < 0 else self.code - 128
        return f"crashed by {signal.Signals(number).name}" if number in set(signal.Signals) else f"ended with status {self.code}"


class Launcher:
    """words: what starts ranks, without their number. nodes: of the allocation; fewer ranks than it has spread over them."""

    def __init__(self, words, nodes):
        self.words, self.nodes, self.under_srun = words, nodes, pathlib.Path(words[0]).name == "srun"

    def command(self, ranks):
        spread = ["--nodes", str(min(ranks, self.nodes))] if self.under_srun else []
        return [*self.words, *spread, "-n", str(ranks)]

    def run(self, ranks, words, log, limit, env=None):
        return run([*self.command(ranks), *words], log, limit, env)


def run(command, log, limit, env=None):
    """Runs it from the root of the checkout; all that it prints goes to the log."""
    begin = time.monotonic()
    with open(log, "w") as file:
        try:
            process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=file,
                                       stderr=subprocess.STDOUT, cwd=ROOT, env={**os.environ, **(env or {})}, start_new_session=True)
        except OSError as error:
            return Run(127, f"{command[0]} cannot be started: {error.strerror}", 0, limit, log)
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
            end(process)
        except BaseException:  # the end of the allocation: what was started is in a session of its own
            end(process)
            raise
    return Run(code, log.read_text(errors="replace"), time.monotonic() - begin, limit, log)
