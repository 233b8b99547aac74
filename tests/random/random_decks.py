#!/usr/bin/env python3
"""Runs many random decks, and shrinks one that fails to the keys that it needs.

    random_decks.py EXECUTABLE --seeds 0:5000       prints each failing deck, and the worst differences
    random_decks.py EXECUTABLE --shrink "17<tab>4<tab>..." a line that a failure printed; prints the smallest deck

EXECUTABLE is random_decks of the build; ZTRAIN_MPIRUN is the launcher with its options.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

TIMEOUT = 900


class Runner:
    def __init__(self, executable, folder):
        self.executable, self.folder = executable, pathlib.Path(folder)
        self.launcher = os.environ.get("ZTRAIN_MPIRUN", "mpirun --oversubscribe").split()

    def run(self, ranks, decks, *options):
        """The output of all tests with so many ranks, and whether they passed."""
        env = os.environ | {"ZTRAIN_RANDOM_DECKS": decks, "ZTRAIN_RANDOM_FOLDER": str(self.folder / "runs")}
        command = [*self.launcher, "-np", str(ranks), self.executable, *options]
        try:
            done = subprocess.run(
                command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=TIMEOUT
            )
            return done.stdout + done.stderr, done.returncode == 0
        except subprocess.TimeoutExpired as late:
            return (late.stdout or b"").decode(errors="replace") + f"\nno end within {TIMEOUT} s\n", False

    def lines(self, lines):
        """{line: why it failed} of samples, and all that was printed."""
        failed, printed = {}, ""
        for ranks in sorted({1} | {ranks_of(line) for line in lines}):
            left = list(lines)
            while left:
                file = self.folder / "decks.txt"
                file.write_text("\n".join(left) + "\n")
                output, passed = self.run(ranks, str(file))
                printed += output
                failed |= {} if passed else failures(output)
                if passed or re.search(r"^.*\[==========\].* ran\.", output, re.M):
                    break
                # It crashed or hung, in the sample that it told of last.
                told = re.findall(r"^\d+: (\d+\t.*)$", output, re.M)
                last = told[-1] if told else left[0]
                failed[last] = output[-2000:]
                left.remove(last)
        return failed, printed


def ranks_of(line):
    return int(line.split("\t", 2)[1])


def failures(output):
    found = {}
    for part in re.split(r"^(?=\S+:\d+: Failure$)", output, flags=re.M)[1:]:
        trace = re.search(r"Google Test trace:\n\S+: (\d+\t.*)$", part, re.M)
        if trace:
            found.setdefault(trace[1], part.split("Google Test trace")[0].strip())
    return found


def draw(runner, first, count):
    only = ["--gtest_filter=*Print", "--gtest_also_run_disabled_tests"]
    output, _ = runner.run(1, f"{first}:{count}", *only)
    lines = re.findall(r"^sample (\d+\t.*)$", output, re.M)
    if len(lines) != count:
        sys.exit(f"{runner.executable} printed {len(lines)} of {count} samples:\n{output}")
    return lines


def worst(printed, table):
    for name, numbers in re.findall(r"^(\S+ ?\S* ?(?:smooth|jumping)): (.*)$", printed, re.M):
        found = table.setdefault(name, {})
        for what, value in re.findall(r"(\w+) ([\d.e+-]+|inf)", numbers):
            found[what] = max(found.get(what, 0.0), float(value))


def count(printed, what):
    return sum(int(n) for n in re.findall(rf"(\d+) {what}\b", printed))


def many(runner, first, total, batch):
    table, failed, trained, resumed, refused = {}, 0, 0, 0, 0
    for begin in range(first, first + total, batch):
        lines = draw(runner, begin, min(batch, first + total - begin))
        found, printed = runner.lines(lines)
        worst(printed, table)
        trained, resumed = trained + count(printed, "trained"), resumed + count(printed, "resumed")
        refused += count(printed, "refused")
        failed += len(found)
        for line, why in found.items():
            print(f"FAILED: {line}\n{why}\n", flush=True)
        told = f"{trained} runs and {resumed} resumes equal or failed, {refused} refused"
        print(f"{begin + len(lines) - first} of {total} decks, {failed} failed ({told})", flush=True)
        for name, numbers in sorted(table.items()):
            print(f"  {name}:", ", ".join(f"{what} {value:.2g}" for what, value in numbers.items()), flush=True)
    return failed


def shrink(runner, line):
    """Leaves out word after word, as long as the sample fails."""
    if not runner.lines([line])[0]:
        sys.exit("this deck does not fail")
    seed, _, *words = line.split("\t")
    needed = ("--batch.global=", "--mesh.shard=", "|")
    changed = True
    while changed:
        changed = False
        for word in words:
            fewer = [w for w in words if w is not word]
            if word.startswith(needed):
                continue
            smaller = "\t".join([seed, str(mesh_ranks(fewer)), *fewer])
            if runner.lines([smaller])[0]:
                words, changed = fewer, True
                print(f"also without {word}", flush=True)
                break
    return "\t".join([seed, str(mesh_ranks(words)), *words])


def mesh_ranks(words):
    ranks = 1
    for word in words:
        if word.startswith("--mesh."):
            ranks *= int(word.split("=")[1])
    return ranks


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("executable")
    parser.add_argument("--seeds", default="0:5000", metavar="FIRST:COUNT")
    parser.add_argument("--batch", type=int, default=60, help="decks in one start of the executable")
    parser.add_argument("--shrink", metavar="LINE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ztrain-random-") as folder:
        runner = Runner(options.executable, folder)
        if options.shrink:
            smallest = shrink(runner, options.shrink)
            print("\nthe smallest deck that fails:\n" + smallest.replace("\t", "\n"))
            return 1
        first, total = map(int, options.seeds.split(":"))
        return 1 if many(runner, first, total, options.batch) else 0


if __name__ == "__main__":
    sys.exit(main())
