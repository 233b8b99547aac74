#!/usr/bin/env python3
"""The tests of the build, on its device:

    tools/acceptance/tests.py WHAT --build build/cuda --out FOLDER --gpus N

    unit    the unit tests, kernels first: the others only show that the host's side was built right. CPU builds run a few
    ranks   tests that train or exchange data: NCCL on 1 rank and on each GPU, asynchronous work, fp8, memory on 1 rank
"""
import re

import runs

ONE_TEST = 60  # seconds
ON_ONE_RANK = ("mpi_held_memory", "mpi_asynchronous", "mpi_fp8")
NCCL = "mpi_comm_nccl"


def run_test(runner, checks, path, ranks=1, name=None):
    name = name or path.name
    run = runner.start(name.replace(" ", "_"), runner.command(ranks, executable=path), ["--gtest_brief=1"], ONE_TEST)
    if run.code not in (0, 124):
        print("\n".join(run.text.splitlines()[-40:]), flush=True)
        said = re.search(r".*(?:FAILED  \]|Failure|what\(\)|rror).*", run.text)
        return checks.judge(False, name, f"exit status {run.code}: {said.group(0).strip()[:200] if said else run.why()}")
    if not checks.ended(name, run):
        return
    passed, skipped = (re.search(rf"\[  {word} +\] (\d+) test", run.text) for word in ("PASSED", "SKIPPED"))
    text = f"{passed.group(1) if passed else 0} passed" + (f", {skipped.group(1)} skipped" if skipped else "")
    checks.say("PASS" if passed and int(passed.group(1)) > 0 else "SKIP", name, text)


def unit(arguments, runner, checks):
    folder = arguments.build / "tests" / "unit"
    found = sorted(p for p in folder.glob("unit_*") if p.is_file() and p.stat().st_mode & 0o111)
    kernels = [p for p in found if p.name.startswith("unit_kernels_")]
    if not found:
        return checks.skip("unit tests", f"{folder} has none")
    if arguments.gpus == 0:
        checks.skip("other unit tests", "a build for CPUs runs them with ctest")
        found = [p for p in kernels if p.name.startswith("unit_kernels_light")]
    for path in sorted(found, key=lambda p: p not in kernels):
        run_test(runner, checks, path)


def ranks(arguments, runner, checks):
    folder = arguments.build / "tests" / "mpi"
    planned = [(NCCL, count) for count in sorted({1, arguments.gpus})] if arguments.gpus > 0 else []
    for name, count in planned + [(name, 1) for name in ON_ONE_RANK]:
        said = f"{name} {count} rank{'s' if count > 1 else ''}"
        if not (folder / name).is_file():
            checks.skip(said, "the build has none")
        elif count > 1 and not runner.mpirun:
            checks.skip(said, "there is no mpirun")
        else:
            run_test(runner, checks, folder / name, count, said)


if __name__ == "__main__":
    runs.main_of(__doc__, {"unit": unit, "ranks": ranks})
