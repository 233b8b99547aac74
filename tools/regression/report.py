"""What became of each check: said as it happens, in a table at the end, and as a JUnit file for the site's dashboards."""
import time
from dataclasses import dataclass
from xml.etree import ElementTree

PASS, FAIL, SKIP, LACK = "PASS", "FAIL", "SKIP", "LACK"
WORDS = {PASS: "passed", FAIL: "failed", SKIP: "did not run", LACK: "have nothing here to run on"}
REPEATED = 20  # failures
XML_LEAVES_OUT = {code: None for code in range(32) if chr(code) not in "\t\n"}


@dataclass
class Result:
    """suite: meshes, mpi or regress. mesh: "" where the check has its own. detail: one sentence. kind: results of one mesh and one
    kind are a single row of the table where all are well; "" for a row of its own."""
    suite: str
    name: str
    ranks: int
    mesh: str
    verdict: str
    seconds: float
    detail: str
    kind: str = ""


class Report:
    def __init__(self, out):
        self.out, self.results, self.begun = out, [], time.monotonic()

    def heading(self, text):
        print(f"== {text}", flush=True)

    def begin(self, what):
        """The line stays open until its verdict: what runs now, or hangs, is the last thing that a log shows."""
        print(f"{time.monotonic() - self.begun:6.0f} s  {what} ... ", end="", flush=True)

    def end(self, result):
        print(f"{result.verdict}, {result.seconds:.1f} s" + (f": {result.detail}" if result.detail else ""), flush=True)
        self.add(result)

    def add(self, result):
        """At once on disk: whoever ends this from outside loses no verdict."""
        self.results.append(result)
        (self.out / "table.txt").write_text(self.table() + "\n")
        self.write_junit(self.out / "junit.xml")

    def count(self, verdict):
        return sum(r.verdict == verdict for r in self.results)

    def succeeded(self):
        return self.count(PASS) > 0 and self.count(FAIL) + self.count(SKIP) == 0

    def summary(self):
        counts = ", ".join(f"{self.count(verdict)} {words}" for verdict, words in WORDS.items())
        return f"{counts}; {time.monotonic() - self.begun:.0f} s"

    def table(self):
        """The first failures once more at its end, with all that is said of them: there a long log is looked at first."""
        rows = [("suite", "what ran", "ranks", "mesh", "result", "seconds", "")]
        rows += [self.row(results) for results in self.rows()]
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
        lines = ["  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[-1]]).rstrip() for row in rows]
        failed = [f"FAIL {self.place(r)}: {r.detail}" for r in self.results if r.verdict == FAIL]
        return "\n".join([*lines, self.summary(), *failed[:REPEATED]])

    def rows(self):
        """The results of each row."""
        found = {}
        for number, r in enumerate(self.results):
            alone = number if r.verdict == FAIL or not r.kind else None
            found.setdefault((r.suite, r.mesh, r.kind, r.verdict, alone), []).append(r)
        return found.values()

    def row(self, results):
        r = results[0]
        name = r.name if len(results) == 1 else f"{r.kind}, {len(results)} runs"
        details = "; ".join(dict.fromkeys(r.detail for r in results))
        return (r.suite, name, str(r.ranks), r.mesh or "-", r.verdict, f"{sum(r.seconds for r in results):.1f}", details[:200])

    def place(self, r):
        return ", ".join(part for part in (r.suite, f"{r.ranks} ranks", r.mesh, r.name) if part)

    def write_junit(self, path):
        root = ElementTree.Element("testsuites", name="ztrain")
        for name in dict.fromkeys(r.suite for r in self.results):
            of_suite = [r for r in self.results if r.suite == name]
            suite = ElementTree.SubElement(
                root, "testsuite", name=name, tests=str(len(of_suite)), errors="0",
                failures=str(sum(r.verdict == FAIL for r in of_suite)),
                skipped=str(sum(r.verdict in (SKIP, LACK) for r in of_suite)),
                time=f"{sum(r.seconds for r in of_suite):.3f}")
            for r in of_suite:
                self.add_case(suite, r)
        # Whole or not at all: a dashboard may read it while this runs.
        written = path.with_suffix(".part")
        ElementTree.ElementTree(root).write(written, encoding="utf-8", xml_declaration=True)
        written.replace(path)

    def add_case(self, suite, r):
        name = ", ".join(part for part in (r.mesh, r.name) if part)
        case = ElementTree.SubElement(suite, "testcase", classname=f"ztrain.{r.suite}", name=f"{name}, {r.ranks} ranks",
                                      time=f"{r.seconds:.3f}")
        kind = {FAIL: "failure", SKIP: "skipped", LACK: "skipped"}.get(r.verdict)
        if kind:
            ElementTree.SubElement(case, kind, message=r.detail.translate(XML_LEAVES_OUT))
