#!/usr/bin/env python3
"""Fits a run to its machine: measures a few steps in fp32 and in bf16 with `ztrain bench`, and prints overrides for the
precision that is faster here and for as many steps as fill a time. What was measured and chosen goes to stderr.

    tools/fit_run.py DECK --launch "mpirun -np 2 build/cpu/ztrain" [--seconds 100] [--patience 30] [-- OVERRIDE ...]

OVERRIDE: what the run is started with besides; keys given there are left alone.
"""
import argparse
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
import time

PRECISIONS = ["fp32", "bf16"]
LEAST_STEPS, MOST_STEPS = 100, 1000
LEAST_MINUTES = 2.5  # of wall-clock time that a run is given even where it was to fill less
QUIET_SECONDS = 10
LENGTHS = {"run.steps", "run.tokens", "run.epochs"}


def end(process):
    """Ends the launcher, which ends its ranks; by force, with all of its group, where it does not."""
    for how, patience in ((signal.SIGTERM, 5), (signal.SIGKILL, None)):
        try:
            os.killpg(process.pid, how)
            process.communicate(timeout=patience)
            return
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            return


def run_for(seconds, command, what):
    """Exit status and stderr of the command; None and "" where it took longer and was ended. Where that lasts, it is said."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                               errors="replace", start_new_session=True)
    begin = time.monotonic()
    try:
        while (left := begin + seconds - time.monotonic()) > 0:
            try:
                _, errors = process.communicate(timeout=min(left, QUIET_SECONDS))
                return process.returncode, errors
            except subprocess.TimeoutExpired:
                print(f"measuring {what}, {time.monotonic() - begin:.0f} s of at most {seconds:.0f} s", file=sys.stderr)
    except BaseException:  # Ctrl-C or SIGTERM, of which ranks in a session of their own hear nothing
        end(process)
        raise
    end(process)
    return None, ""


def measure(launch, deck, overrides, seconds, what):
    """Seconds of a step; None where that is not known within `seconds`. Exits where the benchmark fails."""
    with tempfile.TemporaryDirectory(prefix="ztrain-fit-") as folder:
        report = pathlib.Path(folder) / "bench.json"
        command = [*launch, "bench", deck, "--warmup", "1", "--steps", "3", "--json", str(report), *overrides]
        status, errors = run_for(seconds, command, what)
        if status is None:
            return None
        if status != 0:
            sys.exit(f"tools/fit_run.py: {shlex.join(command)} failed:\n{errors}")
        return json.loads(report.read_text())["step_seconds"]["median"]


def measure_all(launch, deck, overrides, precisions, patience):
    """{precision: seconds of a step, or None}. What comes second has little more time than the first took: if that is not
    enough, it is the slower one, be it by a thousand times."""
    found, seconds = {}, patience
    for precision in precisions:
        start = time.monotonic()
        words = [f"--precision.preset={precision}"] if precision else []
        found[precision] = measure(launch, deck, [*words, *overrides], seconds, precision or "a step")
        if found[precision] is not None:
            seconds = min(patience, 1.5 * (time.monotonic() - start) + 5)
    return found


def steps_that_fill(seconds, step_seconds):
    """A multiple of 10, so that intervals are whole."""
    wanted = int(seconds / step_seconds) // 10 * 10 if step_seconds else LEAST_STEPS
    return max(LEAST_STEPS, min(MOST_STEPS, wanted))


def length(steps, seconds):
    """Five to seven evaluations, which take as long as a step or two; two checkpoints."""
    return {
        "run.steps": steps,
        "run.max_minutes": max(LEAST_MINUTES, seconds / 60 * 1.5),
        "evaluation.interval": max(20, round(steps / 70) * 10),
        "checkpoint.interval": steps // 2,
    }


def describe(found):
    return ", ".join(f"{seconds:.3g} s in {precision}" if seconds else f"too long in {precision}"
                     for precision, seconds in found.items())


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("tools/fit_run.py: ended by SIGTERM"))
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("deck")
    parser.add_argument("--launch", required=True, help="the command that starts ztrain, with its launcher")
    parser.add_argument("--seconds", type=float, default=100, help="that the steps are to fill")
    parser.add_argument("--patience", type=float, default=30, help="seconds for one measurement, its start included")
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    arguments, overrides = parser.parse_args(words[:split]), words[split + 1:]
    given = {word.lstrip("-").partition("=")[0] for word in overrides}
    own_precision = any(key.startswith("precision.") for key in given)
    own_length = bool(LENGTHS & given)
    if own_precision and own_length:
        return
    precisions = [None] if own_precision else PRECISIONS
    found = measure_all(shlex.split(arguments.launch), arguments.deck, overrides, precisions,
                        arguments.patience)
    known = {precision: seconds for precision, seconds in found.items() if seconds}
    best = min(known, key=known.get) if known else precisions[0]
    chosen = {} if own_precision else {"precision.preset": best}
    if not own_length:
        chosen |= length(steps_that_fill(arguments.seconds, known.get(best)), arguments.seconds)
    chosen = {key: value for key, value in chosen.items() if key not in given}
    print(f"a step takes {describe(found)}".replace(" in None", ""), file=sys.stderr)
    print("chosen: " + ", ".join(f"{key} = {value}" for key, value in chosen.items()), file=sys.stderr)
    for key, value in chosen.items():
        print(f"--{key}={value}")


if __name__ == "__main__":
    main()
