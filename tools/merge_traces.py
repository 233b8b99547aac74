#!/usr/bin/env python3
"""Makes one trace of those of several ranks, which ui.perfetto.dev then shows one below the other.

    tools/merge_traces.py RUN_FOLDER/trace/rank*_trace.json -o all.json

Traces are those of `ztrain plan --trace` and of runs with profile.steps. The clocks of a run's ranks agree already.
tools/plot_plan.py and tools/compare_plan.py read several files without this.
"""
import argparse
import collections
import json
import pathlib
import sys

# Categories of slices in which nothing is computed: a wait, and a host that computes moves a communication along.
WAITING, DRIVING = "wait", "drive"


class Trace:
    """One or several files. facts: of each file ("otherData"). events: of all, ordered by time; times are microseconds."""

    def __init__(self, paths, tool):
        self.facts, self.events = [], []
        for path in paths:
            try:
                data = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
                self.facts.append(data["otherData"])
                self.events += data["traceEvents"]
            except (OSError, ValueError, KeyError, TypeError) as error:
                reason = error if isinstance(error, OSError) else "is no trace of `ztrain plan --trace` or of profile.steps"
                sys.exit(f"{tool}: {path}: {reason}")
        sources = {facts["source"] for facts in self.facts}
        if len(sources) > 1:
            sys.exit(f"{tool}: {', '.join(paths)}: some are of a plan and some of a run: give files of one kind")
        self.source = sources.pop()
        self.events.sort(key=lambda event: event.get("ts", -1))
        self.processes, self.threads = {}, {}
        for event in self.events:
            if event["name"] == "process_name":
                self.processes[event["pid"]] = event["args"]["name"]
            elif event["name"] == "thread_name":
                self.threads[event["pid"], event["tid"]] = event["args"]["name"]

    def steps(self):
        """Number of steps that each process shows."""
        return len(self.facts[0]["step_seconds"])

    def slices(self):
        return (event for event in self.events if event["ph"] == "X")

    def seconds(self):
        """Of each (action, op type), waits left out: mean over processes and steps."""
        sums = collections.Counter()
        for event in self.slices():
            args, seconds = event["args"], event["dur"] / 1e6
            if "seconds" in args:  # ops of many micro-batches
                for name, value in args["seconds"].items():
                    sums[tuple(name.split(" ", 1))] += value
            elif "type" in args and event["cat"] not in (WAITING, DRIVING):
                sums[args["action"], args["type"]] += seconds
        return self.mean(sums)

    def waits(self):
        """Seconds in which nothing is computed, by what is done instead."""
        sums = collections.Counter()
        for event in self.slices():
            if event["cat"] == DRIVING:
                sums["drives communication"] += event["dur"] / 1e6
            elif event["cat"] == WAITING:
                args = event["args"]
                sums["waits for " + ("the host" if args["kind"] == "launch" else args["action"])] += event["dur"] / 1e6
        return self.mean(sums)

    def mean(self, sums):
        parts = len(self.processes) * self.steps()
        return {key: value / parts for key, value in sums.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+")
    parser.add_argument("-o", "--output", default="trace.json")
    options = parser.parse_args()
    trace = Trace(options.traces, "merge_traces.py")
    merged = {"displayTimeUnit": "ms", "otherData": trace.facts[0], "traceEvents": trace.events}
    pathlib.Path(options.output).write_text(json.dumps(merged, separators=(",", ":")), encoding="utf-8")
    print(f"{options.output}: {len(trace.processes)} ranks, {len(trace.events)} events")


if __name__ == "__main__":
    main()
