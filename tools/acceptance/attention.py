#!/usr/bin/env python3
"""Attention in 16 bits at shapes that training has, by cuDNN:

    tools/acceptance/attention.py --build build/cuda --out FOLDER --gpus N

Three steps each, over packed documents and over sequences of 1,000 tokens (which no tile divides) and 2,048: losses and
gradient norms as CPU ranks recorded them (parity.py --record), and on a GPU the way, as the start of the run tells it:
cuDNN's in both directions, and no warning.
"""
import re

import parity
import runs

LIBRARY = re.compile(r"(backward: )?cuDNN, (sequences|documents|masked):")


def ways(text):
    """What the start of a run says of attention."""
    return re.findall(r"^ *attention +(\S.*)$", text, re.MULTILINE)


def judge_way(checks, name, text):
    told = ways(text)
    found = {bool(match.group(1)) for match in map(LIBRARY.match, told) if match}
    slow = [way for way in told if not LIBRARY.match(way)]
    checks.judge(found == {False, True} and not slow, f"{name}, the way",
                 "; ".join(slow or told) or "the run says nothing of attention")


def main():
    arguments = runs.arguments_of(__doc__)
    checks = runs.Checks()
    comparison = parity.Parity(arguments, runs.Runner(arguments), checks)
    for kind in parity.ATTENTION:
        run = comparison.check("zero0", 1, kind, name=kind)
        if run.code != 0:
            continue
        if arguments.gpus == 0:
            checks.lack(f"{kind}, the way", "CPUs have one")
        else:
            judge_way(checks, kind, run.text)
    checks.exit()


if __name__ == "__main__":
    main()
