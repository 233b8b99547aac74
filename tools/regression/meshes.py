"""A small deck on every mesh that the ranks allow, under every strategy, in every precision.

Each run is held against the losses and gradient norms of one rank (tests/regress/golden/meshes.json), sends the bytes that
`ztrain plan` says, and has bit for bit the losses of the other strategies on its mesh; one run of each mesh is repeated.
Which meshes are legal is asked of `ztrain plan`. Bounds are relative. On CPU ranks losses are in fp32 up to 2e-9 from those
of one rank, norms up to 3e-8; in bf16 3e-5 and 1.3e-3; in fp8 5e-5 and 1.8e-3, all over meshes of 1 to 4 ranks.
"""
import concurrent.futures
import itertools
import json
import math
import os
import re
import shutil
import sys
import time
from dataclasses import dataclass

import ranks as starting
from report import FAIL, LACK, PASS, SKIP, Result

ROOT = starting.ROOT
import runs  # noqa: E402  beside phases.py, which ranks.py finds

DECK = ROOT / "tests" / "regress" / "cluster" / "meshes.toml"
GOLDEN = ROOT / "tests" / "regress" / "golden" / "meshes.json"
GLOBAL_BATCH = 64  # the deck's
AXES = ("replicate", "shard", "context", "tensor")
STRATEGIES = ("NO_SHARD", "zero1", "zero2", "SHARD_GRAD_OP", "FULL_SHARD", "HYBRID_SHARD")
METHODS = ("gather", "ring", "ulysses")
PRECISIONS = {"fp32": {"precision.preset": "fp32"}, "bf16": {"precision.preset": "bf16"},
              "fp8": {"precision.preset": "bf16", "precision.fp8": "tensorwise"}}
BOUNDS = {"fp32": {"loss": 1e-5, "norm": 1e-5}, "bf16": {"loss": 5e-4, "norm": 1e-2}, "fp8": {"loss": 1e-3, "norm": 2e-2}}
# A refusal names the key at fault. Other messages are of a plan that was made and then found wrong.
KEY = re.compile(r"\b(mesh|tensor|context|batch|precision|sharding)\.[a-z]")
ALONE = re.compile(r"does not divide the job's 1 ranks|job has 1 rank")
PLAN_LIMIT = 120  # seconds


@dataclass(frozen=True)
class Case:
    degrees: tuple
    strategy: str
    precision: str
    method: str  # of context; "" where no axis needs one
    again: bool = False

    @property
    def mesh(self):
        return " x ".join(f"{axis} {size}" for axis, size in zip(AXES, self.degrees) if size > 1) or "one rank"

    @property
    def name(self):
        return ", ".join(filter(None, [self.strategy, self.precision, self.method, "again" if self.again else ""]))

    @property
    def folder(self):
        return re.sub(r"\W+", "_", f"{self.mesh} {self.name}")

    def keys(self):
        """Two micro-batches a step where the batch has as many, so that gradients are accumulated."""
        replicate, shard = self.degrees[:2]
        keys = {f"mesh.{axis}": size for axis, size in zip(AXES, self.degrees)}
        keys |= {"sharding.strategy": self.strategy, **PRECISIONS[self.precision]}
        keys["batch.micro"] = max(1, GLOBAL_BATCH // (2 * replicate * shard))
        return keys | ({"context.method": self.method} if self.method else {})


def meshes(ranks, axes=AXES):
    """All ways to write the number of ranks as a product of degrees of these axes."""
    divisors = [n for n in range(1, ranks + 1) if ranks % n == 0]
    return [m for m in itertools.product(*(divisors if axis in axes else [1] for axis in AXES)) if math.prod(m) == ranks]


def cases(options):
    """Methods of context take turns over the strategies, so that each mesh meets each method."""
    found, strategies = [], options.strategies
    for degrees, precision in itertools.product(meshes(options.ranks, options.axes), options.precisions):
        context = degrees[AXES.index("context")]
        for number, strategy in enumerate(strategies):
            method = METHODS[number % len(METHODS)] if context > 1 else ""
            found.append(Case(degrees, strategy, precision, method))
        found.append(Case(degrees, strategies[0], precision, METHODS[0] if context > 1 else "", again=True))
    return found


def largest_difference(expected, found):
    """Of all steps, relative; infinite where steps are missing or no number."""
    if len(found) != len(expected) or not all(map(math.isfinite, found)):
        return math.inf
    return max(abs(a / b - 1) for a, b in zip(found, expected))


class Meshes:
    def __init__(self, options, launcher, report):
        self.options, self.launcher, self.report = options, launcher, report
        self.folder = options.out / "meshes"
        self.folder.mkdir(exist_ok=True)
        self.text = runs.write_text(options.out / "text.txt")
        self.first = {}  # losses and norms of the first run on each mesh, by what must give the same bits

    def words(self, case):
        keys = {"data.train": json.dumps([str(self.text)]), "run.output": self.folder / case.folder, **case.keys()}
        # A rank that waits in vain says where, before this ends all of them.
        keys["watchdog.timeout"] = self.options.timeout / 2
        return [str(DECK), *(f"--{key}={value}" for key, value in keys.items())]

    def plan(self, case):
        """(planned bytes, None), or (None, what is to be told): most often that the mesh is not legal."""
        log = self.folder / f"{case.folder}.plan"
        command = [self.options.ztrain, "plan", *self.words(case), "--ranks", self.options.ranks, "--json"]
        run = starting.run(command, log, PLAN_LIMIT)
        if run.code == 0:
            return json.loads(run.text[run.text.index("{"):])["traffic"]["bytes"], None
        refused = [line[len("ztrain: "):] for line in run.text.splitlines() if line.startswith("ztrain: ")]
        if run.code == 1 and refused and KEY.search(refused[0]):
            return None, self.result(case, LACK, run.seconds, f"not legal: {refused[0]}")
        return None, self.result(case, FAIL, run.seconds, f"ztrain plan {run.why()}")

    def steps(self, case):
        """(losses, norms, {bytes sent of a step}) of a run that has ended."""
        path = self.folder / case.folder / "metrics.jsonl"
        records = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        records = [r for r in records if "grad_norm" in r]
        sent = {sum(r["bytes_sent"].values()) for r in records}
        return [r["loss"] for r in records], [r["grad_norm"] for r in records], sent

    def judge(self, case, planned):
        """(verdict, sentence) of a run that ended well."""
        losses, norms, sent = self.steps(case)
        golden = self.options.golden[case.precision]
        found = {"loss": losses, "norm": norms}
        for what, bound in BOUNDS[case.precision].items():
            difference = largest_difference(golden[what], found[what])
            if not difference <= bound:
                return FAIL, self.step_that_differs(what, golden[what], found[what], bound)
        if sent != {planned}:
            return FAIL, f"a step sent {sorted(sent)} bytes, and the plan says {planned}"
        bits = (losses, norms)
        other, expected = self.first.setdefault((case.degrees, case.precision, case.method), (case, bits))
        if bits != expected:
            return FAIL, f"its losses have other bits than those of {other.name} on the same mesh"
        return PASS, f"differs by {largest_difference(golden['loss'], losses):.0e}"

    def step_that_differs(self, what, expected, found, bound):
        if len(found) != len(expected):
            return f"{len(found)} of {len(expected)} steps are in its metrics.jsonl"
        step = next(i for i, pair in enumerate(zip(found, expected)) if not abs(pair[0] / pair[1] - 1) <= bound)
        name = "the loss" if what == "loss" else "the gradient norm"
        return (f"{name} of step {step + 1} is {found[step]:.9g}, and that of one rank is {expected[step]:.9g}: "
                f"{abs(found[step] / expected[step] - 1):.0e} apart, where {bound:.0e} is allowed")

    def result(self, case, verdict, seconds, detail):
        return Result("meshes", case.name, self.options.ranks, case.mesh, verdict, seconds, detail, case.precision)

    def train(self, case, planned):
        """Whether ranks come up as one run at all."""
        self.report.begin(f"meshes  {case.mesh}, {case.name}")
        output = self.folder / case.folder
        shutil.rmtree(output, ignore_errors=True)  # of an earlier start of this job
        run = self.launcher.run(self.options.ranks, [str(self.options.ztrain), *self.words(case)],
                                self.folder / f"{case.folder}.log", self.options.timeout)
        alone = self.options.ranks > 1 and ALONE.search(run.text) is not None
        if alone:
            verdict, detail = FAIL, (f"{self.options.ranks} ranks came up as runs of one rank each: ztrain's MPI library does not "
                                     "know this launcher; set ZTRAIN_MPI to a plugin that it knows, or to mpirun")
        else:
            verdict, detail = (FAIL, run.why()) if run.code != 0 else self.judge(case, planned)
        self.report.end(self.result(case, verdict, run.seconds, detail))
        return not alone

    def run(self):
        begin = time.monotonic()
        wanted = cases(self.options)
        with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            plans = list(pool.map(self.plan, wanted))
        legal = [(case, planned) for case, (planned, _) in zip(wanted, plans) if planned is not None]
        refused = [told for case, (_, told) in zip(wanted, plans) if told and not case.again]
        fits = len({case.degrees for case, _ in legal})
        self.report.heading(f"meshes: {fits} of {len({case.degrees for case in wanted})} meshes of {self.options.ranks} ranks are legal for the "
                            f"deck, {len(legal)} runs (asked of ztrain plan in {time.monotonic() - begin:.0f} s)")
        for told in refused:
            self.report.add(told)
        if not legal:
            detail = f"no mesh of {self.options.ranks} ranks fits {DECK.relative_to(ROOT)}: take a power of 2, or any number up to 8"
            self.report.add(Result("meshes", "legal meshes", self.options.ranks, "", FAIL, 0, detail))
        for number, (case, planned) in enumerate(legal):
            if not self.train(case, planned):
                for rest, _ in legal[number + 1:]:
                    self.report.add(self.result(rest, SKIP, 0, "the ranks do not come up as one run"))
                return


def record(options):
    """Writes the golden file from runs of one rank."""
    golden = {}
    for precision in PRECISIONS:
        case = Case((1, 1, 1, 1), "NO_SHARD", precision, "")
        one = Meshes(options, None, None)
        run = starting.run([options.ztrain, *one.words(case)], one.folder / f"{case.folder}.log", options.timeout)
        if run.code != 0:
            sys.exit(f"{precision}: {run.why()}")
        losses, norms, _ = one.steps(case)
        golden[precision] = {"loss": losses, "norm": norms}
    options.golden.write_text(json.dumps(golden, indent=1) + "\n")
