#!/usr/bin/env python3
"""Losses of 50 steps on this build's device against those that CPU ranks recorded.

    tools/acceptance/parity.py --build build/cuda --out FOLDER --gpus N
    tools/acceptance/parity.py --build build/cpu --out FOLDER --record     writes tests/regress/golden/acceptance.json

bf16, every strategy on 1, 2 and 4 ranks; fp32 on 1 rank. Tolerances are relative, of each step's loss: bf16 2e-2, and 2e-3
in the mean over steps; fp32 1e-4 and 1e-5 (without tf32). On CPUs bf16 is 1.2e-2 and 9e-4 from fp32, and up to 2.7e-3 and
2.1e-4 from itself on other meshes; fp32 is 1.2e-6 and 8e-8 from fp64. Ranks that share a GPU exchange data over MPI; over
NCCL too where it lets them. Without mpirun there is one rank. What there is no time for is skipped.
"""
import json
import os
import statistics
import time

import facts
import runs

GOLDEN = runs.ROOT / "tests" / "regress" / "golden" / "acceptance.json"
STRATEGIES = ("zero0", "zero1", "zero2", "SHARD_GRAD_OP", "FULL_SHARD", "HYBRID_SHARD")
TOLERANCE = {"bf16": (2e-2, 2e-3), "fp32": (1e-4, 1e-5)}  # of a step, of the mean
ONE_RUN, NO_TIME = 60, "no time is left for it"  # seconds
# Words of NCCL's refusals to take two ranks on one GPU.
REFUSALS = ("Duplicate GPU", "invalid usage", "nvalid usage", "one GPU", "GPU of its own")


def overrides_of(strategy, ranks, precision="bf16", more=None):
    keys = {"sharding.strategy": strategy, "precision.preset": precision, **(more or {})}
    if ranks == 8:  # of the 8 sequences
        keys["batch.micro"] = 1
    if strategy == "HYBRID_SHARD":
        keys |= {"mesh.replicate": min(2, ranks), "mesh.shard": max(1, ranks // 2)}
    return keys


def record(runner, checks):
    golden = {}
    for precision in TOLERANCE:
        run = runner.train(f"record_{precision}", 1, overrides_of("zero0", 1, precision), timeout=300)
        if run.code != 0:
            return checks.judge(False, f"record {precision}", run.why())
        golden[precision] = [loss for _, (loss, _) in sorted(run.steps().items())]
        checks.judge(True, f"record {precision}", f"{golden[precision][0]:.4f} to {golden[precision][-1]:.4f}")
    GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")


def differences(golden, run):
    """The largest and the mean relative difference of a step's loss."""
    found = [loss for _, (loss, _) in sorted(run.steps().items())]
    if len(found) != len(golden):
        return float("inf"), float("inf")
    each = [abs(a / b - 1) for a, b in zip(found, golden)]
    return max(each), statistics.mean(each)


class Parity:
    def __init__(self, arguments, runner, checks):
        self.runner, self.checks = runner, checks
        self.gpus = arguments.gpus
        self.golden = json.loads(GOLDEN.read_text())
        self.nccl = facts.nccl_version(runner.executable) if arguments.gpus > 0 else 0
        self.nccl_refuses = ""
        self.end = time.monotonic() + float(os.environ.get("ZTRAIN_ACCEPTANCE_SECONDS", "1e9"))

    def compare(self, name, run, precision):
        worst, mean = differences(self.golden[precision], run)
        limit, mean_limit = TOLERANCE[precision]
        self.checks.judge(worst <= limit and mean <= mean_limit, name,
                          f"largest difference of a loss {worst:.1e} (bound {limit:.0e}), mean {mean:.1e} ({mean_limit:.0e})")

    def check(self, strategy, ranks, precision="bf16", more=None, **how):
        via = f" {more['device.communicator']}" if more else ""
        name = f"{precision} {strategy} {ranks} rank{'s' if ranks > 1 else ''}{via}"
        left = self.end - time.monotonic()
        if left < 10:
            return self.checks.skip(name, NO_TIME)
        run = self.runner.train(name.replace(" ", "_"), ranks, overrides_of(strategy, ranks, precision, more),
                                timeout=min(left, ONE_RUN), **how)
        if run.code == 0:
            return self.compare(name, run, precision)
        if run.code == 124 and left < ONE_RUN:
            return self.checks.skip(name, NO_TIME)
        shared = how and any(word in run.text for word in REFUSALS)
        if not shared:
            return self.checks.judge(False, name, run.why())
        self.nccl_refuses = run.why()
        self.checks.skip(name, f"NCCL refuses two ranks on one GPU: {self.nccl_refuses}")

    def over_nccl(self, strategy, ranks):
        """On GPUs of their own where there are as many; else what each version of NCCL has for ranks that share one."""
        more = {"device.communicator": "nccl"}
        if self.gpus >= ranks:
            return self.check(strategy, ranks, more=more)
        if self.nccl_refuses:
            return self.checks.skip(f"bf16 {strategy} {ranks} ranks nccl", "refused above")
        if self.nccl >= 23000:
            return self.check(strategy, ranks, more=more, env={"NCCL_MULTI_RANK_GPU_ENABLE": "1"})
        as_hosts = ["sh", "-c", 'NCCL_HOSTID=rank$OMPI_COMM_WORLD_RANK exec "$@"', "sh"]
        self.check(strategy, ranks, more=more, wrapper=as_hosts)

    def all(self):
        self.check("zero0", 1, "fp32")
        for strategy in STRATEGIES:
            self.check(strategy, 1)
        if not self.runner.mpirun:
            return self.checks.skip("2 and 4 ranks", "there is no mpirun")
        if self.gpus == 0:
            self.checks.skip("nccl", "a build for CPUs")
        for ranks in (2, 4, 8) if self.gpus >= 8 else (2, 4):
            for strategy in STRATEGIES:
                self.check(strategy, ranks, more={"device.communicator": "mpi"} if self.gpus > 0 else None)
            for strategy in STRATEGIES if self.gpus > 0 else ():
                self.over_nccl(strategy, ranks)


def main():
    arguments = runs.arguments_of(__doc__, [("--record", {"action": "store_true", "help": "write the golden losses"})])
    checks = runs.Checks()
    runner = runs.Runner(arguments)
    if arguments.record:
        record(runner, checks)
    else:
        Parity(arguments, runner, checks).all()
    checks.exit()


if __name__ == "__main__":
    main()
