"""Every block of README, CONTRIBUTING and docs as it stands, in a fresh clone: commands run in the order of the page, TOML is
checked. What cannot run here is marked in the page (tests/support/document_blocks.py), and parsed all the same."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib
import unittest

import document_blocks
import ztrain_run as zt

PAGES = ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{p.name}" for p in (zt.SOURCE / "docs").glob("*.md"))]
MOST_NOT_RUN = 14  # blocks; one more needs a reason as good as theirs
LEAST_RUN = 6
# What a piece of a deck is completed with.
BASE = {"run": {"steps": 100}, "data": {"train": ["tokens.bin"]}, "batch": {"global": 512}}
# Of the sources that write metrics.jsonl, and of the tables of docs/metrics.md.
WRITTEN = re.compile(r'\{"(\w+)", r\.|\{"(\w+)", (?:bytes|to_json)|line\["(\w+)"\]|(?:seconds\[|seconds = \{\{|add\()"(\w+)"')
KEY = re.compile(r"--([a-z_]+\.[a-z_0-9]+)=")
NAMED_TEST = re.compile(r"\]\(\.\./(tests/[^)]+)\) `(\w+)`")
LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")


def put(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


class Documents(zt.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.blocks = {page: document_blocks.blocks_of(zt.SOURCE / page, page) for page in PAGES}
        cls.clone = cls.make_clone()
        # What a user has in PATH, as this machine has it; ztrain is there as README says.
        put(cls.folder / "bin/mpirun", f'#!/bin/sh\nexec {shutil.which(zt.LAUNCHER[0])} {" ".join(zt.LAUNCHER[1:])} "$@"\n')
        put(cls.folder / "bin/python3", f'#!/bin/sh\nexec {sys.executable} "$@"\n')

    @classmethod
    def make_clone(cls):
        """What git has of the sources, as it is in the working tree, and a build."""
        clone = cls.folder / "ztrain"
        listed = subprocess.run(["git", "-C", zt.SOURCE, "ls-files", "-z"], capture_output=True, text=True, check=False)
        if listed.returncode == 0:
            for name in filter(None, listed.stdout.split("\0")):
                if (zt.SOURCE / name).is_file():
                    (clone / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(zt.SOURCE / name, clone / name)
        else:  # an archive
            shutil.copytree(zt.SOURCE, clone, ignore=shutil.ignore_patterns("build", "runs", ".git"))
        (clone / "build/cpu").mkdir(parents=True)
        (clone / "build/cpu/ztrain").symlink_to(zt.EXECUTABLE)
        return clone

    def of_kind(self, kind, run=True):
        return [b for page in PAGES for b in self.blocks[page] if b.kind == kind and (b.mark != "not run") == run]

    def shell(self, script, *options, folder):
        path = f"{self.folder / 'bin'}:{self.clone / 'build/cpu'}:{os.environ['PATH']}"
        file = self.folder / "blocks.sh"
        file.write_text(script)
        # Open MPI starts as it does for users, which no other test has it do.
        shortcuts = ("OMPI_MCA_pml", "OMPI_MCA_ess_singleton_isolated")
        env = {k: v for k, v in zt.environment({"PATH": path}).items() if k not in shortcuts}
        return subprocess.run(
            ["bash", *options, file], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=200,
            cwd=folder, env=env, check=False,
        )  # fmt: skip

    def run_page(self, page):
        """Its blocks as one session in a clone of its own; the number of those that ran."""
        blocks = [b for b in self.blocks[page] if b.mark != "not run"]
        shell = [b for b in blocks if b.kind == "shell"]
        if not shell:
            return 0
        folder = self.folder / page.replace("/", "-")
        shutil.copytree(self.clone, folder, symlinks=True)
        for b in blocks:
            if b.mark == "file":
                (folder / b.why).write_text(b.text)
        script = "set -euo pipefail\n" + "".join(f"echo '## {b}' >&2\n{b.text}" for b in shell)
        done = self.shell(script, folder=folder)
        self.assertEqual(done.returncode, 0, f"{page}:\n{done.stdout}\n{done.stderr}")
        ran = re.findall(r"(?m)^## (\S+)$", done.stderr)
        self.assertEqual(ran, [str(b) for b in shell])
        shutil.rmtree(folder)
        return len(ran)

    def test_commands_run_in_a_fresh_clone(self):
        ran = {page: self.run_page(page) for page in PAGES}
        print("blocks that ran:", {page: n for page, n in ran.items() if n})
        self.assertGreaterEqual(sum(ran.values()), LEAST_RUN)
        self.assertEqual(sum(ran.values()), len(self.of_kind("shell")))

    def test_what_does_not_run_is_marked_and_parses(self):
        marked = self.of_kind("shell", run=False) + self.of_kind("toml", run=False)
        self.assertLessEqual(len(marked), MOST_NOT_RUN, "\n".join(f"{b}: {b.why}" for b in marked))
        for b in marked:
            done = self.shell(b.text, "-n", folder=self.clone)
            self.assertEqual((done.returncode, done.stderr), (0, ""), f"{b}: {b.text}")

    def test_text_is_no_hiding_place_for_commands(self):
        for page in PAGES:
            for b in self.blocks[page]:
                if b.kind == "text":
                    self.assertNotRegex(b.text, r"(?m)^    (\S*ztrain (plan|check|bench|export|generate|evaluate) |mpirun |tools/|sbatch )", b)

    def test_toml_is_a_deck_or_a_piece_of_one(self):
        blocks = self.of_kind("toml")
        self.assertGreater(len(blocks), 5)
        for number, b in enumerate(blocks):
            deck = tomllib.loads(b.text)
            for section, keys in BASE.items():
                deck[section] = {**keys, **deck.get(section, {})}
            if {"steps", "epochs"} <= set(deck["run"]):
                del deck["run"]["steps"]
            deck.setdefault("model", {}).setdefault("preset", "llama3-8b")
            if "lora" in deck:  # adapters are of a model that was trained
                deck["model"].setdefault("from", "model")
            path = self.folder / f"block{number}.toml"
            path.write_text(zt.deck_text(deck))
            done = zt.run(0, ["check", path, "--without-files", "--ranks", 4])
            self.assertEqual(done.code, 0, f"{b}: {done}")

    def test_keys_and_links_are_there(self):
        """Wherever they stand, in commands that do not run too."""
        keys, section = set(), ""
        for line in (zt.SOURCE / "docs/inputs.md").read_text().splitlines():
            section = line[4:-1] if line.startswith("## [") else section
            if row := re.match(r"\| `(\w+)` \|", line):
                keys.add(f"{section}.{row[1]}")
        for page in PAGES:
            text = (zt.SOURCE / page).read_text()
            for key in KEY.findall(text):
                self.assertTrue(key in keys or key == "section.key", f"{page}: --{key}=")
            for link in LINK.findall(text):
                self.assertTrue((zt.SOURCE / page).parent.joinpath(link).exists(), f"{page}: {link}")
            self.assertNotIn("\n```", text, f"{page}: blocks are indented, so that this test finds them")


    def test_tests_that_are_named_are_there(self):
        rows = NAMED_TEST.findall((zt.SOURCE / "docs/correctness.md").read_text())
        self.assertGreater(len(rows), 40)
        for file, name in rows:
            self.assertRegex((zt.SOURCE / file).read_text(), rf"(\w+, |def ){name}\b", f"docs/correctness.md: {file}")

    def test_all_keys_of_metrics_are_listed(self):
        listed = set()
        for line in (zt.SOURCE / "docs/metrics.md").read_text().splitlines():
            if line.startswith("| `"):
                listed |= set(re.findall(r"`([\w.]+)`", line.split("|")[1]))
        written = {"seconds"}
        for plain, inner, of_line, second in WRITTEN.findall((zt.SOURCE / "src/telemetry/metrics_file.cpp").read_text()):
            written.add(f"seconds.{second}" if second else plain or inner or of_line)
        self.assertEqual(written - {"seconds"}, listed)
        records = zt.metrics(self.train(2, "numbers", {"evaluation.interval": 3, "checkpoint.interval": 3}))
        self.assertEqual(len(records), 8)
        for record in records:
            parts = {f"seconds.{part}" for part in record.pop("seconds", ())}
            self.assertEqual((set(record) | parts) - listed, set())


class Blocks(unittest.TestCase):
    def test_kinds_and_marks(self):
        with zt.tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "page.md"
            page.write_text(
                "Text:\n\n    run this\n    and this\n\n    [run]\n    steps = 1\n\n    [data]\n\nMore\n    no block\n\n"
                "<!-- not run: why -->\n\n    sbatch x\n\n<!-- text: a picture -->\n\n    a -> b\n"
            )
            found = [(b.line, b.kind, b.mark, b.text) for b in document_blocks.blocks_of(page, "page")]
        self.assertEqual(
            found,
            [
                (3, "shell", "", "run this\nand this\n"),
                (6, "toml", "", "[run]\nsteps = 1\n\n[data]\n"),
                (16, "shell", "not run", "sbatch x\n"),
                (20, "text", "text", "    a -> b"),
            ],
        )


if __name__ == "__main__":
    zt.main()
