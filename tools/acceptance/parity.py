#!/usr/bin/env python3
"""Losses and gradient norms on this build's device against those that CPU ranks recorded.

    tools/acceptance/parity.py --build build/cuda --out FOLDER --gpus N
    tools/acceptance/parity.py --build build/cpu --out FOLDER --record [KIND ...]
                                                       writes tests/regress/golden/acceptance.json, or these kinds in it

50 steps in bf16, every strategy on 1, 2 and 4 ranks (8 where there are as many GPUs); in fp32 on 1 and 2 ranks. Ranks that share
a GPU take 3 steps. 3 steps in fp32 over packed documents. What attention.py runs is recorded here too. Tolerances (below) are relative: of each step, and of the mean over steps. Losses on CPUs:
bf16 is 1.2e-2 and 9e-4 from fp32, and up to 2.7e-3 and 2.1e-4 from itself on other meshes; fp32 is 1.2e-6 and 8e-8 from
fp64. Norms, which Adam and clipping hide from the losses: bf16 is 4.8e-2 and 9.3e-3 from fp32, and up to 2.8e-2 and 3.8e-3
from itself (on a processor with AVX2 alone a step near the end was 1.2e-1 off, and the mean 9.6e-3); in the three steps of attention.py's runs up to 3.0e-4 and 1.5e-4 in the losses, 2.4e-3 and 1.2e-3 in the
norms from fp32. Ranks that share a GPU exchange data over MPI; over NCCL too where a run of two steps says that it lets them.
Without mpirun there is one rank, and a failure. What there is no time for is skipped.
"""
import json
import math
import os
import statistics

import facts
import runs

GOLDEN_FOLDER = runs.ROOT / "tests" / "regress" / "golden"
GOLDEN = GOLDEN_FOLDER / "acceptance.json"
STRATEGIES = ("FULL_SHARD", "zero2", "zero0", "HYBRID_SHARD", "zero1", "SHARD_GRAD_OP")
# Of a step, of the mean over steps.
TOLERANCE = {"bf16": {"loss": (2e-2, 2e-3), "norm": (3e-1, 2.5e-2)},
             "fp32": {"loss": (1e-4, 1e-5), "norm": (1e-3, 1e-4)},
             "bf16, 3 steps": {"loss": (7e-4, 3.5e-4), "norm": (6e-3, 3e-3)}}
DOCUMENTS = {"data.train": json.dumps([str(GOLDEN_FOLDER / "documents.h5")]), "data.format": "hdf5",
             "data.packing": "documents", "data.long_documents": "split", "data.sequence": 64, "run.steps": 3,
             "schedule.warmup": 1}
# In 16 bits, with bounds on the number of documents that cuDNN needs. The file of documents has 1,073 tokens.
BF16 = {"precision.preset": "bf16"}
FEW = {"run.steps": 3, "schedule.warmup": 1, "batch.global": 4}
ATTENTION = {"packed documents": {**BF16, **DOCUMENTS, "data.max_documents": 16},
             "packed documents of 1000": {**BF16, **DOCUMENTS, **FEW, "data.sequence": 1000, "data.max_documents": 60,
                                          "data.train": json.dumps(16 * [str(GOLDEN_FOLDER / "documents.h5")])},
             "length 1000": {**BF16, **FEW, "data.sequence": 1000},
             "length 2048": {**BF16, **FEW, "data.sequence": 2048, "batch.global": 2}}
SHORT = {"run.steps": 3, "schedule.warmup": 1}
# What each run of the golden file overrides of the deck.
RECORDED = {"bf16": BF16, "fp32": {"precision.preset": "fp32"}, "bf16 short": {**BF16, **SHORT},
            "fp32 short": {"precision.preset": "fp32", **SHORT},
            "four layers": {**BF16, **SHORT, "model.num_hidden_layers": 4},
            "documents": {"precision.preset": "fp32", **DOCUMENTS}, **ATTENTION}
SHARED = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_DEBUG": "WARN"}  # what NCCL from 2.30 on asks for
DUPLICATE = "Duplicate GPU"  # NCCL's word for two ranks on one GPU
OLD_NCCL = "start one rank per GPU"  # ztrain's, of versions that know no other way
ONE_RUN = 60  # seconds


def one_gpu():
    """The environment of ranks that are to share one."""
    return {**SHARED, "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]}


def overrides_of(strategy, ranks, kind, more=None):
    keys = {"sharding.strategy": strategy, **RECORDED[kind], **(more or {})}
    if ranks == 8:  # of the 8 sequences
        keys["batch.micro"] = 1
    if strategy == "HYBRID_SHARD":
        keys |= {"mesh.replicate": min(2, ranks), "mesh.shard": max(1, ranks // 2)}
    return keys


def record(runner, checks, kinds):
    golden = json.loads(GOLDEN.read_text()) if kinds else {}
    for kind in kinds or RECORDED:
        run = runner.train(f"record_{kind}".replace(" ", "_"), 1, overrides_of("zero0", 1, kind), timeout=300)
        if not checks.ended(f"record {kind}", run):
            return
        steps = [values for _, values in sorted(run.steps().items())]
        golden[kind] = {"loss": [loss for loss, _ in steps], "norm": [norm for _, norm in steps]}
        checks.judge(True, f"record {kind}", f"{len(steps)} steps, losses {steps[0][0]:.4f} to {steps[-1][0]:.4f}")
    GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")


def differences(golden, found):
    """The largest and the mean relative difference; infinite where steps are missing or no number."""
    if len(found) != len(golden) or not all(map(math.isfinite, found)):
        return math.inf, math.inf
    each = [abs(a / b - 1) for a, b in zip(found, golden)]
    return max(each), statistics.mean(each)


class Parity:
    def __init__(self, arguments, runner, checks):
        self.runner, self.checks = runner, checks
        self.gpus = arguments.gpus
        self.golden = json.loads(GOLDEN.read_text())
        self.sharing = ""  # why ranks on one GPU do not use NCCL

    def compare(self, name, run, kind):
        steps = [values for _, values in sorted(run.steps().items())]
        three_steps = kind in ATTENTION or kind in ("bf16 short", "four layers")
        tolerance = TOLERANCE["bf16, 3 steps" if three_steps else RECORDED[kind]["precision.preset"]]
        good, text = True, []
        for i, (what, (limit, mean_limit)) in enumerate(tolerance.items()):
            worst, mean = differences(self.golden[kind][what], [values[i] for values in steps])
            good &= worst <= limit and mean <= mean_limit
            text.append(f"{what} {worst:.1e} (bound {limit:.0e}), mean {mean:.1e} ({mean_limit:.1e})")
        self.checks.judge(good, name, "largest difference of " + "; of ".join(text))

    def check(self, strategy, ranks, kind="bf16", more=None, env=None, name=None):
        via = " ".join(["", more["device.communicator"]]) if "device.communicator" in (more or {}) else ""
        name = name or f"{kind} {strategy} {ranks} rank{'s' if ranks > 1 else ''}{via}"
        run = self.runner.train(name.replace(" ", "_"), ranks, overrides_of(strategy, ranks, kind, more),
                                timeout=ONE_RUN, env=env)
        if self.checks.ended(name, run):
            self.compare(name, run, kind)
        return run

    def look_at_sharing(self):
        """Whether NCCL serves ranks that share a GPU is known before any run is judged by it."""
        version = facts.nccl_version(self.runner.executable)
        name = "nccl, ranks on one GPU"
        if 0 < version < 23000:
            self.sharing = f"NCCL {facts.nccl_text(version)} serves one rank per GPU; several from 2.30 on"
            return self.checks.lack(name, self.sharing)
        more = {"device.communicator": "nccl", "run.steps": 2, "schedule.warmup": 0}
        run = self.runner.train("nccl_probe", 2, overrides_of("zero0", 2, "bf16", more), timeout=ONE_RUN, env=one_gpu())
        if run.code == 0:
            return self.checks.judge(True, name, "NCCL serves them")
        refused = [line for line in run.text.splitlines() if DUPLICATE in line or OLD_NCCL in line]
        if refused:
            self.sharing = f"NCCL refuses ranks on one GPU: {refused[0].strip()[:200]}"
            say = self.checks.say
            return say("LACK" if version == 0 else "FAIL", name, self.sharing)
        self.sharing = "two steps of it did not run"
        self.checks.ended(name, run)

    def over(self, communicator, strategy, ranks, kind="bf16"):
        more = {"device.communicator": communicator}
        if communicator == "mpi" or self.gpus >= ranks:
            self.check(strategy, ranks, kind, more)
        elif not self.sharing:
            self.check(strategy, ranks, kind, more, env=SHARED)

    def several(self, strategy, ranks, kind="bf16"):
        """Over each communicator that there is. Ranks that share a GPU are slow, and take three steps."""
        if self.gpus == 0:
            return self.check(strategy, ranks, kind)
        if self.gpus < ranks:
            kind = f"{kind} short"
        for communicator in ("mpi", "nccl"):
            self.over(communicator, strategy, ranks, kind)

    def all(self):
        """What says most comes first: the last may have no time left."""
        self.check("zero0", 1, "fp32")
        self.check(STRATEGIES[0], 1)
        self.check(STRATEGIES[0], 1, "documents")
        if self.checks.have_mpirun("2 and more ranks", self.runner):
            self.all_of_several()
        for strategy in STRATEGIES[1:]:
            self.check(strategy, 1)

    def all_of_several(self):
        if self.gpus == 0:
            self.checks.lack("nccl", "a build for CPUs")
        elif self.gpus < 4:
            self.look_at_sharing()
        self.several(STRATEGIES[0], 2, "fp32")
        for ranks in (2, 4, 8) if self.gpus >= 8 else (2, 4):
            for strategy in STRATEGIES:
                self.several(strategy, ranks)


def main():
    arguments = runs.arguments_of(__doc__, [("--record", {"nargs": "*", "choices": RECORDED, "metavar": "KIND",
                                                          "help": "write the golden file"})])
    checks = runs.Checks()
    runner = runs.Runner(arguments)
    if arguments.record is not None:
        record(runner, checks, arguments.record)
    else:
        Parity(arguments, runner, checks).all()
    checks.exit()


if __name__ == "__main__":
    main()
