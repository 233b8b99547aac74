"""The build's own tests that run on several ranks, started by the allocation's launcher instead of mpirun on one machine.

CTest tells which there are: of tests/mpi those for no more ranks than the allocation has, of tests/regress those with the
label `any-launcher`, which start ztrain by whatever launcher they are given.
"""
import json
import pathlib
import shutil
import subprocess
import time
from dataclasses import dataclass

import ranks as starting
from report import FAIL, LACK, PASS, Result

MANY = 4  # ranks that tests of tests/regress start at most
SLACK = 4  # times what CTest allows: each start goes through the launcher, and over the network


@dataclass
class Test:
    """words: the command without its launcher. labels: of CTest."""
    name: str
    ranks: int
    words: list
    limit: float
    labels: list


def test_of(entry):
    properties = {p["name"]: p["value"] for p in entry["properties"]}
    words = entry["command"]
    at = words.index("-np") if "-np" in words else None
    return Test(entry["name"], 1 if at is None else int(words[at + 1]), words if at is None else words[at + 2:],
                SLACK * properties["TIMEOUT"], properties.get("LABELS", []))


class Suites:
    def __init__(self, options, launcher, report):
        self.options, self.launcher, self.report = options, launcher, report
        self.build = options.ztrain.parent
        # Shared by the nodes, as /tmp is not: ranks read there what others have written.
        self.shared = options.out / "shared"

    def tests(self, label):
        """(tests, "") or ([], why there are none)."""
        if not (self.build / "CTestTestfile.cmake").is_file():
            return [], f"{self.build} has no tests: name an executable in its build folder by ZTRAIN"
        if not shutil.which("ctest"):
            return [], "there is no ctest in PATH, which knows the tests: load CMake"
        command = ["ctest", "--test-dir", str(self.build), "--show-only=json-v1", "-L", f"^{label}$"]
        listed = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if listed.returncode != 0:
            return [], f"ctest does not list the tests: {(listed.stderr.strip() or listed.stdout.strip())[-200:]}"
        entries = json.loads(listed.stdout)["tests"]
        # An executable that is not built has no command, where CTest looked for it.
        tests = [test_of(entry) for entry in entries if entry.get("command")]
        missing = [t.name for t in tests if not pathlib.Path(t.words[0]).exists()] + [e["name"] for e in entries if not e.get("command")]
        if missing or not entries:
            return [], f"tests of {self.build} are not built ({', '.join(missing[:3]) or 'none is listed'}): build all of its targets"
        return tests, ""

    def environment(self):
        """Of tests/support/ztrain_run.py."""
        launcher = [*self.launcher.words, *(["--nodes", f"1-{self.launcher.nodes}"] if self.launcher.under_srun else [])]
        return {"ZTRAIN": str(self.options.ztrain), "ZTRAIN_MPIRUN": " ".join(launcher), "ZTRAIN_IN_ALLOCATION": "1",
                "ZTRAIN_SOURCE": str(starting.ROOT), "PYTHONPATH": str(starting.ROOT / "tests" / "support")}

    def start(self, test, suite):
        log = self.options.out / f"{test.name.replace('/', '_')}.log"
        env = {"TMPDIR": str(self.shared)}
        if suite == "mpi":
            return self.launcher.run(test.ranks, test.words, log, test.limit, env)
        return starting.run(test.words, log, test.limit, {**env, **self.environment()})

    def run_one(self, test, suite):
        self.report.begin(f"{suite}  {test.name}")
        run = self.start(test, suite)
        verdict, detail = (PASS, "") if run.code == 0 else (FAIL, self.why(run))
        self.report.end(Result(suite, test.name, test.ranks if suite == "mpi" else MANY, "", verdict, run.seconds, detail))

    def why(self, run):
        """Which test of the many in an executable."""
        failed = [line.strip() for line in run.text.splitlines() if line.startswith(("[  FAILED  ]", "FAIL: ", "ERROR: "))]
        return run.why(failed[0] if failed else "")

    def no_test(self, suite, verdict, why, begin):
        return Result(suite, "all tests", self.options.ranks, "", verdict, time.monotonic() - begin, why)

    def run(self, suite):
        begin = time.monotonic()
        self.shared.mkdir(exist_ok=True)
        tests, none = self.tests({"mpi": "mpi", "regress": "any-launcher"}[suite])
        needed = [t.ranks if suite == "mpi" else MANY for t in tests]
        chosen = [t for t, n in zip(tests, needed) if n <= self.options.ranks]
        self.report.heading(f"{suite}: {len(chosen)} of {len(tests)} tests")
        if none:
            self.report.add(self.no_test(suite, FAIL, f"{none}; or leave them out, with --only meshes", begin))
        elif not chosen:
            why = f"they need {min(needed)} ranks, and this allocation has {self.options.ranks}"
            self.report.add(self.no_test(suite, LACK, why, begin))
        for test in chosen:
            self.run_one(test, suite)
