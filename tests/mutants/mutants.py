#!/usr/bin/env python3
"""Plants faults in ztrain, one at a time, and says which of them no test notices.

tests/mutants/*.toml hold the faults. A copy of the tree gets all of them at once, each behind a comparison with the
environment variable ZTRAIN_MUTANT, so that one build serves every fault. The sources themselves know nothing of it.

    mutants.py --check                     # is each fault's text in the sources, once? Builds nothing
    mutants.py --build build/mutants       # all faults
    mutants.py --build build/mutants --only program     # those of program.toml, or whose name begins so
    mutants.py --build build/mutants --resume  # but for those that an earlier run saw noticed

The tests that a fault names run one after another until one fails: those of tests/unit, then of tests/mpi, then the rest, and of
each kind the quickest first. Their times, and that all pass without a fault, come from a run of each before the kind's first
fault. Verdicts are kept in FOLDER/verdicts.json as they come.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import zlib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SOURCES = ("src", "kernels")
COPIED = ("CMakeLists.txt", "CMakePresets.json", "cmake", "docs", "inputs", "kernels", "slurm", "src", "tests", "tools",
          "README.md", "CONTRIBUTING.md")
AIM = 97  # per cent
SLOWER = 10  # a test that takes so many times what it takes without a fault, and LEAST more, hangs: the fault is noticed
LEAST = 20  # seconds
HEADER = """#pragma once
#include <cstdlib>

namespace ztrain {
/// Which planted fault this process has; 0 for none.
inline const unsigned long planted = [] {
  const char* const text = std::getenv("ZTRAIN_MUTANT");
  return text == nullptr ? 0ul : std::strtoul(text, nullptr, 10);
}();
constexpr bool mutant(unsigned long number) {  // 0 alone is a constant, so that constexpr functions may call this
  return number == 0 || planted == number;
}
}  // namespace ztrain
"""


class Fault:
    """One fault: `text`, which one file named `file` (or folder/file) has once, becomes `fault`."""

    def __init__(self, area, tests, row):
        unknown = set(row) - {"name", "file", "text", "fault", "wrong", "tests", "survives"}
        missing = {"name", "file", "text", "fault", "wrong"} - set(row)
        if unknown or missing:
            raise SystemExit(f"{area}.toml: {row.get('name')}: unknown keys {sorted(unknown)}, missing {sorted(missing)}")
        self.name = f"{area}.{row['name']}"
        self.file, self.text, self.fault = row["file"], row["text"], row["fault"]
        self.wrong, self.survives = row["wrong"], row.get("survives", "")
        self.tests = row.get("tests", tests)
        self.number = zlib.crc32(self.name.encode())  # does not change when others come and go
        self.path = None  # of the source, relative to the root

    def planted(self):
        """What stands in the copy instead of the text. A statement ends in ; or }, all else is an expression."""
        chosen = f"::ztrain::mutant({self.number}ul)"
        if self.text.rstrip()[-1] in ";}":
            return f"{{ if ({chosen}) {{ {self.fault} }} else {{ {self.text} }} }}"
        return f"({chosen} ? ({self.fault}) : ({self.text}))"


def read_faults():
    faults = []
    for path in sorted(HERE.glob("*.toml")):
        data = tomllib.loads(path.read_text())
        faults += [Fault(path.stem, data["tests"], row) for row in data["fault"]]
    return faults


def sources_by_name():
    """By their name, and by that with the folder's: fp8/rules.cpp."""
    named = {}
    for folder in SOURCES:
        for path in (ROOT / folder).rglob("*"):
            for name in (path.name, f"{path.parent.name}/{path.name}"):
                named.setdefault(name, []).append(path)
    return named


def locate(faults):
    """Finds the file of each fault, wherever it has moved to. Returns what is amiss, as sentences."""
    named, spans, wrong = sources_by_name(), {}, []
    for fault in faults:
        places = []  # (file, beginning of the text)
        for path in named.get(fault.file, []):
            text = path.read_text()
            found = [match.start() for match in re.finditer(re.escape(fault.text), text)]
            places += [(path.relative_to(ROOT), begin) for begin in found]
            inside = any(re.search(r"(\w|\.|->|::|return |throw )$", text[max(0, begin - 8) : begin]) and re.match(r"\w", fault.text)
                         and (fault.text.rstrip()[-1] in ";}" or not text[begin - 1].isspace()) for begin in found)
            if inside:
                wrong.append(f"{fault.name}: its text begins within an expression or a statement: {fault.text!r}")
        if len(places) != 1:
            wrong.append(f"{fault.name}: its text is {len(places)} times in files named {fault.file}, not once: {fault.text!r}")
            continue
        half = re.match(r"(if|for|while|return)\b", fault.text) and fault.text.rstrip()[-1] not in ";}"
        part = re.match(r"\s+[-+/%|=<>&]|[{.]|\"[^\"]*\",", fault.text) or (not fault.fault.strip() and fault.text.rstrip()[-1] not in ";}")
        declares = re.match(r"(const )?(auto|bool|int|double|float|std::[\w:<>]+|[A-Z]\w*)( ?[&*](const)?)? \w+ ?[={(;]", fault.text)
        signs = re.sub(r'"[^"]*"|::|\b(for|case)\b.*', "", fault.text)
        if half or part or declares or signs.count("?") != signs.count(":") or any(text.count(a) != text.count(b) for text in (fault.text, fault.fault) for a, b in ("()", "[]", "{}")) \
                or fault.text.count('"') % 2:
            wrong.append(f"{fault.name}: its text and its fault are to be whole statements or expressions, and declare no name: {fault.text!r}")
        fault.path, begin = places[0]
        spans.setdefault(fault.path, []).append((begin, begin + len(fault.text), fault.name))
    for of_file in spans.values():
        of_file.sort()
        wrong += [f"{a[2]} and {b[2]} change the same text" for a, b in zip(of_file, of_file[1:]) if a[1] > b[0]]
    numbers = [fault.number for fault in faults]
    wrong += [f"{f.name}: another fault has this name, or one with the same checksum" for f in faults if numbers.count(f.number) > 1]
    return wrong


def write_changed(path, data):
    """So that a build compiles only what is new."""
    if path.exists() and path.read_bytes() == data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def copy_tree(faults, copy):
    wanted = set()
    planted = {}
    for fault in faults:
        planted.setdefault(fault.path, []).append(fault)
    for top in COPIED:
        start = ROOT / top
        for path in [start] if start.is_file() else start.rglob("*"):
            if not path.is_file() or "__pycache__" in path.parts:
                continue
            relative = path.relative_to(ROOT)
            data = path.read_bytes()
            if relative in planted:
                text = data.decode()
                for fault in planted[relative]:
                    text = text.replace(fault.text, fault.planted())
                data = ('#include "base/mutant.hpp"\n' + text).encode()
            write_changed(copy / relative, data)
            shutil.copymode(path, copy / relative)
            wanted.add(relative)
    header = pathlib.Path("src/base/mutant.hpp")
    write_changed(copy / header, HEADER.encode())
    wanted.add(header)
    for top in COPIED:
        for path in (copy / top).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts and path.relative_to(copy) not in wanted:
                path.unlink()


def build(copy, preset):
    frontend = ROOT / "build" / "cudnn-frontend"
    if frontend.is_dir() and not (copy / "build" / "cudnn-frontend").exists():
        (copy / "build").mkdir(exist_ok=True)
        (copy / "build" / "cudnn-frontend").symlink_to(frontend)
    for command in (["cmake", "--preset", preset], ["cmake", "--build", "--preset", preset]):
        if subprocess.run(command, cwd=copy, stdout=subprocess.DEVNULL if "--build" not in command else None).returncode:
            raise SystemExit(f"{' '.join(command)} failed in {copy}")
    return copy / "build" / preset


class Test:
    """An entry of CTest, run without CTest: several at a time, each in a process group that ends with it."""

    def __init__(self, entry):
        properties = {p["name"]: p["value"] for p in entry.get("properties", [])}
        self.name, self.command = entry["name"], entry["command"]
        self.folder = properties.get("WORKING_DIRECTORY")
        self.environment = dict(pair.split("=", 1) for pair in properties.get("ENVIRONMENT", []))
        self.needs, self.leaves = (set(properties.get(f"FIXTURES_{key}", [])) for key in ("REQUIRED", "SETUP"))
        self.seconds = 0.0  # without a fault

    def passes(self, number, limit):
        """Within `limit` seconds, with the fault of that number. What it leaves behind in temporary files goes."""
        with tempfile.TemporaryDirectory(prefix="fault-", ignore_cleanup_errors=True) as temporary:
            os.chmod(temporary, 0o755)  # some tests become another user
            environment = {**os.environ, **self.environment, "ZTRAIN_MUTANT": str(number), "TMPDIR": temporary}
            if self.name.startswith("unit/"):  # of several ranks one would stop and the others wait
                environment["GTEST_FAIL_FAST"] = "1"
            child = subprocess.Popen(self.command, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL,
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
            try:
                return child.wait(limit) == 0
            except subprocess.TimeoutExpired:
                return False
            finally:
                end_group(child)


def end_group(child):
    """mpirun ends its ranks, which have groups of their own, when it is told to end; then nothing is asked any more."""
    for told in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, told)
            child.wait(5)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass


def read_tests(tree, faults):
    """The tests that these faults name: {pattern: [Test]}; and those that leave files which these need."""
    command = ["ctest", "--test-dir", str(tree), "--show-only=json-v1"]
    listed = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    tests = [Test(entry) for entry in listed["tests"] if "command" in entry]
    named = {}
    for pattern in {pattern for fault in faults for pattern in fault.tests}:
        named[pattern] = [test for test in tests if re.search(pattern, test.name)]
        if not named[pattern]:
            raise SystemExit(f"no test has a name like {pattern!r}")
    needs = set().union(*(test.needs for of_pattern in named.values() for test in of_pattern))
    return named, [test for test in tests if test.leaves & needs]


def require_sound(tests, pool):
    """Without a fault all tests pass: else a fault would seem to be noticed. Takes their times."""
    def measure(test):
        start = time.monotonic()
        passed = test.passes(0, 1000)
        test.seconds = time.monotonic() - start
        return passed
    failed = [test.name for test, passed in zip(tests, list(pool.map(measure, tests))) if not passed]
    if failed:
        raise SystemExit(f"without a fault these tests fail: {', '.join(failed)}")


def killer_of(fault, tests):
    """The name of a test that notices the fault, or nothing."""
    for test in sorted(tests, key=lambda test: test.seconds):
        if not test.passes(fault.number, LEAST + SLOWER * test.seconds):
            return test.name
    return ""


class Verdicts:
    """What is known of each fault, in a file that is whole at any time."""

    def __init__(self, path, resume):
        self.path, self.lock = path, threading.Lock()
        known = json.loads(path.read_text()) if resume and path.exists() else []
        self.known = {verdict["name"]: verdict for verdict in known}

    def noticed(self, fault):
        """Whether an earlier run saw this fault noticed, as it is planted now. Tests that were added since take nothing away."""
        verdict = self.known.get(fault.name)
        return bool(verdict and verdict["killed_by"] and verdict["planted"] == fault.planted())

    def add(self, fault, killer, seconds):
        print(f"{'killed  ' if killer else 'SURVIVES'} {seconds:6.1f} s  {fault.name:44} {killer or fault.wrong}", flush=True)
        with self.lock:
            self.known[fault.name] = {"name": fault.name, "file": str(fault.path), "wrong": fault.wrong, "killed_by": killer,
                                      "survives": fault.survives, "planted": fault.planted()}
            new = self.path.with_suffix(".new")
            new.write_text(json.dumps(list(self.known.values()), indent=1) + "\n")
            new.replace(self.path)

    def of(self, faults):
        return [{**self.known[fault.name], "survives": fault.survives} for fault in faults if fault.name in self.known]


def judge_all(tree, faults, verdicts, jobs):
    """The dear tests run, without a fault and with one, only for what the cheap ones do not notice."""
    start = time.monotonic()
    left = [fault for fault in faults if not verdicts.noticed(fault)]
    named, before = read_tests(tree, left)
    kinds = ("unit/", "mpi/", "")
    kind_of = {test: next(kind for kind in kinds if test.name.startswith(kind)) for tests in named.values() for test in tests}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        require_sound(before, pool)
        for kind in kinds:
            tests_of = {fault: {test for pattern in fault.tests for test in named[pattern] if kind_of[test] == kind}
                        for fault in left}
            require_sound(sorted(set().union(*tests_of.values()), key=lambda test: test.name), pool)

            def judge(fault):
                began = time.monotonic()
                killer = killer_of(fault, tests_of[fault])
                if killer or kind == kinds[-1]:
                    verdicts.add(fault, killer, time.monotonic() - began)
                return killer
            left = [fault for fault, killer in zip(left, list(pool.map(judge, left))) if not killer]
            print(f"{time.monotonic() - start:.0f} s: {len(left)} faults are left by the tests {kind or 'of all kinds'}", flush=True)


def conclude(results):
    """Prints the score and the survivors; False where the aim is missed or a survivor is not explained."""
    survivors = [r for r in results if not r["killed_by"]]
    score = 100 * (len(results) - len(survivors)) / len(results)
    print(f"\n{len(results) - len(survivors)} of {len(results)} faults are noticed: {score:.1f}% (aim: {AIM}%)")
    for r in survivors:
        print(f"  survives: {r['name']}: {r['wrong']}\n    {r['survives'] or 'not explained'}")
    stale = [r for r in results if r["killed_by"] and r["survives"]]
    for r in stale:
        print(f"  noticed by now, so its `survives` has to go: {r['name']}")
    return score >= AIM and not stale and all(r["survives"] for r in survivors)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--check", action="store_true", help="only check the data")
    options.add_argument("--build", type=pathlib.Path, help="folder of the copy and its build")
    options.add_argument("--preset", default="ci", help="of CMakePresets.json; default: ci")
    options.add_argument("--only", action="append", default=[], help="faults whose name begins so; may be repeated")
    options.add_argument("--resume", action="store_true", help="take over from verdicts.json which faults were noticed")
    options.add_argument("--jobs", type=int, default=os.cpu_count(), help="faults that are judged at a time; default: one per core")
    given = options.parse_args()
    faults = read_faults()
    if wrong := locate(faults):
        raise SystemExit("\n".join(wrong))
    print(f"{len(faults)} faults in {len({f.path for f in faults})} files")
    if given.check:
        return
    if given.build is None:
        options.error("--build names the folder of the copy and its build")
    chosen = [f for f in faults if not given.only or any(f.name.startswith(only) for only in given.only)]
    if not chosen:
        raise SystemExit(f"no fault has a name that begins with {' or '.join(given.only)}")
    copy = given.build.resolve()
    copy_tree(faults, copy)
    tree = build(copy, given.preset)
    verdicts = Verdicts(copy / "verdicts.json", given.resume)
    judge_all(tree, chosen, verdicts, given.jobs)
    sys.exit(0 if conclude(verdicts.of(chosen)) else 1)


if __name__ == "__main__":
    main()
