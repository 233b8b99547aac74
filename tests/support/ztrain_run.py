"""Drives the ztrain executable for the end-to-end tests: writes decks and data, trains, reads the results.

The executable and the launcher come from the environment, as CTest sets it:
  ZTRAIN          path of the executable
  ZTRAIN_MPIRUN   the launcher with its options, before -n, separated by spaces
  ZTRAIN_IN_ALLOCATION  1: the launcher starts ranks on the nodes of the SLURM job around it, else on this machine
  ZTRAIN_SOURCE   root of the repository
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

EXECUTABLE = os.path.abspath(os.environ["ZTRAIN"])
LAUNCHER = os.environ["ZTRAIN_MPIRUN"].split()
SOURCE = pathlib.Path(os.environ.get("ZTRAIN_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
# Files in memory that all ranks see, where it has room for what tests write.
SHM = pathlib.Path("/dev/shm")
HAS_ROOM = os.environ.get("ZTRAIN_IN_ALLOCATION") != "1" and SHM.is_dir() and shutil.disk_usage(SHM).free > 8 * 2**30

# Keys with which a step moves no weight: the rate is the least that fp32 holds well, and eps keeps zeros zero.
STILL = {"optimizer.lr": 1e-37, "optimizer.eps": 1e9, "optimizer.weight_decay": 0}

# A model that trains in milliseconds; its dims are no multiples of each other.
SMALL_MODEL = {
    "hidden_size": 32,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 257,
}


def toml_value(value):
    if isinstance(value, pathlib.Path):
        value = str(value)
    if isinstance(value, list):
        return "[" + ", ".join(toml_value(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k} = {toml_value(v)}" for k, v in value.items()) + "}"
    return json.dumps(value)


def deck_text(sections):
    """TOML of {"run": {"steps": 3}, ...}."""
    parts = []
    for section, keys in sections.items():
        parts.append(f"[{section}]\n" + "".join(f"{k} = {toml_value(v)}\n" for k, v in keys.items()))
    return "\n".join(parts)


def words_of(overrides):
    """Command line words of {"run.steps": 3}; bare words stay bare, as a user types them."""
    words = []
    for key, value in overrides.items():
        words.append(f"--{key}={value if isinstance(value, (str, pathlib.Path)) else toml_value(value)}")
    return words


def write_text_data(path, size=20000, seed=1):
    """Words from a small vocabulary, the same on every machine."""
    syllables = ["ka", "lo", "mi", "ne", "ru", "sto", "ta", "vi", "we", "zu"]
    state, text = seed, ""
    while len(text) < size:
        state = (state * 1103515245 + 12345) % 2**31
        first, second = state >> 16 & 7, state >> 20 & 7
        text += syllables[first] + syllables[second + first % 3] + (". " if state >> 24 & 7 == 0 else " ")
    path.write_text(text[:size])
    return path


class Result:
    def __init__(self, command, code, out, err, seconds):
        err = re.sub(r"(?m)^\[warn\] Epoll .*\n", "", err)  # of mpirun's event loop, now and then
        self.command, self.code, self.out, self.err, self.seconds = command, code, out, err, seconds
        self.output = out + err

    @property
    def said(self):
        """Stderr without the lines of progress, which a busy machine makes it write."""
        return re.sub(r"(?m)^.*, \d+ s\n", "", self.err)

    def __str__(self):
        command = " ".join(self.command)
        return f"$ {command}\n{self.output}\n-> exit status {self.code} after {self.seconds:.1f} s"


def environment(extra=None):
    of_a_job = () if os.environ.get("ZTRAIN_IN_ALLOCATION") == "1" else ("SLURM_",)
    env = {k: v for k, v in os.environ.items() if not k.startswith(of_a_job)}
    env["OMP_NUM_THREADS"] = "1"
    return env | (extra or {})


# Of a shell that runs each rank in the folder node0, node1, ... below the working folder: disks that are not shared.
OWN_FOLDERS = ["sh", "-c", 'cd "node${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" && exec "$@"', "sh"]


def command_line(ranks, words, wrapper=()):
    launcher = LAUNCHER + ["-n", str(ranks)] if ranks else []
    return [*launcher, *wrapper, EXECUTABLE, *(str(w) for w in words)]


def end(process):
    """Kills what the process started, then the process itself. The number of one that has ended may be another's by now."""
    for pid in [*descendants(process.pid), process.pid] if process.poll() is None else ():
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def run(ranks, words, timeout=60, cwd=None, env=None, wrapper=()):
    """Runs ztrain; ranks 0: without the launcher. Fails the test when it does not end in time.

    wrapper: the command that starts it on each rank, such as OWN_FOLDERS.
    """
    command = command_line(ranks, words, wrapper)
    start = time.monotonic()
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        cwd=cwd,
        env=environment(env),
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        end(process)
        out, err = process.communicate()
        raise AssertionError(f"did not end within {timeout} s: {' '.join(command)}\n{out}{err}") from None
    return Result(command, process.returncode, out, err, time.monotonic() - start)


def heed_sigint():
    """A shell has what it starts in the background ignore SIGINT, and all that comes of that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(ranks, words, log):
    """Starts ztrain and returns at once; its output goes to the file. Ranks 0: without the launcher."""
    with open(log, "w") as file:
        return subprocess.Popen(
            command_line(ranks, words),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment(),
            start_new_session=True,
            preexec_fn=heed_sigint,
        )


def parent_of(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return -1
    return int(stat[stat.rindex(")") + 2 :].split()[1])


def descendants(pid):
    """Process ids below pid, the nearest first."""
    parents = {int(p.name): parent_of(p.name) for p in pathlib.Path("/proc").iterdir() if p.name.isdigit()}
    found, level = [], [pid]
    while level:
        level = [p for p, parent in parents.items() if parent in level]
        found += level
    return found


def rank_processes(pid):
    """{rank: process id} of the ztrain processes below the launcher."""
    found = {}
    for child in descendants(pid):
        try:
            if not os.path.samefile(f"/proc/{child}/exe", EXECUTABLE):
                continue
            variables = pathlib.Path(f"/proc/{child}/environ").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        for variable in variables:
            name, _, value = variable.partition("=")
            if name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"):
                found[int(value)] = child
                break
    return found


def peak_memory(pid):
    """The largest resident set of a process so far, in bytes; 0 when it is gone."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found.group(1)) * 1024 if found else 0


def alive(pid):
    """False for a process that is gone or a zombie."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat[stat.rindex(")") + 2] != "Z"


def wait_for(what, condition, timeout=30):
    """Polls until condition() is true."""
    end_at = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > end_at:
            raise AssertionError(f"waited {timeout} s in vain for: {what}")
        time.sleep(0.02)
    return value


def metrics(folder):
    """The records of a run's metrics.jsonl; a last line that is not finished yet is left out."""
    path = pathlib.Path(folder) / "metrics.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def losses(folder):
    """{step: (loss, gradient norm)}; fails when a step is there twice. JSON floats keep every bit."""
    found = {}
    for record in metrics(folder):
        if "grad_norm" not in record:
            continue
        assert record["step"] not in found, f"{folder}: step {record['step']} is in metrics.jsonl twice"
        found[record["step"]] = (record["loss"], record["grad_norm"])
    return found


def validation_losses(folder):
    return {r["step"]: r["validation_loss"] for r in metrics(folder) if "validation_loss" in r}


def saved_steps(folder):
    """The steps of the checkpoints that are in a folder of checkpoints."""
    return sorted(int(p.name[5:]) for p in pathlib.Path(folder).glob("step_*") if p.name[5:].isdigit())


def names_in(folder):
    """What is in a folder of checkpoints beside the lock of the run that writes there."""
    return sorted(p.name for p in pathlib.Path(folder).iterdir() if p.name != ".lock")


def tensors(checkpoint):
    """{"state/parameter": array} of every logical tensor of a checkpoint."""
    import h5py

    found = {}

    def visit(name, node):
        if isinstance(node, h5py.Dataset) and not name.startswith("ztrain/"):
            found[name] = node[...]

    with h5py.File(pathlib.Path(checkpoint) / "index.h5", "r") as file:
        file.visititems(visit)
    return found


class Case(unittest.TestCase):
    """A test with a folder of its own, in which it works, text data in it, and the checks that all share."""

    maxDiff = None
    on_disk = False  # a folder in memory waits for no disk at each sync; tests of memory and of drives need a disk

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="ztrain-test-", dir=None if cls.on_disk or not HAS_ROOM else SHM))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.addClassCleanup(os.chdir, pathlib.Path.cwd())
        os.chdir(cls.folder)
        cls.text = write_text_data(cls.folder / "text.txt")
        cls.deck = cls.write_deck("deck")

    @classmethod
    def sections(cls):
        """The deck that the tests start from."""
        return {
            "run": {"steps": 6, "output": str(cls.folder / "out")},
            "data": {"train": [str(cls.folder / "text.txt")], "sequence": 32},
            "model": dict(SMALL_MODEL),
            "batch": {"global": 4, "micro": 1},
            "precision": {"preset": "fp32"},
            "optimizer": {"lr": 3e-3},
            "checkpoint": {"resume": "none"},
        }

    @classmethod
    def write_deck(cls, name, changes=None):
        """Writes name.toml; changes: {"model.hidden_size": 40}, None removes the key."""
        sections = cls.sections()
        for key, value in (changes or {}).items():
            section, member = key.split(".")
            if value is None:
                sections[section].pop(member, None)
            else:
                sections.setdefault(section, {})[member] = value
        path = cls.folder / f"{name}.toml"
        path.write_text(deck_text(sections))
        return path

    @classmethod
    def train(cls, ranks, name, overrides=None, deck=None, timeout=60):
        """Trains into the output folder `name`, which it returns; fails unless ztrain succeeds."""
        output = cls.folder / name
        result = run(ranks, [deck or cls.deck, *words_of({"run.output": output, **(overrides or {})})], timeout)
        if result.code != 0:
            raise AssertionError(str(result))
        cls.last = result
        return output

    def begin(self, ranks, name, overrides, steps):
        """Starts a run and returns when it has trained some steps: (process, {rank: pid}, output, log)."""
        output, log = self.folder / name, self.folder / f"{name}.log"
        process = start(ranks, [self.deck, *words_of({"run.output": output, **overrides})], log)
        self.addCleanup(process.wait)
        self.addCleanup(end, process)
        wait_for(f"step {steps}", lambda: process.poll() is not None or len(losses(output)) >= steps, timeout=60)
        self.assertIsNone(process.poll(), log.read_text())
        found = rank_processes(process.pid) if ranks else {0: process.pid}
        self.assertEqual(sorted(found), list(range(max(ranks, 1))), log.read_text())
        return process, found, output, log

    def assert_same(self, expected, found, what=""):
        """Bitwise the same losses and gradient norms."""
        self.assertTrue(expected, "there is nothing to compare")
        self.assertEqual(expected, found, what)

    def assert_close(self, expected, found, tolerance, what=""):
        """Losses agree to a relative tolerance. (Norms are not compared: they are noisier.)"""
        self.assertTrue(expected, "there is nothing to compare")
        self.assertEqual(sorted(expected), sorted(found), what)
        for step, (loss, _) in expected.items():
            self.assertLessEqual(abs(found[step][0] - loss), tolerance * abs(loss), f"{what} step {step}")

    def assert_same_tensors(self, expected, found):
        one, other = tensors(expected), tensors(found)
        self.assertTrue(one)
        self.assertEqual(sorted(one), sorted(other))
        for name, array in one.items():
            self.assertEqual(array.shape, other[name].shape, name)
            self.assertEqual(array.tobytes(), other[name].tobytes(), f"{name} differs")

    def assert_refused(self, result, *patterns, times=1):
        """One message that matches every pattern, an exit status that says failure, nothing like a crash.

        times: how often a pattern may be there, where several ranks have something of their own to say.
        """
        self.assertNotEqual(result.code, 0, f"the exit status says success\n{result}")
        self.assert_no_crash(result)
        starts = re.findall(r"^ztrain: ", result.err, re.M)
        self.assertEqual(len(starts), 1, f"not one message\n{result}")
        message = message_of(result)
        self.assertLessEqual(message.count("\n"), 20, f"more than 20 lines\n{result}")
        for pattern in patterns:
            self.assertRegex(message, pattern, str(result))
            found = len(re.findall(pattern, result.output, re.M))
            self.assertTrue(1 <= found <= times, f"{pattern!r} is there {found} times\n{result}")

    def assert_no_crash(self, result):
        """Nothing of a crash, and no words of libraries, which nobody can act on."""
        crash = (
            r"(?i)backtrace|terminate called|core dumped|segmentation|received signal|\[0x|what\(\)|"
            r"HDF5-DIAG|infinite loop closing|MPI_ERR|AddressSanitizer|std::|bad_alloc|json\.exception|json type_error|"
            r"filesystem error|basic_string|vector::|map::at|\bsto(i|l|d|ull)\b|Assertion"
        )
        self.assertNotRegex(result.output, crash, str(result))


def message_of(result):
    """What ztrain itself says on stderr, up to the launcher's own lines."""
    text = result.err[result.err.index("ztrain: ") :]
    return re.split(r"^(?:-{20,}|srun: |slurmstepd)", text, flags=re.M)[0]


def main():
    unittest.main(verbosity=2)
