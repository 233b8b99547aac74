#!/usr/bin/env python3
"""Plants faults in ztrain, one at a time, and says which of them no test notices.

tests/mutants/*.toml hold the faults. A copy of the tree gets all of them at once, each behind a comparison with the
environment variable ZTRAIN_MUTANT, so that one build serves every fault. The sources themselves know nothing of it.

    mutants.py --check                     # is each fault's text in the sources, once? Builds nothing
    mutants.py --build build/mutants       # all faults
    mutants.py --build build/mutants --only program     # those of program.toml, or whose name begins so
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import zlib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SOURCES = ("src", "kernels")
COPIED = ("CMakeLists.txt", "CMakePresets.json", "cmake", "docs", "inputs", "kernels", "slurm", "src", "tests", "tools",
          "README.md", "CONTRIBUTING.md")
AIM = 97  # per cent
SECONDS = 900  # a fault whose tests take longer is noticed: they hang
HEADER = """#pragma once
#include <cstdlib>

namespace ztrain {
/// Which planted fault this process has; 0 for none.
inline const unsigned long planted = [] {
  const char* const text = std::getenv("ZTRAIN_MUTANT");
  return text == nullptr ? 0ul : std::strtoul(text, nullptr, 10);
}();
inline bool mutant(unsigned long number) {
  return planted == number;
}
}  // namespace ztrain
"""


class Fault:
    """One fault: `text`, which one file named `file` has once, becomes `fault`."""

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
    named = {}
    for folder in SOURCES:
        for path in (ROOT / folder).rglob("*"):
            named.setdefault(path.name, []).append(path)
    return named


def locate(faults):
    """Finds the file of each fault, wherever it has moved to. Returns what is amiss, as sentences."""
    named, spans, wrong = sources_by_name(), {}, []
    for fault in faults:
        places = []  # (file, beginning of the text)
        for path in named.get(fault.file, []):
            text = path.read_text()
            places += [(path.relative_to(ROOT), match.start()) for match in re.finditer(re.escape(fault.text), text)]
        if len(places) != 1:
            wrong.append(f"{fault.name}: its text is {len(places)} times in files named {fault.file}, not once: {fault.text!r}")
            continue
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


def run_tests(tree, pattern, number, seconds):
    """Whether the tests pass, and the names of those that do not. A process group of its own, which ends with it."""
    command = ["ctest", "--test-dir", str(tree), "-R", pattern, "--stop-on-failure", "-j", str(os.cpu_count())]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                             env={**os.environ, "ZTRAIN_MUTANT": str(number)}, start_new_session=True)
    try:
        output, _ = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        return False, ["(no end)"]
    return child.returncode == 0, re.findall(r"^\s*\d+ - (\S+) \(", output, re.MULTILINE)


def require_sound(tree, faults):
    """Without a fault all tests pass, and each pattern names some: else a fault would seem to be noticed, or could not be."""
    listed = subprocess.run(["ctest", "--test-dir", str(tree), "-N"], capture_output=True, text=True, check=True).stdout
    names = re.findall(r"^\s*Test\s+#\d+: (\S+)", listed, re.MULTILINE)
    patterns = sorted({pattern for fault in faults for pattern in fault.tests})
    for pattern in patterns:
        if not any(re.search(pattern, name) for name in names):
            raise SystemExit(f"no test has a name like {pattern!r}")
    passed, failed = run_tests(tree, "|".join(patterns), 0, None)
    if not passed:
        raise SystemExit(f"without a fault these tests fail: {', '.join(failed)}")


def judge(tree, fault):
    start = time.monotonic()
    killer = ""
    for pattern in fault.tests:
        passed, failed = run_tests(tree, pattern, fault.number, SECONDS)
        if not passed:
            killer = failed[0] if failed else "(crash)"
            break
    seconds = time.monotonic() - start
    print(f"{'killed  ' if killer else 'SURVIVES'} {seconds:6.1f} s  {fault.name:44} {killer or fault.wrong}", flush=True)
    return {"name": fault.name, "file": str(fault.path), "wrong": fault.wrong, "killed_by": killer, "survives": fault.survives,
            "seconds": round(seconds, 1)}


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
    options.add_argument("--json", type=pathlib.Path, help="also write the results here")
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
    require_sound(tree, chosen)
    results = [judge(tree, fault) for fault in chosen]
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n")
    sys.exit(0 if conclude(results) else 1)


if __name__ == "__main__":
    main()
