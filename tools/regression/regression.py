#!/usr/bin/env python3
"""What slurm/regression.sh does once it knows how ranks are started: trains a small deck on every mesh, runs the tests of
tests/mpi and those of tests/regress, prints a table, writes table.txt and junit.xml, and ends with 0 where all passed."""
import argparse
import json
import pathlib
import shlex
import signal
import sys

import meshes
import ranks as starting
import report as telling
import suites

SUITES = ("meshes", "mpi", "regress")
DEFAULT_TIMEOUT = 120  # seconds


def names(legal):
    """A type of argparse: words separated by commas."""
    def parse(text):
        found = text.split(",")
        unknown = [word for word in found if word not in legal]
        if unknown:
            raise argparse.ArgumentTypeError(f"'{unknown[0]}' is none of {', '.join(legal)}")
        return found
    return parse


def counted(number, word):
    return f"{number} {word}{'' if number == 1 else 's'}"


def arguments():
    parser = argparse.ArgumentParser(prog="regression.sh", description=__doc__)
    parser.add_argument("--ranks", type=int, required=True, help="of the allocation")
    parser.add_argument("--nodes", type=int, default=1, help="of the allocation")
    parser.add_argument("--launcher", type=shlex.split, required=True, help="what starts ranks, without their number")
    parser.add_argument("--ztrain", type=pathlib.Path, required=True, help="the executable")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder that all nodes share, for logs and results")
    parser.add_argument("--only", type=names(SUITES), default=SUITES, help="some of meshes,mpi,regress")
    parser.add_argument("--axes", type=names(meshes.AXES), default=meshes.AXES, help="of the meshes")
    parser.add_argument("--strategies", type=names(meshes.STRATEGIES), default=meshes.STRATEGIES, help="of the meshes")
    parser.add_argument("--precisions", type=names(meshes.PRECISIONS), default=list(meshes.PRECISIONS), help="of the meshes")
    parser.add_argument("--timeout", type=float, default=DEFAULT_TIMEOUT, help="seconds that a run on a mesh may take")
    parser.add_argument("--golden", type=pathlib.Path, default=meshes.GOLDEN, help="file of the losses and norms of one rank")
    parser.add_argument("--record", action="store_true", help="write that file, from runs of one rank")
    options = parser.parse_args()
    options.ztrain, options.out = options.ztrain.resolve(), options.out.resolve()
    if options.ranks < 1:
        parser.error(f"--ranks {options.ranks}: at least one is needed")
    if not options.record:
        try:
            options.golden = json.loads(options.golden.read_text())
        except (OSError, ValueError) as error:
            parser.error(f"--golden {options.golden} cannot be read: {error}")
    return options


def run(options, report):
    launcher = starting.Launcher(options.launcher, options.nodes)
    where = f"{counted(options.ranks, 'rank')} on {counted(options.nodes, 'node')}"
    report.heading(f"ztrain's regression tests: {where}, started by {' '.join(launcher.command(options.ranks))}; logs in {options.out}")
    if options.ranks == 1:
        report.heading("this allocation has 1 rank, so nothing that ranks exchange is tested: ask for more (sbatch --ntasks=4)")
    for suite in options.only:
        if suite == "meshes":
            meshes.Meshes(options, launcher, report).run()
        else:
            suites.Suites(options, launcher, report).run(suite)


def main():
    options = arguments()
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        sys.exit(f"regression.sh: --out {options.out} cannot be made: {error.strerror}")
    if options.record:
        return meshes.record(options)
    report = telling.Report(options.out)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that what runs is ended, and the table is printed
    ended_by = "the job was ended before the tests were"
    try:
        run(options, report)
        ended_by = ""
    finally:
        if ended_by:
            report.add(telling.Result("all", "the rest", options.ranks, "", telling.FAIL, 0, ended_by))
        print(f"\n{report.table()}\n{options.out}/table.txt, {options.out}/junit.xml", flush=True)
    sys.exit(0 if report.succeeded() else 1)


if __name__ == "__main__":
    main()
