#!/usr/bin/env python3
"""The tests of the build, on its device:

    tools/acceptance/tests.py WHAT --build build/cuda --out FOLDER --gpus N

    unit    the unit tests, kernels first: the others only show that the host's side was built right. CPU builds run a few
    late    the kernel tests once more, with launches that return before their kernels have run: in the unit tests each
            launch waits (CUDA_LAUNCH_BLOCKING=1), which hides kernels that are not ordered, and operands that go too soon
    steps   tests that train, on one rank
"""
import re

import runs

ONE_TEST = 150  # seconds, of which some 20 may go by loading all kernels on every rank
# Loading all kernels ahead takes seconds in each process. What orders kernels, or captures them, is tested with that.
LAZY = {"CUDA_MODULE_LOADING": "LAZY"}
LATE = {"ZTRAIN_TEST_LATE_LAUNCHES": "1"}
LATE_FIRST = ("unit_kernels_heavy", "unit_kernels_attention_plain", "unit_kernels_head_loss", "unit_kernels_optimizer")
STEPS = ("mpi_gradients", "mpi_asynchronous", "mpi_strategies", "mpi_optimizer_op", "mpi_executor", "mpi_fusion",
         "mpi_repeat", "mpi_own_passes", "mpi_held_memory", "mpi_fp8", "mpi_matrix")


def run_test(runner, checks, path, ranks=1, name=None, env=None, more=()):
    """A test that ran nothing but what it skips is skipped, for its own reason."""
    name = name or path.name
    file = re.sub(r"[ ,]+", "_", name)
    run = runner.start(file, runner.command(ranks, executable=path), ["--gtest_brief=1", *more], ONE_TEST,
                       env)
    if run.code not in (0, 124):
        print("\n".join(run.text.splitlines()[-40:]), flush=True)
        said = re.search(r".*(?:FAILED  \]|Failure|what\(\)|rror).*", run.text)
        return checks.judge(False, name, f"exit status {run.code}: {said.group(0).strip()[:200] if said else run.why()}")
    if not checks.ended(name, run):
        return
    passed, skipped = (re.search(rf"\[  {word} +\] (\d+) test", run.text) for word in ("PASSED", "SKIPPED"))
    text = f"{passed.group(1) if passed else 0} passed" + (f", {skipped.group(1)} skipped" if skipped else "")
    checks.say("PASS" if passed and int(passed.group(1)) > 0 else "SKIP", name, text)


def executables(folder, pattern):
    return sorted(p for p in folder.glob(pattern) if p.is_file() and p.stat().st_mode & 0o111)


def unit(arguments, runner, checks):
    folder = arguments.build / "tests" / "unit"
    found = executables(folder, "unit_*")
    kernels = [p for p in found if p.name.startswith("unit_kernels_")]
    if not found:
        return checks.skip("unit tests", f"{folder} has none")
    if arguments.gpus == 0:
        checks.lack("other unit tests", "a build for CPUs runs them with ctest")
        found = [p for p in kernels if p.name.startswith("unit_kernels_light")]
    for path in sorted(found, key=lambda p: p not in kernels):
        run_test(runner, checks, path, env=LAZY)


def late(arguments, runner, checks):
    if arguments.gpus == 0:
        return checks.lack("late launches", "on CPUs a launch is the kernel")
    found = executables(arguments.build / "tests" / "unit", "unit_kernels_*")
    for path in sorted(found, key=lambda p: p.name not in LATE_FIRST):
        run_test(runner, checks, path, name=f"{path.name}, late", env=LATE)


def steps(arguments, runner, checks):
    folder = arguments.build / "tests" / "mpi"
    if arguments.gpus == 0:
        return checks.lack("tests that train", "a build for CPUs runs them with ctest")
    for name in STEPS:
        if (folder / name).is_file():
            run_test(runner, checks, folder / name)
        else:
            checks.skip(name, f"{folder} has none")


if __name__ == "__main__":
    runs.main_of(__doc__, {"unit": unit, "late": late, "steps": steps})
