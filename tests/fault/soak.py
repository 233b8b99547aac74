"""A soak: runs are killed with SIGKILL at moments drawn at random, saves and exports included, and started again by slurm/launch.sh
until they come to their end. Then nothing may tell them from a run that nobody disturbed.

ZTRAIN_SOAK_ROUNDS of them (default 5; `ctest -C Full -L soak` has 100), drawn from ZTRAIN_SOAK_SEED. Moments are of the run, not of
the clock: when a kill comes decides what is tested, and never whether a round passes. A kill that comes too late, since the run has
ended by then, is counted, and its round begins anew.
"""

import collections
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import time

import ztrain_run as zt

ROUNDS = int(os.environ.get("ZTRAIN_SOAK_ROUNDS", "5"))
SEED = int(os.environ.get("ZTRAIN_SOAK_SEED", "1"))
STEPS = 24
MOST_TRIES = 5  # of a round none of whose kills has come in time

# What a round trains: the keys of the whole round, and what one start after the other takes in turn. On one mesh the latter change
# no bit; between meshes losses agree up to rounding, and each stretch of steps has the bits of its mesh.
MESHES = [
    {"mesh.shard": 2},
    {"mesh.shard": 4},
    {"mesh.pipeline": 2, "mesh.shard": 1},
    {"mesh.tensor": 2, "mesh.shard": 1},
    {"mesh.replicate": 2, "mesh.shard": 2},
]
STRATEGIES = [{"sharding.strategy": name} for name in ("FULL_SHARD", "NO_SHARD", "SHARD_GRAD_OP", "zero1", "zero2")]
RUNS = [
    ("asynchronous saves", 2, {"checkpoint.keep": 1}, [{}]),
    ("synchronous saves of copies", 4, {"checkpoint.async": False, "mesh.replicate": 2, "precision.preset": "bf16-pure"}, [{}]),
    ("other strategies", 3, {"batch.global": 6, "sharding.gradient_accumulation": "reduce", "checkpoint.keep": 2}, STRATEGIES),
    ("other meshes", 2, {"checkpoint.keep_every": 6}, MESHES),
    ("the best stay", 2, {"precision.preset": "deepspeed-fp16", "evaluation.interval": 2, "checkpoint.keep_best": 2}, [{}]),
]

# What SLURM's and MPI's programs are to slurm/launch.sh here: there is no cluster, and mpirun does not know how many ranks.
STAND_INS = {
    "squeue": "case $* in *%T) echo RUNNING ;; *) exit 1 ;; esac\n",
    "mpirun": f'exec {" ".join(zt.LAUNCHER)} -n "$SLURM_NTASKS" "$@"\n',
}

# Of metadata.json, what says which checkpoints there were before, what started the run, and what follows from these.
OF_OTHERS = ("proven_step", "deck", "deck_hash", "mesh", "strategy", "index_checksum", "metadata_checksum")


def kill(pids):
    """All of them at once. One that has ended by then is no loss."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def began(pid):
    """When the process began, in ticks since the system's start; None: it is gone, or a zombie."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *rest = stat[stat.rindex(")") + 2 :].split()
    return None if state == "Z" else int(rest[18])


class Job:
    """slurm/launch.sh, started again and again as SLURM requeues a job; each start in turn has further keys."""

    def __init__(self, folder, deck, ranks, turns):
        self.folder, self.deck, self.ranks, self.turns = folder, deck, ranks, turns
        self.starts = []  # of each: its keys and its log
        self.process, self.seen = None, {}  # process ids, and when each began: a number may be another's later

    def keys(self, start):
        return self.turns[start % len(self.turns)]

    def ranks_of(self, keys):
        degrees = [value for key, value in keys.items() if key.startswith("mesh.")]
        product = 1
        for degree in degrees:
            product *= degree
        return product if degrees else self.ranks

    def start(self):
        number = len(self.starts)
        keys, log = self.keys(number), self.folder / f"start_{number}.log"
        self.starts.append((keys, log))
        ranks = self.ranks_of(keys)
        job = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "SLURM_JOB_ID": "1",
            "SLURM_NTASKS": str(ranks),
            "SLURM_RESTART_COUNT": str(number),
            "ZTRAIN": zt.EXECUTABLE,
            "ZTRAIN_MPI": "mpirun",
            "ZTRAIN_LOGS": str(self.folder / "logs"),
            # Other keys come with another start of the script; else the script may start ranks anew by itself.
            "ZTRAIN_FAILURES": "0" if len(self.turns) > 1 else "10",
        }
        with open(log, "w") as file:
            self.process = subprocess.Popen(
                [zt.SOURCE / "slurm/launch.sh", self.deck, *zt.words_of(keys)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=zt.environment(job),
                start_new_session=True,
            )

    def below(self):
        found = zt.descendants(self.process.pid)
        self.seen.update({pid: began(pid) for pid in found})
        return found

    def victims(self, whom, draw):
        """Process ids; before there are ranks it is mpirun that is hit, and before that the script."""
        below = self.below()
        ranks = sorted(zt.rank_processes(self.process.pid).values())
        launchers = [pid for pid in below if name_of(pid) in ("mpirun", "mpiexec", "orterun")]
        if whom == "a rank" and ranks:
            return [draw.choice(ranks)]
        if whom == "all ranks" and ranks:
            return ranks
        if whom in ("a rank", "all ranks", "mpirun") and launchers:
            return launchers
        return [self.process.pid] + (below if whom == "the node" else [])

    def end_of_script(self):
        """SLURM ends what a batch script has started once the script is gone."""
        rest = self.left()
        self.process.wait()
        kill(rest)

    def left(self):
        return [pid for pid, when in self.seen.items() if when is not None and began(pid) == when]

    def end(self):
        if self.process and self.process.poll() is None:
            kill([self.process.pid, *self.below()])
            self.process.wait()
        kill(self.left())

    def said(self):
        return "\n".join(f"--- start {n}, {keys}\n{log.read_text()}" for n, (keys, log) in enumerate(self.starts))


def name_of(pid):
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return ""


class Moments:
    """When a kill comes: each waits for something of the run, and then a little more."""

    def __init__(self, job, output, draw):
        self.job, self.output, self.draw = job, output, draw

    def until(self, condition, longest):
        """False where the run has ended before that."""
        while not condition():
            if self.job.process.poll() is not None:
                return False
            time.sleep(0.001)
        time.sleep(self.draw.uniform(0, longest))
        return self.job.process.poll() is None

    def start(self):
        return self.until(lambda: True, 1.0)

    def step(self):
        last = min(self.steps() + self.draw.randint(1, 6), STEPS - 1)
        return self.until(lambda: self.steps() >= last, 0.02)

    def save(self):
        return self.until(self.is_saving, 0.004)

    def save_behind(self):
        """A later save than the next one."""
        done = set(self.names("checkpoints"))
        new = lambda: {n for n in self.names("checkpoints") if n.endswith(".tmp")} - done
        return self.until(lambda: self.steps() > 0 and new(), 0.004)

    def export(self):
        return self.until(lambda: any(n.endswith(".tmp") for n in self.names("")), 0.004)

    def is_saving(self):
        return any(name.endswith((".tmp", ".old")) for name in self.names("checkpoints"))

    def names(self, folder):
        try:
            return os.listdir(self.output / folder)
        except FileNotFoundError:
            return []

    def steps(self):
        try:
            with open(self.output / "metrics.jsonl", "rb") as file:
                return file.read().count(b"\n")
        except FileNotFoundError:
            return 0


MOMENTS = ("start", "step", "save", "save_behind", "export")
VICTIMS = ("a rank", "all ranks", "mpirun", "the script", "the node")


class Soak(zt.Case):
    @classmethod
    def sections(cls):
        sections = super().sections()
        sections["run"]["steps"] = STEPS
        sections["data"]["validation"] = sections["data"]["train"]
        sections["evaluation"] = {"batches": 1}
        sections["schedule"] = {"name": "constant"}  # so that a run may be replayed in stretches
        sections["checkpoint"] = {"interval": 3, "keep": 1}
        sections["watchdog"] = {"timeout": 60}
        return sections

    def setUp(self):
        self.hits, self.late, self.torn = collections.Counter(), 0, 0

    def write(self, output, keys):
        return self.write_deck(output.name, {**keys, "run.output": output, "checkpoint.export": output / "model"})

    def disturbed(self, number, attempt):
        """A run that is killed some times; gives its job and output."""
        name, ranks, keys, turns = RUNS[number % len(RUNS)]
        draw = random.Random(f"{SEED}/{number}/{attempt}")
        output, folder = self.folder / f"run_{number}_{attempt}", self.folder / f"job_{number}_{attempt}"
        for program, text in STAND_INS.items():
            path = folder / "bin" / program
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("#!/usr/bin/env bash\n" + text)
            path.chmod(0o755)
        job = Job(folder, self.write(output, keys), ranks, turns)
        self.addCleanup(job.end)
        moments, told = Moments(job, output, draw), []
        for _ in range(draw.randint(2, 3)):
            moment, whom = draw.choice(MOMENTS), draw.choice(VICTIMS)
            if self.kill_once(job, moments, moment, whom, draw):
                told.append(f"{whom} at a {moment.replace('_', ' ')}")
        self.run_to_its_end(job)
        print(f"round {number} ({name}): {len(job.starts)} starts; killed: {', '.join(told) or 'none'}", flush=True)
        return job, output, len(told)

    def kill_once(self, job, moments, moment, whom, draw):
        """Whether it came in time. The script may start ranks anew by itself: the next kill is of these."""
        if job.process is None or job.process.poll() is not None:
            if job.process is not None and job.process.returncode == 0:
                self.late += 1
                return False
            job.start()
        before = set(zt.rank_processes(job.process.pid).values())
        if not getattr(moments, moment)():
            self.late += 1
            return False
        victims = job.victims(whom, draw)
        kill(victims)
        self.hits[whom] += 1
        self.torn += moments.is_saving()
        if job.process.pid in victims:
            job.end_of_script()
        else:
            again = lambda: set(zt.rank_processes(job.process.pid).values()) - before - set(victims)
            gone = lambda: not any(zt.alive(pid) for pid in before | set(victims))
            zt.wait_for("what follows a kill", lambda: job.process.poll() is not None or (gone() and again()), 60)
        return True

    def run_to_its_end(self, job):
        """Nobody disturbs it any more."""
        for _ in range(2):
            if job.process is None or job.process.poll() not in (None, 0):
                job.start()
            zt.wait_for("the end of the job", lambda: job.below() is None or job.process.poll() is not None, 120)
            if job.process.returncode == 0:
                return
        self.fail(f"the run does not come to its end\n{job.said()}")

    def stretches(self, job):
        """[first step, keys] of the starts whose steps are in the run: of the others nothing is left."""
        found = []
        for keys, log in job.starts:
            for first in map(int, re.findall(r"training starts at step (\d+) of", log.read_text())):
                self.assertGreaterEqual(first, found[-1][0] if found else 1, f"a checkpoint is lost\n{job.said()}")
                if found and found[-1][0] == first:
                    found.pop()
                found.append((first, keys))
        return found

    def undisturbed(self, number, job, name):
        """The same stretches of steps, each by a run that nothing disturbs."""
        _, _, keys, turns = RUNS[number % len(RUNS)]
        output = self.folder / name
        deck = self.write(output, keys)
        of_meshes = any(key.startswith("mesh.") for key in turns[0])
        stretches = self.stretches(job) if of_meshes else [(1, turns[0])]
        ends = [first - 1 for first, _ in stretches[1:]] + [STEPS]
        for (_, own), end in zip(stretches, ends):
            length = {} if end == STEPS else {"run.steps": end, "checkpoint.export": ""}
            result = zt.run(job.ranks_of(own), [deck, *zt.words_of({**own, **length})])
            self.assertEqual(result.code, 0, str(result))
        return output

    def compare(self, output, expected, job):
        self.assert_same(zt.losses(expected), zt.losses(output), job.said())
        self.assertEqual(zt.validation_losses(expected), zt.validation_losses(output))
        last = f"checkpoints/step_{STEPS}"
        self.assert_same_tensors(expected / last, output / last)
        metadata = [
            {k: v for k, v in json.loads((folder / last / "metadata.json").read_text()).items() if k not in OF_OTHERS}
            for folder in (expected, output)
        ]
        self.assertEqual(*metadata)
        # A run that was killed before its first checkpoint has begun anew.
        names = [name for name in zt.names_in(output) if not name.startswith("metrics.previous")]
        self.assertEqual(zt.names_in(expected), names, "something is left behind, or lacks")
        for path in sorted((expected / "model").iterdir()):
            self.assertEqual(path.read_bytes(), (output / "model" / path.name).read_bytes(), f"the export differs in {path.name}")
        self.assertEqual(zt.names_in(expected / "model"), zt.names_in(output / "model"))
        for name in zt.names_in(output / "checkpoints"):
            self.assertRegex(name, r"^step_\d+$", "a save has left something behind")
            verified = zt.run(0, ["verify", output / "checkpoints" / name])
            self.assertEqual(verified.code, 0, str(verified))

    def round(self, number):
        for attempt in range(MOST_TRIES):
            job, output, hits = self.disturbed(number, attempt)
            self.compare(output, self.undisturbed(number, job, f"straight_{number}_{attempt}"), job)
            if hits > 0:
                return
        self.fail(f"round {number}: no kill came in time in {MOST_TRIES} tries")

    def test_runs_that_are_killed_come_to_the_end_of_one_that_is_not(self):
        print(f"\n{ROUNDS} rounds, seed {SEED}", flush=True)
        for number in range(ROUNDS):
            with self.subTest(round=number, seed=SEED):
                self.round(number)
        told = ", ".join(f"{whom} {count}" for whom, count in sorted(self.hits.items()))
        print(f"kills: {told}; {self.torn} of them hit a save, {self.late} came too late", flush=True)


if __name__ == "__main__":
    zt.main()
