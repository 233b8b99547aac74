"""Checks that hold for every trace, planned or measured."""

import collections
import json
import pathlib
import sys

import ztrain_run as zt

sys.path.insert(0, str(zt.SOURCE / "tools"))


def events_of(case, path):
    """The events of a trace's file, after the checks: by phase."""
    whole = json.loads(pathlib.Path(path).read_text())
    times = [event["ts"] for event in whole["traceEvents"] if event["ph"] != "M"]
    case.assertEqual(times, sorted(times), f"{path}: events are ordered by time")
    phases, threads, arrows = collections.defaultdict(list), collections.defaultdict(list), collections.defaultdict(list)
    for event in whole["traceEvents"]:
        phases[event["ph"]].append(event)
        if event["ph"] == "X":
            threads[event["pid"], event["tid"]].append(event)
        elif event["ph"] in "sf":
            arrows[event["id"]].append(event)
    named = {(event["pid"], event["tid"]) for event in phases["M"] if event["name"] == "thread_name"}
    case.assertEqual(set(threads), named)
    for slices in threads.values():
        for before, after in zip(slices, slices[1:]):
            case.assertGreaterEqual(before["dur"], 0)
            case.assertLessEqual(before["ts"] + before["dur"], after["ts"] + 1e-3, f"{path}: {before}, {after}")
    for ends in arrows.values():
        case.assertEqual([end["ph"] for end in ends], ["s", "f"], path)
        for end in ends:
            near = [s for s in threads[end["pid"], end["tid"]] if s["ts"] <= end["ts"] <= s["ts"] + s["dur"]]
            case.assertTrue(near, f"{path}: {end} touches no slice")
    return whole["otherData"], phases


def ops_of(phases, begin=0, end=float("inf")):
    """How often each op is there, by what names it, between two times in seconds."""
    return collections.Counter(
        (e["name"], e["args"]["type"], e["args"]["of"]) for e in phases["X"] if "of" in e["args"] and begin <= e["ts"] / 1e6 <= end
    )
