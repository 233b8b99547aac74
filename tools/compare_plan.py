#!/usr/bin/env python3
"""Says where a run and its plan part: seconds of a step by action and kind of op, waits, and the step.

    ztrain plan DECK --ranks N --trace plan.json
    tools/compare_plan.py plan.json RUN_FOLDER/trace/rank*_trace.json [--top N] [--json]

Each number is the mean over the ranks that a trace has and, of a run, over its steps. The rows that are furthest apart, in seconds,
come first. An op that takes no time on one side has no ratio. A communication lasts from its start until the rank has seen its end, so
that it includes what the rank waits for the others.
"""
import argparse
import json
import sys

from merge_traces import Trace


def rows_of(plan, run):
    """[(name, planned seconds, measured seconds)], those that are furthest apart first."""
    planned, measured = plan.seconds(), run.seconds()
    rows = [(" ".join(key), planned.get(key, 0.0), measured.get(key, 0.0)) for key in planned.keys() | measured.keys()]
    return sorted(rows, key=lambda row: (-abs(row[2] - row[1]), row[0]))


def waits_of(plan, run):
    planned, measured = plan.waits(), run.waits()
    rows = [(key, planned.get(key, 0.0), measured.get(key, 0.0)) for key in planned.keys() | measured.keys()]
    rows.sort(key=lambda row: (-abs(row[2] - row[1]), row[0]))
    return [("in all", sum(planned.values()), sum(measured.values())), *rows]


def step_of(trace):
    seconds = [value for facts in trace.facts for value in facts["step_seconds"]]
    return sum(seconds) / len(seconds)


def ratio_of(planned, measured):
    return measured / planned if planned > 0 and measured > 0 else None


def print_rows(title, rows, step):
    print(f"\n{title:40} {'planned':>12} {'measured':>12} {'ratio':>8} {'of step':>8}")
    for name, planned, measured in rows:
        ratio = ratio_of(planned, measured)
        share = (measured - planned) / step
        print(f"{name:40} {1e3 * planned:9.3f} ms {1e3 * measured:9.3f} ms {f'{ratio:8.2f}' if ratio else '       -'} {100 * share:+7.1f}%")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", help="of ztrain plan --trace")
    parser.add_argument("run", nargs="+", help="of a run with profile.steps, a file for each rank")
    parser.add_argument("--top", type=int, default=20, help="rows of ops that are printed (default: 20)")
    parser.add_argument("--json", action="store_true", help="print all rows as one JSON object")
    options = parser.parse_args()
    plan, run = Trace([options.plan], "compare_plan.py"), Trace(options.run, "compare_plan.py")
    for trace, wanted, paths in ((plan, "plan", [options.plan]), (run, "run", options.run)):
        if trace.source != wanted:
            sys.exit(f"compare_plan.py: {paths[0]}: is the trace of a {trace.source}: the plan's comes first, then those of the run")
    step, waits, ops = ("step", step_of(plan), step_of(run)), waits_of(plan, run), rows_of(plan, run)
    if options.json:
        print(json.dumps({"step": step[1:], "waits": {row[0]: row[1:] for row in waits}, "ops": {row[0]: row[1:] for row in ops}}, indent=1))
        return
    print(f"{len(run.processes)} of the run's ranks, {run.steps()} steps; `of step`: share of the measured step by which both differ")
    print_rows("step", [step], step[2])
    print_rows("nothing is computed", waits, step[2])
    print_rows("action, op", ops[: options.top], step[2])
    if len(ops) > options.top:
        print(f"{len(ops) - options.top} rows are left out: --top {len(ops)}")


if __name__ == "__main__":
    main()
