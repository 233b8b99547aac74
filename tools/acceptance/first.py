#!/usr/bin/env python3
"""Checks one of everything first, so that these results are known if a later phase hangs.

    tools/acceptance/first.py --build build/cuda --out FOLDER --gpus N

A kernel, a product, and attention forward and backward against float64; three steps of training; the speed of the
smallest deck.
"""
import runs
import speed
import tests

# Name of the check, test executable, filter of its cases.
ONE_OF_EACH = (("a kernel", "unit_kernels_activation", "Activations/*.MatchTheReference"),
               ("a product", "unit_kernels_heavy", "GemmTest.Bf16"),
               ("attention", "unit_kernels_attention", "Attention/*.AgreesWithTheReference"))


def against_float64(arguments, runner, checks):
    for name, program, cases in ONE_OF_EACH:
        path = arguments.build / "tests" / "unit" / program
        if path.is_file():
            tests.run_test(runner, checks, path, name=name, env=tests.LAZY, more=[f"--gtest_filter={cases}"])
        else:
            checks.skip(name, f"there is no {path}")


def three_steps(runner, checks):
    name = "three steps"
    run = runner.train("first", 1, {"run.steps": 3, "schedule.warmup": 1})
    if checks.ended(name, run):
        losses = [loss for _, (loss, _) in sorted(run.steps().items())]
        checks.judge(len(losses) == 3 and losses[2] < losses[0], name,
                     "losses " + ", ".join(f"{loss:.4f}" for loss in losses))


def speed_of_one(arguments, runner, checks):
    name = "bench_0.5b, first"
    if arguments.gpus == 0:
        return checks.lack(name, "a build for CPUs")
    run, report = runner.bench("first_bench_0.5b", speed.INPUTS / "bench_0.5b.toml", ["--steps=2", "--warmup=1"], 60)
    if checks.ended(name, run):
        checks.judge(report["tokens_per_s"] > 0, name, speed.speed_text(report))


def main():
    arguments = runs.arguments_of(__doc__)
    checks = runs.Checks()
    runner = runs.Runner(arguments)
    against_float64(arguments, runner, checks)
    three_steps(runner, checks)
    speed_of_one(arguments, runner, checks)
    checks.exit()


if __name__ == "__main__":
    main()
